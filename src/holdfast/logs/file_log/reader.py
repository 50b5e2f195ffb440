"""A FileLog open for reading, and one index file of it read by a task of many."""

from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from holdfast.disk import Disk
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.rlog_entry import FileEntry, decode_entry, encode_entries
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log.active import Active, ActiveState, SyncMode
from holdfast.logs.file_log.directory import (
    SNAPSHOT,
    STATE,
    IndexFile,
    find_file,
    read_snapshot_head,
    reader,
)
from holdfast.logs.file_log.history import kept
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.recovery import Survey, survey
from holdfast.logs.file_log.state import read_state, state_damage
from holdfast.logs.file_log.view import FileLogView, Segment, entry_columns, witness_of
from holdfast.logs.log import Damage, OnDamage, SegmentInfo
from holdfast.logs.mark import read_mark, was_lowered
from holdfast.logs.reader import LookAgainError, Reader, found_before, settled_look
from holdfast.logs.view import View

if TYPE_CHECKING:
    import pyarrow as pa

_NO_SNAPSHOT = snapshot_file.Head(0, 0, 0, 0, Meta())


class FileLogSource:
    """How the directory of a FileLog is read.  See holdfast.logs.reader.Source.

    `sync_mode` is that of the owner, which also writes to the active file; None for a guest.
    """

    def __init__(self, disk: Disk, sync_mode: SyncMode | None = None) -> None:
        self.disk, self.sync_mode = disk, sync_mode

    def look(self) -> Survey:
        mark = read_mark(self.disk)  # first: the files can only have more
        found = survey(self.disk, mark)
        if found.damage and was_lowered(self.disk, mark):
            raise LookAgainError
        return found

    def show(self, found: Survey) -> FileLogView:
        floor = found.first_index
        segments: list[Segment] = []
        for file, after in zip_longest(found.files, found.files[1:]):
            if isinstance(file.head, Flaw):
                continue
            if after is None:
                assert found.active is not None, "judged, as its head is valid"
                active = found.active
                is_owner = self.sync_mode is not None
                writable = is_owner and not found.damage and found.full is None
                segments.append(
                    self.open_active(
                        file, file.head, active, floor, writable=writable, mark=found.mark
                    )
                )
            else:
                count = min(after.index, file.head.header.stop_index) - file.index
                witness = None
                if self.sync_mode is None:
                    witness = witness_of(self.disk, file, count, found.mark)
                segments.append(
                    Segment(self.disk, file, file.head, count, floor=floor, witness=witness)
                )
        last = found.files[-1].name if found.files else ""
        broken = {d.file: d for d in found.damage if d.first_index and d.file != last}
        return FileLogView(
            tuple(segments), tuple(found.damage), broken, floor, found.snapshot, found.mark
        )

    def open_active(
        self,
        file: IndexFile,
        head: rlog.Head,
        state: ActiveState,
        floor: int,
        *,
        writable: bool,
        mark: Mark | Flaw | None = None,
    ) -> Active:
        return Active(
            self.disk,
            file,
            head,
            state,
            self.disk.open(file.name, writable=True) if writable else None,
            floor=floor,
            sync_mode=self.sync_mode,
            mark=mark,
        )

    def follow(self, view: View[Segment]) -> bool:
        assert isinstance(view, FileLogView)
        last = view.segments[-1] if view.segments else None
        if not isinstance(last, Active) or view.damage or not 0 < last.count < len(last.slots):
            return False
        names = self.disk.list()
        if INTENT in names or read_snapshot_head(self.disk, names) != view.snapshot:
            return False
        if was_lowered(self.disk, view.mark):
            return False
        directory, _, name = last.name.rpartition("/")
        sizes = {n: s for n, s in self.disk.list(directory).items() if n.endswith(".rlog")}
        return next(reversed(sizes), None) == name and last.follow(sizes[name])

    def is_current(self, segment: Segment) -> bool:
        return segment.is_unchanged()

    def close(self) -> None:
        """Nothing is open besides the segments."""


