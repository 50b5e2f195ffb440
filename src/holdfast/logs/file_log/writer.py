"""The last index file, open for writing: entries become durable, then the slots that show them.

ordered     entries and a record of their slots, sync, slots, sync: a crash leaves a batch, as
            far as it is in this file, whole or not at all, and every slot has its entry
original    entries, slots, one sync, as zmq-raft does it: half the syncs.  A crash can leave
            slots without their entries; what was acknowledged is as safe
"""

from typing import Literal

import numpy as np

from holdfast.disk import Disk
from holdfast.formats import rlog
from holdfast.formats.rlog_commit import encode_commit
from holdfast.logs.file_log.tail import TailState

SyncMode = Literal["ordered", "original"]


class Writer:
    """Where the next entries go.  It shows nothing: that is for the log, once all is durable."""

    def __init__(
        self, disk: Disk, name: str, head: rlog.Head, state: TailState, sync_mode: SyncMode
    ) -> None:
        self.name, self.head, self.slots, self.count = name, head, state.slots.copy(), state.count
        self._size = self._file_size = state.size  # without, and with a record of ours behind it
        self._is_ordered = sync_mode == "ordered"
        self._file = disk.open(name, writable=True)

    @property
    def stop(self) -> int:
        """Where the last entry ends, counted as ends are."""
        return int(self.slots[self.count - 1]) if self.count else 0

    @property
    def size(self) -> int:
        return self._size

    def room_for(self, ends: "np.ndarray[tuple[int], np.dtype[np.int64]]", size_max: int) -> int:
        """How many of these entries, the first of which begins at 0, this file takes."""
        fit = int(np.searchsorted(ends, size_max - self.stop, "right"))
        if not fit and not self.count and int(ends[0]) <= rlog.DATA_SIZE_MAX:
            fit = 1  # however large: no file has more room for it
        return min(fit, len(self.slots) - self.count)

    def write(self, data: bytes, ends: rlog.Slots) -> None:
        """Make entries durable, and their slots; `ends` are as they will stand there."""
        first, begin = self.count, self.head.data_start + self.stop
        end = begin + len(data)
        if self._is_ordered:
            self._write_ahead(begin, data, encode_commit(first, self.stop, data, ends))
        else:
            self._file.write_at(begin, data)
        self._size = max(self._size, end)
        self._file_size = max(self._file_size, end)
        self._clear_dirty(first + len(ends))
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * first
        self._file.write_at(offset, rlog.encode_slots(ends), sync=self._is_ordered)
        if not self._is_ordered:
            self._file.sync()
        self.slots[first : first + len(ends)] = ends
        self.count += len(ends)

    def finish(self) -> None:
        """Leave the file as the original would, durably."""
        if self._file_size > self._size:
            self._file.resize(self._size)
            self._file.sync()
            self._file_size = self._size

    def close(self) -> None:
        self._file.close()

    def _write_ahead(self, begin: int, data: bytes, record: bytes) -> None:
        """The record must end where the file ends.  What is stale behind the entries stays."""
        end = begin + len(data)
        if end >= self._size and end + len(record) >= self._file_size:
            self._file.write_at(begin, data + record, sync=True)
            self._file_size = end + len(record)
            return
        at = max(end, self._size, self._file_size - len(record))
        self._file.write_at(begin, data)
        self._file.write_at(at, record)
        self._file.sync()
        self._file_size = at + len(record)

    def _clear_dirty(self, slot: int) -> None:
        """What a torn rollback has left behind these slots would show with them."""
        run = rlog.dirty_run(self.slots, slot)
        if run:
            offset = rlog.TABLE_START + rlog.SLOT_SIZE * slot
            self._file.write_at(offset, bytes(rlog.SLOT_SIZE * run), sync=True)
            self.slots[slot : slot + run] = 0
