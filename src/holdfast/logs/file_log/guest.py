"""A FileLog read without owning it: no lock, no change, beside a live owner too."""

from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, FileEntry, decode_entry
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log.columns import entry_columns
from holdfast.logs.file_log.directory import (
    SNAPSHOT,
    STATE,
    Found,
    base_name,
    read_snapshot_head,
    reader,
)
from holdfast.logs.file_log.facts import facts_of, whole_damage
from holdfast.logs.file_log.history import created_ms
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.part import Full, Last, Part
from holdfast.logs.file_log.recovery import Survey, survey
from holdfast.logs.file_log.state import read_state
from holdfast.logs.file_log.tail import TailState, judge_tail
from holdfast.logs.log import Damage, SegmentInfo
from holdfast.logs.segmented import SegmentedGuest

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = snapshot_file.Head(0, 0, 0, 0, Meta())


class FileLogGuest(SegmentedGuest[Part, Survey]):
    """A FileLog as a reader sees it: a server's, while it runs, or one of our own.

    A payload is the data of an entry; `get_entry` has the rest of it.  A damaged log opens all the
    same: `damage` says what is wrong, and sound entries can be read.
    """

    _files_are = "files"

    def __init__(self, disk: Disk) -> None:
        self._first = 1
        self._snapshot: snapshot_file.Head | Flaw | None = None
        super().__init__(disk)

    @property
    def first_index(self) -> int:
        return self._first

    @property
    def last_index(self) -> int:
        parts = self._segments
        return max(parts[-1].stop_index if parts else 0, self._first) - 1

    @property
    def snapshot(self) -> snapshot_file.Head:
        """What the snapshot is of; index 0 if there is none, or none that can be read."""
        found = self._snapshot
        return found if isinstance(found, snapshot_file.Head) else _NOTHING

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the snapshot before it; 0 in a new log."""
        return self.term_at(self.last_index)

    def read(self, index: int) -> bytes:
        """One payload.  OutOfRangeError if there is no such entry.

        ChangedError if the owner has removed or replaced the entry since the last refresh.
        """
        return self._entry(index)[ENTRY_HEADER_SIZE:]

    def get_entry(self, index: int) -> FileEntry:
        """One entry with its request id, type and term."""
        entry = decode_entry(self._entry(index))
        if isinstance(entry, Flaw):
            raise CorruptError(f"entry {index}", entry.offset, entry.why)
        return entry

    def term_at(self, index: int) -> int:
        """The term of one entry, or of the one that the snapshot was made at."""
        if index == self.snapshot.index:
            return self.snapshot.term
        return self.get_entry(index).term if index else 0

    def read_snapshot(self, offset: int = 0, size: int | None = None) -> bytes:
        """The data of the snapshot, or a part of it."""
        head = self.snapshot
        stop = head.data_size if size is None else min(head.data_size, offset + size)
        if offset < 0 or (size is not None and size < 0):
            raise ValueError(f"{size} bytes from {offset} on")
        if stop <= offset:
            return b""
        file = self._disk.open(SNAPSHOT)
        try:
            if snapshot_file.decode_head(reader(file), head.data_start + head.data_size) != head:
                raise HoldfastError(
                    "the snapshot was replaced meanwhile: refresh, and read it again"
                )
            return file.read_at(head.data_start + offset, stop - offset)
        finally:
            file.close()

    def read_state(self) -> dict[str, Any]:
        """The properties in the state file of the server; empty if there is none."""
        return read_state(self._disk, STATE)

    def refresh(self) -> int:
        """See what the owner has appended, rolled back or snapshotted; return last_index."""
        if not self._follow():
            self._survey()
        return self.last_index

    def segments(self) -> list[SegmentInfo]:
        """All index files.  Those that the snapshot covers hold nothing any more: `covered`."""
        first = self._first
        return [
            SegmentInfo(
                part.name,
                self._state_of(part),
                max(part.first_index, first),
                max(part.stop_index, first) - 1,
                part.size,
                created_ms(part.head.meta),
                base_name(part.name).removesuffix(".rlog"),
            )
            for part in self._segments
        ]

    def check(self, name: str) -> Damage | None:
        """Read one index file from end to end and look at every entry."""
        part = next((part for part in self._segments if part.name == name), None)
        if part is not None and isinstance(part, Full):
            return self._broken.get(name) or self._checked(part)
        result = self._look_twice()
        known = next((damage for damage in result.all_damage() if damage.file == name), None)
        if part is None and known is None:
            raise FileNotFoundError(f"the log has no index file {name}")
        return known or (self._checked(part) if part else None)

    def _checked(self, part: Part) -> Damage | None:
        """Check one file.  ChangedError if it looks damaged and has changed since it was found."""
        damage = part.check()
        if damage is not None and self._is_shared:
            error = CorruptError(damage.file, damage.offset, damage.why)
            self._refuse_changed(part, error)
        return damage

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """The entries of a scanned batch, taken apart: term, type, request_id and data."""
        if not batch.num_rows:
            return None
        first = batch.column("index")[0].as_py()
        headers = self._segment_of(first).headers(first, first + batch.num_rows)
        return entry_columns(batch, headers)

    def facts(self) -> dict[str, str]:
        """What only a FileLog has: its capacity, its snapshot and the state of its server."""
        return facts_of(self._disk, self.snapshot, self._segments)

    def check_whole(self) -> list[Damage]:
        """What no index file alone can tell: terms across files, and the state file."""
        return whole_damage(self._disk, self._segments)

    # Looking

    def _look(self) -> Survey:
        return survey(self._disk)

    def _show(self, result: Survey) -> None:
        parts: list[Part] = []
        for number, found in enumerate(result.files):
            if isinstance(found.head, Flaw):
                continue
            if found is result.files[-1]:
                assert result.tail is not None, "judged, as its head is sound"
                file = self._disk.open(found.name)
                parts.append(self._last_part(found, found.head, result.tail, file))
            else:
                stop = min(result.files[number + 1].index, found.head.header.stop_index)
                count, shared = stop - found.index, self._is_shared
                parts.append(Full(self._disk, found, found.head, count, is_shared=shared))
        self._snapshot = result.snapshot
        self._first = result.first_index
        self._publish(tuple(parts))
        self.damage = tuple(result.damage)
        last = result.files[-1].name if result.files else ""
        self._broken = {d.file: d for d in result.damage if d.first_index and d.file != last}

    def _last_part(self, found: Found, head: rlog.Head, tail: TailState, file: File) -> Last:
        return Last(self._disk, found, head, tail, file, is_shared=self._is_shared)

    def _is_current(self, segment: Part) -> bool:
        return segment.is_unchanged()

    def _follow(self) -> bool:
        """See what is new at the end of the last file; False if more than that may have changed."""
        last = self._segments[-1] if self._segments else None
        if not isinstance(last, Last) or self.damage or not 0 < last.count < len(last.slots):
            return False
        names = self._disk.list()
        if INTENT in names or read_snapshot_head(self._disk, names) != self._snapshot:
            return False
        directory, _, name = last.name.rpartition("/")
        sizes = {n: s for n, s in self._disk.list(directory).items() if n.endswith(".rlog")}
        if next(reversed(sizes), None) != name:
            return False
        file = self._disk.open(last.name)  # anew: it may have been removed and made again
        state = judge_tail(file, last.head, sizes[name])
        is_same = np.array_equal(state.slots[: last.count], last.slots[: last.count])
        # A rollback replaces the last entry that is known here, whatever else it replaces.
        is_same = is_same and last.final_header(file) == last.known_header
        if state.flaw or state.count < last.count or not is_same:
            file.close()
            return False
        if state.count > last.count:
            file.sync()  # what a guest shows must not vanish in a power cut
        last.follow(file, state, sizes[name])
        return True

    def _state_of(self, part: Part) -> str:
        if part.name in {damage.file for damage in self.damage}:
            return "damaged"
        if isinstance(part, Last):
            return "active"
        return "covered" if part.stop_index <= self._first else "sealed"

    # Reading

    def _entry(self, index: int) -> bytes:
        part = self._recent
        if part is None or not max(self._first, part.first_index) <= index < part.stop_index:
            part = self._segment_of(index)
        try:
            return part.read(index)
        except (FileNotFoundError, CorruptError) as error:
            self._refuse_changed(part, error)
            raise

    def _doubt(self, segment: Part, index: int) -> Damage | None:
        if segment.first_index <= index and (damage := super()._doubt(segment, index)):
            return damage
        if segment.first_index <= index < segment.stop_index:
            return None
        about = next((d for d in self.damage if d.first_index <= index <= d.last_index), None)
        return about or Damage(SNAPSHOT, 0, index, index, "missing")
