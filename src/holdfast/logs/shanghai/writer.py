"""A log kept in Shanghai WAL segments, open for writing.  The page: docs/formats/shanghai.md

Invariants:
1. Every segment but the last is complete and synced before its successor exists.
2. An entry is visible only after the sync that made it durable.
3. Entries have the LSNs first_lsn, first_lsn + 1, ... in order; no LSN is used twice.
4. After any failed write the log takes no more of them until it is reopened.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from holdfast.disk import Disk, Lock
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import Payloads, arrow_slices, as_payloads, check_first_index, to_arrow
from holdfast.logs.mark import MarkFile
from holdfast.logs.reader import Reader
from holdfast.logs.retention import Trim
from holdfast.logs.shanghai.directory import segment_name, segment_number
from holdfast.logs.shanghai.marks import NO_WORD, mark_of, remember_mark
from holdfast.logs.shanghai.reader import ShanghaiSource
from holdfast.logs.shanghai.recovery import State, recover
from holdfast.logs.shanghai.view import Active, Sealed
from holdfast.logs.writer import Writer
from holdfast.runtime import Runtime


class _Batch:
    __slots__ = ("data", "ends", "entries", "error", "last", "size", "tail_crc")

    def __init__(self, payloads: Payloads) -> None:
        arrow = to_arrow(payloads)
        self.data: bytes | bytearray
        if arrow is not None and len(arrow):
            self.data, self.ends = fmt.encode_slices(*arrow_slices(arrow))
        else:
            self.data, self.ends = fmt.encode_entries(as_payloads(payloads))
        self.entries = len(self.ends)
        self.size = len(self.data) - fmt.ENTRY_HEADER_SIZE * self.entries
        self.last = 0
        start = self.ends[-2] if self.entries > 1 else 0
        self.tail_crc = int.from_bytes(self.data[start + 4 : start + 8], "big")
        self.error: Exception | None = None


class ShanghaiLog(Writer[_Batch]):
    """The owner of a Shanghai log: locks the directory, recovers it, appends.

    An empty directory becomes an empty log.  A damaged one can be read; append raises CorruptError.
    After a crash inside append, a prefix of the batch may be there.

    >>> from holdfast.disk import OsDisk
    >>> with ShanghaiLog(OsDisk(directory)) as log:
    ...     log.append([b"one", b"two"]), log.read(2)
    (2, b'two')
    """

    def __init__(
        self,
        disk: Disk,
        acquire: Callable[[], Lock] | None = None,
        *,
        segment_size_max: int = 64 * 2**20,
        segment_age_max_ms: int | None = None,
        first_index: int = 1,
        runtime: Runtime | None = None,
    ) -> None:
        check_first_index(first_index)
        if segment_size_max <= fmt.HEADER_SIZE:
            raise ValueError(
                f"segment_size_max is {segment_size_max}; expected more than {fmt.HEADER_SIZE}"
            )
        runtime = runtime or Runtime()
        self._segment_size_max, self._segment_age_max_ms = segment_size_max, segment_age_max_ms
        lock = (acquire or disk.lock)()
        try:
            state = recover(disk, lambda lsn: _new_header(runtime, lsn), first_index)
            source = ShanghaiSource(disk)
            reader: Reader[Sealed | Active, State] = Reader(source, view=source.show(state))
            super().__init__(reader, lock, runtime, state.recovered, state.full)
            with self._opening():
                if reader.handle.refusal is None:
                    self._file = disk.open(self._active.name, writable=True)
                    self._mark = MarkFile(
                        disk,
                        mark_of(reader.view.segments),
                        state.recalled.stored,
                        lock=lock,
                        handle=reader.handle,
                        runtime=runtime,
                    )
                    remember_mark(disk)
        except BaseException:
            lock.release()
            raise

    @property
    def _active(self) -> Active:
        active = self.reader.view.segments[-1]
        assert isinstance(active, Active)
        return active

    def _encode(self, payloads: Payloads) -> _Batch:
        return _Batch(payloads)

    def _write(self, batches: Sequence[_Batch]) -> None:
        active = self._active
        group: list[_Batch] = []
        size = active.size
        for batch in batches:
            if self._is_due(active, size):
                self._write_to(active, group)
                self._begin_segment()
                group, active = [], self._active
                size = active.size
            group.append(batch)
            size += len(batch.data)
        self._write_to(active, group)

    def _is_due(self, active: Active, size: int) -> bool:
        if size >= self._segment_size_max:
            return True
        age_max_ms = self._segment_age_max_ms
        if age_max_ms is None or size == fmt.HEADER_SIZE:
            return False
        return self.runtime.now_ms() - active.header.created_ms >= age_max_ms

    def _write_to(self, active: Active, group: Sequence[_Batch]) -> None:
        if not group:
            return
        data = group[0].data if len(group) == 1 else b"".join([batch.data for batch in group])
        self._file.write_at(active.size, data, sync=True)
        # Durable, so now visible.  Had the sync failed, readers would have seen nothing.
        bounds = active.bounds
        for batch in group:
            if batch.entries == 1:
                bounds.append(bounds[-1] + batch.ends[0])
            else:
                bounds.frombytes((np.frombuffer(batch.ends, np.int64) + bounds[-1]).tobytes())
            batch.last = active.stop_index - 1
        self._mark.advance(bounds[-1], batch.last, batch.tail_crc, NO_WORD)

    def _rotate(self) -> str:
        if self._active.size > fmt.HEADER_SIZE:
            self._begin_segment()
        return self._active.name

    def _begin_segment(self) -> None:
        """First the successor, whole and durable: its first LSN vouches for the seal."""
        old, stop_lsn = self._active, self._active.stop_index
        name = segment_name(segment_number(old.name) + 1)
        header = _new_header(self.runtime, stop_lsn)
        self.disk.create(name, fmt.encode_header(header))
        self._file.write_at(fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(stop_lsn - 1), sync=True)
        self._file.close()
        self._file = self.disk.open(name, writable=True)
        sealed_header = replace(old.header, last_lsn=stop_lsn - 1)
        sealed = Sealed(self.disk, old.name, old.size, sealed_header, stop_lsn)
        active = Active(self.disk.open(name), name, header, array("q", [fmt.HEADER_SIZE]))
        self.reader.publish_segments((*self.reader.view.segments[:-1], sealed, active))
        self.reader.counters.segment_rotations += 1
        self._mark.save(mark_of(self.reader.view.segments))

    def _remove(self, trim: Trim) -> None:
        self._mark.lower(mark_of(self.reader.view.segments[len(trim.removed) :]))
        super()._remove(trim)

    def _finish(self) -> None:
        self._mark.finish()

    def _release(self) -> None:
        for file in (getattr(self, "_mark", None), getattr(self, "_file", None)):
            if file is not None:
                file.close()


def _new_header(runtime: Runtime, first_lsn: int) -> fmt.Header:
    return fmt.Header(runtime.new_id(), runtime.now_ms(), first_lsn)
