"""A Shanghai log read without owning it: no lock, no change, beside a live owner too."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import Damage, OnDamage, SegmentInfo
from holdfast.logs.segmented import SegmentedGuest
from holdfast.logs.shanghai.directory import Found, segment_sizes
from holdfast.logs.shanghai.recovery import State, survey
from holdfast.logs.shanghai.segment import Active, Sealed, read_entries

if TYPE_CHECKING:
    import pyarrow as pa


class ShanghaiGuest(SegmentedGuest[Sealed | Active, State]):
    """A Shanghai log as a reader sees it.

    A damaged log opens all the same: `damage` says what is wrong, and sound entries can be read.
    """

    def refresh(self) -> int:
        """See what the owner has appended, rotated or removed; return last_index."""
        self._refresh()
        return self.last_index

    def segments(self) -> list[SegmentInfo]:
        broken = {damage.file for damage in self.damage} | set(self._broken)
        return [
            SegmentInfo(
                segment.name,
                "damaged" if segment.name in broken else type(segment).__name__.lower(),
                segment.first_index,
                segment.stop_index - 1,
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

    def _look(self) -> State:
        return survey(self._disk)

    def _show(self, result: State) -> None:
        segments: list[Sealed | Active] = []
        for found, after in zip_longest(result.found, result.found[1:]):
            if not isinstance(found.header, fmt.Header):
                continue
            if after is None:
                file = self._disk.open(found.name)
                segments.append(Active(file, found.name, found.header, result.bounds))
            else:
                stop = self._stop_lsn(found, found.header, after)
                segments.append(Sealed(self._disk, found.name, found.size, found.header, stop))
        self._publish(tuple(segments))
        self.damage = tuple(result.damage)
        self._broken = _doubtful(result)

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

    def _doubt(self, segment: Sealed | Active, index: int) -> Damage | None:
        if damage := super()._doubt(segment, index):
            return replace(damage, why=f"LSN {index}: {damage.why}")
        if segment.first_index <= index < segment.stop_index:
            return None
        known = next(iter(self.damage), None) or Damage(segment.name, 0, 0, 0, "")
        return replace(known, why=f"LSN {index} is missing")

    def _refusal(self, damage: Damage, index: int) -> CorruptError:
        return CorruptError(damage.file, damage.offset, damage.why)


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
        if segment.state == "active" or active.stop_index == sealed.stop_index:
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