class FileLogReader(Reader[Segment, Survey]):
    """A FileLog open for reading: that of a running server, or one of our own.

    A payload is the data of an entry; `get_entry` returns all of it.
    """

    def __init__(self, source: Disk | FileLogSource, *, view: FileLogView | None = None) -> None:
        """Open a directory; an owner passes its source and its view."""
        source = source if isinstance(source, FileLogSource) else FileLogSource(source)
        super().__init__(source, view=view)

    @property
    def snapshot(self) -> snapshot_file.Head:
        """The head of the snapshot; its index is 0 if there is none, or none that can be read."""
        found = _snapshot_of(self.view)
        return found if isinstance(found, snapshot_file.Head) else _NO_SNAPSHOT

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the snapshot before it; 0 in a new log."""
        return self.term_at(self.last_index)

    def get_entry(self, index: int) -> FileEntry:
        """Return one entry with its request id, type and term."""
        segment = self.segment_of(index)
        try:
            entry = decode_entry(segment.entry(index))
        except (FileNotFoundError, CorruptError) as error:
            self.refuse_changed(segment, error)
            raise
        if isinstance(entry, Flaw):
            raise CorruptError(f"entry {index}", entry.offset, entry.why)
        return entry

    def fingerprint(self, index: int) -> bytes:
        """Return the whole entry: one that replaces it has another term or request id."""
        return encode_entries([self.get_entry(index)])[0]

    def term_at(self, index: int) -> int:
        """Return the term of one entry, or of the last one that the snapshot covers."""
        snapshot = self.snapshot
        if index == snapshot.index:
            return snapshot.term
        return self.get_entry(index).term if index else 0

    def read_snapshot(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return the data of the snapshot, or a part of it.

        ChangedError if the owner has replaced the snapshot since the last refresh.
        """
        if offset < 0 or (size is not None and size < 0):
            raise ValueError(f"offset {offset} and size {size}; expected 0 or more")
        head = self.snapshot
        stop = head.data_size if size is None else min(head.data_size, offset + size)
        if stop <= offset:
            return b""
        with found_before(SNAPSHOT), closing(self.disk.open(SNAPSHOT)) as file:
            if snapshot_file.decode_head(reader(file), head.data_start + head.data_size) != head:
                raise ChangedError("the snapshot was replaced; refresh, and read it again")
            return file.read_at(head.data_start + offset, stop - offset)

    def old_snapshots(self) -> list[str]:
        """Return the names of the files of previous snapshots, oldest first."""
        self.handle.check_read()
        return kept(self.disk, SNAPSHOT)

    def read_state(self) -> dict[str, Any]:
        """Return the properties in the server's state file; empty if there is none."""
        self.handle.check_read()
        return read_state(self.disk, STATE)

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """Return the entries of a scanned batch: index, term, type, request_id and data."""
        self.handle.check_read()
        if not batch.num_rows:
            return None
        first = batch.column("index")[0].as_py()
        segment = self.segment_of(first)
        try:
            return entry_columns(batch, segment.headers(first, first + batch.num_rows))
        except (FileNotFoundError, CorruptError) as error:
            self.refuse_changed(segment, error)
            raise

    def facts(self) -> dict[str, str]:
        """Return what only a FileLog has: capacity, snapshot and the state of its server."""
        facts, head, segments = {}, self.snapshot, self.view.segments
        if segments:
            capacity = rlog.nominal_capacity(segments[0].head.header.capacity)
            facts["capacity"] = f"{capacity} entries per file"
        facts["snapshot"] = "none"
        if head.index:
            what = f"entry {head.index}, term {head.term}, {head.data_size} bytes"
            by = f"{head.meta.created or 'at an unknown time'} by {head.meta.hostname or '?'}"
            facts["snapshot"] = f"{what}, created {by}"
        facts["old snapshots"] = str(len(kept(self.disk, SNAPSHOT)))
        try:
            state = self.read_state()
        except CorruptError as error:
            return {**facts, "state": str(error)}
        return facts | {f"state {name}": _shown(value) for name, value in state.items()}

    def check_whole(self) -> list[Damage]:
        """Check what no index file shows alone: terms across files, changes, and the state file."""
        damage, last = [], 0
        found = settled_look(self.source)
        if found.torn is not None and found.torn.file not in found.names:
            damage.append(found.torn)
        for segment in self.view.segments:
            if not segment.count:
                continue
            ends = segment.base, segment.base + segment.count - 1
            first, final = (int(segment.headers(index, index + 1).terms[0]) for index in ends)
            segment.unload()
            if first < last:
                why = f"its term {first} is before {last}, that of the file before"
                damage.append(Damage(segment.name, segment.head.data_start, ends[0], ends[0], why))
            last = final
        state = state_damage(self.disk)
        return damage if state is None else [*damage, state]


def scan_segment(
    disk: Disk,
    segment: SegmentInfo,
    start: int,
    stop: int,
    *,
    on_damage: OnDamage | None = None,
    verify: bool = True,
) -> "Iterator[pa.RecordBatch]":
    """Scan entries start..stop-1 of one index file without a look at any other: a task of many.

    `segment` is one of FileLogReader.segments(), of this process or another.
    """
    with found_before(segment.name):
        found = find_file(disk, segment.name, segment.size)
    if isinstance(found.head, Flaw):
        flaw = found.head
        if on_damage is None:
            raise CorruptError(segment.name, flaw.offset, flaw.why)
        return on_damage(Damage(segment.name, flaw.offset, start, stop - 1, flaw.why))
    count = segment.last_index + 1 - found.index
    with found_before(segment.name):
        witness = witness_of(disk, found, count, read_mark(disk))
        part = Segment(disk, found, found.head, count, witness=witness)
        yield from part.scan(start, stop, on_damage, verify=verify)


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one index file from end to end and check every entry: a task of many."""
    with FileLogReader(disk) as log:  # where it ends depends on the other files
        return log.check(segment.name)


def _snapshot_of(view: View[Segment]) -> snapshot_file.Head | Flaw | None:
    assert isinstance(view, FileLogView)
    return view.snapshot


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(" at ".join(map(str, each)) for each in value) or "none"
    return str(value)
