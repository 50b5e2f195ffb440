"""A raft-wal log open for reading, and one segment of it read by a task of many."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import RaftEntry, decode_entry
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage, OnDamage, SegmentInfo
from holdfast.logs.mark import Recalled, was_lowered
from holdfast.logs.metrics import Counters, counter
from holdfast.logs.raft_wal.changes import Segments, reopened, survey_changes
from holdfast.logs.raft_wal.directory import header_of, name_of, parse_name
from holdfast.logs.raft_wal.marks import recall
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.raft_entries import check_checkpoints, raft_columns
from holdfast.logs.raft_wal.recovery import Survey, survey
from holdfast.logs.raft_wal.scanning import scan_file
from holdfast.logs.raft_wal.view import Active, Sealed, created_ms, open_segments, read_batches
from holdfast.logs.reader import LookAgainError, Reader, found_before
from holdfast.logs.view import View
from holdfast.metrics import Metric
from holdfast.runtime import from_rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

_CODECS = {fmt.RAFT_CODEC: "Raft entries", fmt.OPAQUE_CODEC: "plain payloads"}


@dataclass(slots=True)
class RaftCounters(Counters):
    """The original's counters that other logs do not have, under the original's names."""

    head_truncations: int = counter("entries removed from the head")
    tail_truncations: int = counter("entries removed from the tail")
    stable_gets: int = counter("reads of stable keys")
    stable_sets: int = counter("writes of stable keys")


class RaftSource:
    """How a raft-wal directory is looked at.  See holdfast.logs.reader.Source."""

    def __init__(self, disk: Disk, meta: MetaStore) -> None:
        self.disk, self.meta = disk, meta
        self._shown: tuple[State, Segments] | None = None  # if they are sound
        self._is_refreshing = False  # then the next look is only at what has changed

    def look(self) -> Survey:
        recalled = recall(self.disk)  # first: what is read later can only have more
        txid = self.meta.refresh()
        state = self.meta.load()
        if state is not None and (changes := self._changes(state, recalled)):
            return changes
        result = survey(self.disk, state, txid, recalled)
        # The owner records a change in the meta store first.  So if files are missing or unknown,
        # and the meta store has changed since it was read, this look compared two states.
        if (result.damage or not result.has_file) and (
            self.meta.refresh() != txid or was_lowered(self.disk, recalled.stored)
        ):
            raise LookAgainError
        return result

    def _changes(self, state: State, recalled: Recalled) -> Survey | None:
        is_refreshing, self._is_refreshing = self._is_refreshing, False
        if self._shown is None or not is_refreshing:
            return None
        before, segments = self._shown
        assert isinstance(segments[-1], Active)
        try:
            return survey_changes(self.disk, before, state, segments[-1], recalled)
        except FileNotFoundError:
            return None

    def show(self, found: Survey) -> View[Sealed | Active]:
        if found.is_partial and self._shown is not None:
            before, shown = self._shown
            segments = reopened(
                before.segments, found.state.segments, shown, partial(self._open, found)
            )
            self._extend(segments[-1])
        else:
            segments = open_segments(self.disk, found)
        is_sound = bool(segments) and isinstance(segments[-1], Active) and segments[-1].has_file
        self._shown = (found.state, segments) if is_sound and not found.damage else None
        return view_of(segments, found)

    def _open(
        self, found: Survey, meta: SegmentMeta, was: Sealed | Active | None
    ) -> Sealed | Active:
        if meta.sealed:
            return Sealed(self.disk, meta, found.sizes[name_of(meta)])
        if isinstance(was, Active) and was.meta.id == meta.id and was.stop:
            return was.starting_at(meta)
        return Active(self.disk.open(name_of(meta)), meta, found.found)

    def follow(self, view: View[Sealed | Active]) -> bool:
        before, active = self.meta.txid, view.segments[-1] if view.segments else None
        self._is_refreshing = is_new = self.meta.refresh() != before
        if is_new or view.damage or not isinstance(active, Active) or not active.has_file:
            return False
        return self._extend(active)

    def _extend(self, active: Sealed | Active) -> bool:
        """Show what was appended to the active segment; False if it is another one."""
        assert isinstance(active, Active)
        while not active.index_start:
            found = read_batches(active.file, active.stop)
            if not len(found.commits):
                break
            if active.stop == 0:
                header = fmt.decode_header(active.file.read_at(0, fmt.HEADER_SIZE))
                if header != header_of(active.meta):
                    return False
            active.file.sync()
            active.extend(found)
        return True

    def is_current(self, segment: Sealed | Active) -> bool:
        return segment.name in self.disk.list()

    def close(self) -> None:
        """Nothing is open besides the segments; the meta store of an owner closes later."""


def view_of(segments: tuple[Sealed | Active, ...], found: Survey) -> View[Sealed | Active]:
    """Return the view of a log whose survey found this."""
    broken: dict[str, Damage] = {}
    if found.contradiction:
        broken = {segment.name: found.contradiction for segment in segments}
    elif found.damage:
        sealed = {segment.name for segment in segments if isinstance(segment, Sealed)}
        broken = {damage.file: damage for damage in found.damage if damage.file in sealed}
    return View(segments, tuple(found.damage), broken)


class RaftWalReader(Reader[Sealed | Active, Survey]):
    """A raft-wal log open for reading: a Raft server's, while it runs, or one of Holdfast's own.

    A log with damaged segments opens: `damage` says what is wrong, and other entries can be read.
    CorruptError if its meta store is damaged or missing.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        meta: MetaStore | None = None,
        view: View[Sealed | Active] | None = None,
    ) -> None:
        """`meta` and `view` are an owner's."""
        self._meta = meta or MetaStore(disk, read_only=True)
        super().__init__(RaftSource(disk, self._meta), view=view)
        self.counters: RaftCounters = RaftCounters()

    @property
    def codec(self) -> int:
        """What the payloads are: 1 for Raft entries, from 65536 on others."""
        segments = self.view.segments
        return segments[-1].meta.codec if segments else fmt.OPAQUE_CODEC

    @property
    def stable(self) -> dict[bytes, bytes]:
        """All keys of the stable store."""
        self.handle.check_read()
        return self._meta.stable

    def get(self, key: bytes) -> bytes | None:
        """Return a value of the stable store; None if it has no such key."""
        self.handle.check_read()
        self.counters.stable_gets += 1
        return self._meta.get(key)

    def get_uint64(self, key: bytes) -> int:
        """Return a number of the stable store; 0 if it has no such key."""
        self.handle.check_read()
        self.counters.stable_gets += 1
        return self._meta.get_uint64(key)

    def get_log(self, index: int) -> RaftEntry:
        """Return one Raft entry, its checksum and its index verified."""
        entry = decode_entry(self.read(index))
        if isinstance(entry, Flaw):
            raise CorruptError(f"entry {index}", entry.offset, entry.why)
        if entry.index != index:
            raise CorruptError(f"entry {index}", 0, f"it says it is entry {entry.index}")
        return entry

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """Return the fields of the Raft entries of a scanned batch; None for other payloads."""
        return raft_columns(batch) if self.codec == fmt.RAFT_CODEC else None

    def facts(self) -> dict[str, str]:
        """Return what only a raft-wal log has: its codec and its stable keys."""
        facts = {"codec": f"{self.codec} ({_CODECS.get(self.codec, 'custom')})"}
        for key, value in sorted(self.stable.items()):
            number = f" ({int.from_bytes(value, 'little')})" if len(value) == 8 else ""
            text = value.decode("ascii") if value.isascii() and not number else ""
            is_text = text.isprintable() and bool(text)
            name = f"stable {key.decode('utf-8', 'backslashreplace')}"
            facts[name] = text if is_text else f"{value.hex() or 'empty'}{number}"
        return facts

    def metrics(self) -> list[Metric]:
        """Return what was counted since this was opened, under the original's names."""
        return [*super().metrics(), *self._last_segment_age()]

    def _last_segment_age(self) -> list[Metric]:
        sealed = [one.meta for one in self.view.segments if one.meta.sealed]
        if not sealed:
            return []
        last = max(sealed, key=lambda meta: meta.id)
        age_ms = from_rfc3339(last.seal_time) - created_ms(last)
        about = "seconds from the creation to the sealing of the last segment that was sealed"
        return [Metric("last_segment_age_seconds", "gauge", age_ms / 1000, about)]

    def check_whole(self) -> list[Damage]:
        """Check the sums of the verifier's checkpoints, which span many segments."""
        if self.codec != fmt.RAFT_CODEC:
            return []
        return [
            Damage(self.segment_of(first).name, 0, first, last, why)
            for first, last, why in check_checkpoints(self)
        ]


