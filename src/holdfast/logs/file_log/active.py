"""The active index file, the last one: judge it after a crash, follow it, append to it.

Invariant: entries, and after them a record of the slots they will get, are synced before a slot of
theirs is written, and these are synced before anything else is.  So

1. slots that a crash has torn are in that record, which is complete: they are written again;
2. without a complete record no slot was being written, and every slot counts;
3. a record whose entries did not arrive is void, and is removed.

That holds for files written here.  The original syncs entries and slots at once, without a record:
after a crash a slot may point to bytes that never arrived.  If that is visible, because they are
beyond the end of the file or zeros, those entries were not acknowledged, and are cut off.

ordered     entries and a record of their slots, sync, slots, sync: a crash leaves all of a batch,
            as far as it is in this file, or none of it, and every slot has its entry
original    entries, slots, one sync, as zmq-raft does it: half the syncs.  A crash can leave
            slots without their entries; acknowledged entries are as safe
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import numpy as np
from isal.isal_zlib import crc32

from holdfast.disk import Disk, File
from holdfast.formats import rlog, rlog_commit
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.rlog_commit import FOOTER_SIZE, Commit, encode_commit
from holdfast.formats.rlog_entry import Offsets, bad_entries
from holdfast.formats.rlog_mark import TAIL_SIZE_MAX
from holdfast.logs.file_log.directory import IndexFile
from holdfast.logs.file_log.view import Loaded, Segment, Witness, take_witness
from holdfast.logs.reader import LookAgainError

SyncMode = Literal["ordered", "original"]

_SOUND = Flaw(0, "")
_CAPACITY_MAX = 2**20  # the indexes of one directory; the original finds no file beyond them


@dataclass(slots=True)
class ActiveState:
    """What the active file holds."""

    slots: rlog.Slots  # all of them, in an array of our own
    count: int  # entries that count
    size: int  # of the file, without a record at its end
    redo: Commit | None = None  # whose slots must be written again
    torn: Flaw | None = None  # slots after `count` that point to nothing
    half: Flaw | None = None  # bytes after the last entry, of a batch that was not finished
    sound: int = 0  # entries that can be read; fewer than `count` only if ...
    flaw: Flaw | None = None  # ... there is damage that no crash leaves

    @property
    def stop(self) -> int:
        """Where the last entry ends, in bytes after the first one begins."""
        return int(self.slots[self.count - 1]) if self.count else 0

    @property
    def final_count(self) -> int:
        """The entries that count once the slots of `redo` are written."""
        return self.redo.first_slot + len(self.redo.ends) if self.redo else self.count


class Active(Segment):
    """The file that takes entries.  `count` grows last: readers see only durable entries.

    `out` is the same file, open for writing; None if it is shared or damaged.
    """

    state = "active"

    def __init__(
        self,
        disk: Disk,
        found: IndexFile,
        head: rlog.Head,
        state: ActiveState,
        out: File | None = None,
        *,
        floor: int = 1,
        sync_mode: SyncMode | None = None,
        mark: Mark | Flaw | None = None,
    ) -> None:
        """With `sync_mode` it belongs to the owner; a guest passes the mark that it has read."""
        super().__init__(disk, found, head, state.count, floor=floor)
        self._out, self._is_shared, self._mark = out, sync_mode is None, mark
        self.is_ordered = sync_mode == "ordered"
        self._load_state(disk.open(found.name), state)
        self.written = state.count  # durable entries; `count` of them are visible
        self._size = self._file_size = state.size  # without the record at the end, and with it
        self.tail_start = self.tail_crc = 0  # of the last bytes that were written

    @property
    def slots(self) -> rlog.Slots:
        return self._loaded.ends

    def sealed(self) -> Segment:
        """Return the same entries in a file that takes no more of them."""
        found = IndexFile(self.name, self.base, self._size, self.head)
        return Segment(self.disk, found, self.head, self.written, floor=self.floor)

    def unload(self) -> None:
        """Do nothing: the active file stays open."""

    def close(self) -> None:
        self._loaded.file.close()
        if self._out is not None:
            self._out.close()

    # A guest

    def follow(self, size: int) -> bool:
        """Show what another process has appended; False if more than that may have changed."""
        file = self.disk.open(self.name)  # anew: it may have been removed and created again
        state = judge_file(file, self.head, size)
        is_same = np.array_equal(state.slots[: self.count], self.slots[: self.count])
        is_same = is_same and self._is_same(file, self._loaded.witness)
        if state.flaw or state.count < self.count or not is_same:
            file.close()
            return False
        if state.count > self.count:
            file.sync()  # entries that a guest has shown must survive a power cut
        try:
            self._load_state(file, state)  # the old file closes when its last reader ends
        except LookAgainError:
            file.close()
            return False
        self.size = size
        return True

    def _load_state(self, file: File, state: ActiveState) -> None:
        sound = state.sound if state.flaw else len(state.slots)
        witness = self._take_witness(file, state) if self._is_shared else None
        loaded = Loaded(file, state.slots, sound, state.flaw or _SOUND, witness)
        self._open = self._loaded = loaded
        self.count = state.count  # last, so that readers find the slots of all

    def _take_witness(self, file: File, state: ActiveState) -> Witness | None:
        witness = take_witness(file, self.head, state.count, self._mark)
        known = rlog.encode_slots(state.slots[: state.count])
        if file.read_at(rlog.TABLE_START, len(known)) != known:
            raise LookAgainError  # a rollback came between the slots and the witness
        return witness

    # The owner

    @property
    def has_spare(self) -> bool:
        return self._size > self.head.data_start + self.stop

    @property
    def stop(self) -> int:
        """Where the last written entry ends, in bytes after the first one begins."""
        return self.slots.item(self.written - 1) if self.written else 0

    def room_for(self, ends: Offsets, size_max: int) -> int:
        """Count the entries that fit into this file; the first begins at 0, they end at `ends`."""
        fit = int(np.searchsorted(ends, size_max - self.stop, "right"))
        if not fit and not self.written and int(ends[0]) <= rlog.DATA_SIZE_MAX:
            fit = 1  # of any size: no file has more room for it
        return min(fit, len(self.slots) - self.written)

    def write(self, data: bytes, ends: rlog.Slots) -> None:
        """Write entries and their slots durably; `show` makes them visible."""
        assert self._out is not None
        first, stop = self.written, self.stop
        begin = self.head.data_start + stop
        end = begin + len(data)
        data_crc32 = crc32(data)
        if self.is_ordered:
            self._write_ahead(begin, data, encode_commit(first, stop, data_crc32, ends))
        else:
            self._out.write_at(begin, data)
        self._size = max(self._size, end)
        self._file_size = max(self._file_size, end)
        self._clear_dirty(first + len(ends))
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * first
        self._out.write_at(offset, rlog.encode_slots(ends), sync=self.is_ordered)
        if not self.is_ordered:
            self._out.sync()
        self.slots[first : first + len(ends)] = ends
        self.written += len(ends)
        self.tail_start, self.tail_crc = stop, data_crc32
        if len(data) > TAIL_SIZE_MAX:
            self.tail_start = stop + len(data) - TAIL_SIZE_MAX
            self.tail_crc = crc32(memoryview(data)[-TAIL_SIZE_MAX:])

    def show(self) -> None:
        """Make all written entries visible."""
        self.size = max(self.size, self.head.data_start + self.stop)
        self.count = self.written

    def finish(self) -> None:
        """Remove the record at the end, durably: the file is then as the original leaves it."""
        if self._out is not None and self._file_size > self._size:
            self._out.resize(self._size)
            self._out.sync()
            self._file_size = self._size

    def _write_ahead(self, begin: int, data: bytes, record: bytes) -> None:
        """Write and sync entries and their record, which ends where the file ends."""
        assert self._out is not None
        end = begin + len(data)
        if end >= self._size and end + len(record) >= self._file_size:
            self._out.write_at(begin, data + record, sync=True)
            self._file_size = end + len(record)
            return
        at = max(end, self._size, self._file_size - len(record))  # stale bytes before it stay
        self._out.write_at(begin, data)
        self._out.write_at(at, record)
        self._out.sync()
        self._file_size = at + len(record)

    def _clear_dirty(self, slot: int) -> None:
        """Clear slots that a torn rollback has left: they would become visible with the new."""
        run = rlog.dirty_run(self.slots, slot)
        if run:
            assert self._out is not None
            offset = rlog.TABLE_START + rlog.SLOT_SIZE * slot
            self._out.write_at(offset, bytes(rlog.SLOT_SIZE * run), sync=True)
            self.slots[slot : slot + run] = 0


def check_options(
    capacity: int, segment_size_max: int, first_index: int, sync_mode: SyncMode
) -> None:
    """Raise ValueError for options that no index file can have."""
    if not 0 < capacity <= _CAPACITY_MAX or capacity & (capacity - 1):
        raise ValueError(f"capacity {capacity}; expected a power of two up to {_CAPACITY_MAX}")
    if segment_size_max < 1:
        raise ValueError(f"segment_size_max {segment_size_max}; expected at least 1 byte")
    if not 0 < first_index <= rlog.INDEX_MAX:
        raise ValueError(f"first_index {first_index}; expected 1 to {rlog.INDEX_MAX}")
    if sync_mode not in ("ordered", "original"):
        raise ValueError(f"sync_mode {sync_mode!r}; expected 'ordered' or 'original'")


def empty_state(header: rlog.Header, size: int) -> ActiveState:
    return ActiveState(np.zeros(header.capacity, np.uint32), 0, size)


def judge(disk: Disk, found: IndexFile, head: rlog.Head) -> ActiveState:
    """Judge slots, record and the last entry of a file; change nothing."""
    with closing(disk.open(found.name)) as file:
        return judge_file(file, head, found.size)


def judge_file(file: File, head: rlog.Head, size: int) -> ActiveState:
    table = file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE * head.header.capacity)
    slots = rlog.decode_slots(table).copy()
    used = rlog.count_used(slots)
    state = ActiveState(slots, used, size)
    commit = read_commit(file, head, size)
    if commit is not None and _is_about(commit, slots, used):
        here = slice(commit.first_slot, commit.first_slot + len(commit.ends))
        if np.array_equal(slots[here], commit.ends):
            state.size = size - commit.size
        elif rlog_commit.is_data_of(commit, _data_of(file, head, commit)):
            state.size, state.redo, state.count = size - commit.size, commit, commit.first_slot
        elif state.stop <= size - commit.size - head.data_start:
            state.size = size - commit.size  # or the next write might complete its entries
            if used == commit.first_slot:  # else others have written since
                state.half = Flaw(head.data_start + state.stop, "a batch of which a part arrived")
    _judge_entries(state, file, head)
    return state


def read_commit(file: File, head: rlog.Head, size: int) -> Commit | None:
    """Return the record at the end of a file, if it is complete."""
    if size < head.data_start + rlog_commit.record_size(1):
        return None
    footer = file.read_at(size - FOOTER_SIZE, FOOTER_SIZE)
    length = rlog_commit.size_in_footer(footer, head.header.capacity)
    if not length or size - length < head.data_start:
        return None
    commit = rlog_commit.decode_commit(file.read_at(size - length, length))
    if commit is None or head.data_start + commit.stop > size - length:
        return None
    return commit


def _is_about(commit: Commit, slots: rlog.Slots, used: int) -> bool:
    """Return whether the record continues the entries of the file."""
    first = commit.first_slot
    if first > used or first + len(commit.ends) > len(slots):
        return False
    return commit.start == (int(slots[first - 1]) if first else 0)


def _data_of(file: File, head: rlog.Head, commit: Commit) -> bytes:
    return file.read_at(head.data_start + commit.start, commit.stop - commit.start)


def _judge_entries(state: ActiveState, file: File, head: rlog.Head) -> None:
    ends = state.slots[: state.count]
    state.sound = rlog.count_ordered(ends)
    if state.sound < state.count:
        at = rlog.TABLE_START + rlog.SLOT_SIZE * state.sound
        state.flaw = Flaw(at, f"slots {state.sound} and {state.sound + 1} do not increase")
    there = int(np.searchsorted(ends[: state.sound], state.size - head.data_start, "right"))
    if state.flaw:
        state.sound = there
        return
    if there < state.count:
        why = f"an offset points past the data, which ends at byte {state.size}"
        state.torn = Flaw(rlog.TABLE_START + rlog.SLOT_SIZE * there, why)
    elif there and _count_bad(file, head, ends[-1:], int(ends[-2]) if there > 1 else 0):
        there -= _count_bad(file, head, ends, 0)
        why = "an offset points to bytes that are not an entry"
        state.torn = Flaw(rlog.TABLE_START + rlog.SLOT_SIZE * there, why)
    state.count = state.sound = there


def _count_bad(file: File, head: rlog.Head, ends: rlog.Slots, start: int) -> int:
    """Count the last of the entries with these ends that cannot be entries."""
    bounds = np.concatenate([[start], ends]).astype(np.int64)
    data = memoryview(file.read_at(head.data_start + start, int(bounds[-1]) - start))
    bad = bad_entries(data, bounds - start)
    sound = np.flatnonzero(~bad)
    return len(bad) - (int(sound[-1]) + 1 if len(sound) else 0)
