"""A Shanghai log read without owning it: no lock, no change, beside a live owner too."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from holdfast.disk import Disk
from holdfast.errors import CorruptError, OutOfRangeError
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import Damage, OnDamage, SegmentInfo, clip
from holdfast.logs.shanghai.directory import Found, segment_sizes
from holdfast.logs.shanghai.recovery import State, survey
from holdfast.logs.shanghai.segment import Active, Sealed, read_entries

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKS_MAX = 20
_LOADED_MAX = 16  # sealed segments whose offsets are kept at hand for single reads


class ShanghaiGuest:
    """A Shanghai log as a reader sees it.

    A damaged log opens all the same: `damage` says what is wrong, and sound entries can be read.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._segments: tuple[Sealed | Active, ...] = ()
        self._recent: Sealed | Active | None = None  # the next read is often near the last one
        self._loaded: dict[int, Sealed] = {}
        self._doubtful: dict[str, Damage] = {}
        self.damage: tuple[Damage, ...] = ()
        self._survey()

    @property
    def first_index(self) -> int:
        segments = self._segments
        return segments[0].first_lsn if segments else 1

    @property
    def last_index(self) -> int:
        segments = self._segments
        return segments[-1].stop_lsn - 1 if segments else 0

    def read(self, index: int) -> bytes:
        """One payload, its checksum verified.  OutOfRangeError if there is no such entry."""
        segment = self._recent
        if segment is None or not segment.first_lsn <= index < segment.stop_lsn:
            segment = self._segment_of(index)
        return segment.read(index)

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Entries start..stop-1 as Arrow batches of `index`, `payload` and `offset`.

        Without a copy on sealed segments, every checksum verified.  Yields what is sound before
        a damaged entry, then raises CorruptError; with `on_damage`, tells it and goes on behind.
        """
        start, stop = clip(start, stop, self.first_index, self.last_index)
        return self._scan(self._segments, start, stop, on_damage)

    def refresh(self) -> int:
        """See what the owner has appended, rotated or removed; return last_index."""
        self._refresh()
        return self.last_index

    def segments(self) -> list[SegmentInfo]:
        broken = {damage.file for damage in self.damage} | set(self._doubtful)
        return [
            SegmentInfo(
                segment.name,
                "damaged" if segment.name in broken else type(segment).__name__.lower(),
                segment.first_lsn,
                segment.stop_lsn - 1,
                segment.size,
                segment.header.created_ms,
                str(segment.header.id),
            )
            for segment in self._segments
        ]

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        for segment in self._segments:
            if segment.name == name and isinstance(segment, Sealed):
                return segment.check()
        state = self._look_twice()
        if all(found.name != name for found in state.found):
            raise FileNotFoundError(f"the log has no segment {name}")
        return next((damage for damage in state.all_damage() if damage.file == name), None)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
        self._publish(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", damaged" if self.damage else ""
        span = f"{self.first_index}..{self.last_index}"
        return f"<{type(self).__name__} {span} in {len(self._segments)} segments{state}>"

    def _scan(
        self,
        segments: Sequence[Sealed | Active],
        start: int,
        stop: int,
        on_damage: OnDamage | None,
    ) -> "Iterator[pa.RecordBatch]":
        for segment in segments:
            end = min(stop, segment.stop_lsn)
            if start < end:
                start = self._pass_damaged(segment, start, end, on_damage)
                if start < end:
                    yield from segment.scan(start, end, on_damage)
                start = end
                if isinstance(segment, Sealed) and segment.first_lsn not in self._loaded:
                    segment.unload()

    def _refresh(self) -> None:
        if not self._segments or not isinstance(tail := self._segments[-1], Active):
            return self._survey()
        sizes = segment_sizes(self._disk)
        first, last = self._segments[0].name, next(reversed(sizes), None)
        if first not in sizes or last != tail.name or sizes[last] < tail.size:
            return self._survey()
        bounds, _ = read_entries(tail.file, tail.size, sizes[last])
        if len(bounds) > 1:
            tail.file.sync()  # what a guest shows must not vanish in a power cut
            tail.bounds.extend(bounds[1:])
        return None

    def _survey(self) -> None:
        for look in range(_LOOKS_MAX):
            try:
                state = self._look_twice()
                if len(state.bounds) > 1:
                    self._sync(state.found[-1].name)
                return self._show(state)
            except FileNotFoundError:  # rotated and compacted since that look
                if look == _LOOKS_MAX - 1:
                    raise

    def _sync(self, name: str) -> None:
        file = self._disk.open(name)
        try:
            file.sync()  # what a guest shows must not vanish in a power cut
        finally:
            file.close()

    def _look_twice(self) -> State:
        """Names, sizes and bytes are not read at one instant: beside a live owner they may seem to
        contradict each other.  What is damaged looks the same a second time."""
        seen: list[Damage] | None = None
        for look in range(_LOOKS_MAX):
            try:
                state = survey(self._disk)
            except FileNotFoundError:  # compacted between the look at names and at bytes
                if look == _LOOKS_MAX - 1:
                    raise
                continue
            if not state.damage or state.damage == seen:
                break
            seen = state.damage
        return state

    def _show(self, state: State) -> None:
        segments: list[Sealed | Active] = []
        for found, after in zip_longest(state.found, state.found[1:]):
            if not isinstance(found.header, fmt.Header):
                continue
            if after is None:
                file = self._disk.open(found.name)
                segments.append(Active(file, found.name, found.header, state.bounds))
            else:
                stop = self._stop_lsn(found, found.header, after)
                segments.append(Sealed(self._disk, found.name, found.size, found.header, stop))
        self._publish(tuple(segments))
        self._loaded = {}
        self.damage = tuple(state.damage)
        self._doubtful = _doubtful(state)

    def _publish(self, segments: tuple[Sealed | Active, ...]) -> None:
        """From now on readers see these, and no others."""
        self._segments, self._recent = segments, None

    def _segment_of(self, index: int) -> Sealed | Active:
        segments = self._segments
        if not self.first_index <= index <= self.last_index:
            had = f"{self.first_index}..{self.last_index}"
            raise OutOfRangeError(f"entry {index} of a log that holds {had}")
        segment = segments[bisect_right(segments, index, key=lambda s: s.first_lsn) - 1]
        self._refuse_damaged(segment, index)
        if isinstance(segment, Sealed):
            self._keep_loaded(segment)
        self._recent = segment
        return segment

    def _stop_lsn(self, found: Found, header: fmt.Header, after: Found) -> int:
        if isinstance(after.header, fmt.Header) and after.number == found.number + 1:
            return after.header.first_lsn
        if header.last_lsn:
            return header.last_lsn + 1
        file = self._disk.open(found.name)  # neither a neighbour nor a seal tells: count
        try:
            return header.first_lsn + len(read_entries(file, fmt.HEADER_SIZE, found.size)[0]) - 1
        finally:
            file.close()

    def _refuse_damaged(self, segment: Sealed | Active, index: int) -> None:
        if damage := self._doubtful.get(segment.name):
            raise CorruptError(damage.file, damage.offset, f"LSN {index}: {damage.why}")
        if not segment.first_lsn <= index < segment.stop_lsn:
            known = next((d for d in self.damage), None)
            where = known.file if known else segment.name
            raise CorruptError(where, known.offset if known else 0, f"LSN {index} is missing")

    def _pass_damaged(
        self, segment: Sealed | Active, start: int, end: int, on_damage: OnDamage | None
    ) -> int:
        """Where reading can begin: at `start`, unless what is there is missing or in doubt."""
        try:
            self._refuse_damaged(segment, start)
        except CorruptError as error:
            if on_damage is None:
                raise
            resume = segment.first_lsn if start < segment.first_lsn else end
            on_damage(Damage(error.where, error.offset, start, resume - 1, error.why))
            return resume
        return start

    def _keep_loaded(self, segment: Sealed) -> None:
        if segment.first_lsn not in self._loaded:
            while len(self._loaded) >= _LOADED_MAX:
                self._loaded.pop(next(iter(self._loaded))).unload()
            self._loaded[segment.first_lsn] = segment


def _doubtful(state: State) -> dict[str, Damage]:
    """Segments whose LSNs cannot be relied on: a header contradicts, and which one is open."""
    doubtful = {}
    vague = {damage.file: damage for damage in state.damage if damage.first_index == 0}
    for found, after in zip_longest(state.found, state.found[1:]):
        if (damage := vague.get(found.name)) and isinstance(found.header, fmt.Header):
            doubtful[found.name] = damage
            if after is not None:
                doubtful[after.name] = damage
    return doubtful


def scan_segment(
    disk: Disk,
    segment: SegmentInfo,
    start: int,
    stop: int,
    *,
    on_damage: OnDamage | None = None,
    verify: bool = True,
) -> "Iterator[pa.RecordBatch]":
    """Entries start..stop-1 of one segment, without a look at any other: a task of many.

    `segment` is as ShanghaiGuest.segments told it, in this process or another.
    """
    header = fmt.Header(UUID(segment.id), segment.created_ms, segment.first_index)
    sealed = Sealed(disk, segment.name, segment.size, header, segment.last_index + 1)
    if segment.state != "sealed":
        file = disk.open(segment.name)
        bounds, _ = read_entries(file, fmt.HEADER_SIZE, segment.size)
        active = Active(file, segment.name, header, bounds)
        # A damaged segment may be the last one, cut by its reader where the damage begins.
        if segment.state == "active" or active.stop_lsn == sealed.stop_lsn:
            yield from active.scan(start, stop, on_damage, verify=verify)
            return
    yield from sealed.scan(start, stop, on_damage, verify=verify)


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one segment from end to end and verify every checksum: a task of many."""
    if segment.state != "sealed":  # what its end means, the others and the mark tell
        guest = ShanghaiGuest(disk)
        try:
            return guest.check(segment.name)
        finally:
            guest.close()
    header = fmt.Header(UUID(segment.id), segment.created_ms, segment.first_index)
    return Sealed(disk, segment.name, segment.size, header, segment.last_index + 1).check()