def belongings(log: Any) -> dict[str, Any]:
    """Return what a log has besides its entries, as JSON: its codec and its stable keys.

    A conversion copies them, so that a Raft server's term and vote are kept.
    """
    stable = {key.hex(): value.hex() for key, value in sorted(log.stable.items())}
    return {"codec": log.codec, "stable": stable}


def scan_segment(
    disk: Disk,
    segment: SegmentInfo,
    start: int,
    stop: int,
    *,
    on_damage: OnDamage | None = None,
    verify: bool = True,
) -> "Iterator[pa.RecordBatch]":
    """Scan entries start..stop-1 of one segment without a look at any other: a task of many.

    `segment` is one of Reader.segments(), of this process or another.
    """
    parsed = parse_name(segment.name)
    if parsed is None:
        raise ValueError(f"invalid segment name {segment.name!r}")
    with found_before(segment.name):
        file = disk.open(segment.name)
    try:
        header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
        codec = header.codec if isinstance(header, fmt.Header) else fmt.OPAQUE_CODEC
        span = segment.first_index, segment.last_index
        meta = SegmentMeta(parsed[1], parsed[0], *span, codec=codec)
        found, _ = scan_file(file, file.size(), verify=False)
        active = Active(file, meta, found if len(found.starts) else fmt.NOTHING)
        yield from active.scan(start, stop, on_damage, verify=verify)
    finally:
        file.close()


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one segment from end to end and verify every checksum: a task of many."""
    with RaftWalReader(disk) as reader:  # where its index is, the meta store says
        return reader.check(segment.name)
