"""A log kept in Shanghai WAL segments, open for writing.  The page: docs/formats/shanghai.md

Invariants:
1. Every segment but the last is complete and synced before its successor exists.
2. An entry is visible only after the sync that made it durable.
3. Entries have the LSNs first_lsn, first_lsn + 1, ... in order; no LSN is used twice.
4. After any failed write the log takes no more of them until it is reopened.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.formats import shanghai as fmt
from holdfast.logs.commits import CLOSED, Commits
from holdfast.logs.log import Payloads, arrow_slices, as_payloads
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Compaction, Retention, choose
from holdfast.logs.shanghai.directory import Mark, segment_name, write_mark
from holdfast.logs.shanghai.guest import ShanghaiGuest
from holdfast.logs.shanghai.recovery import recover
from holdfast.logs.shanghai.segment import Active, Sealed

_LOG = logging.getLogger("holdfast")


class _Batch:
    __slots__ = ("data", "ends", "last_lsn")

    def __init__(self, payloads: Payloads) -> None:
        if isinstance(payloads, list | tuple):
            self.data, self.ends = fmt.encode_entries(as_payloads(payloads))
        else:
            self.data, self.ends = _encode_arrow(payloads)
        self.last_lsn = 0


def _encode_arrow(payloads: Payloads) -> tuple[bytes | bytearray, "array[int]"]:
    import pyarrow as pa

    if isinstance(payloads, pa.ChunkedArray):
        payloads = payloads.combine_chunks()
    if isinstance(payloads, pa.Array) and len(payloads):
        return fmt.encode_slices(*arrow_slices(payloads))
    return fmt.encode_entries(as_payloads(payloads))


class ShanghaiLog(ShanghaiGuest):
    """The owner of a Shanghai log: locks the directory, recovers it, appends.

    An empty directory becomes an empty log.  A damaged one can be read; append raises CorruptError.

    >>> from holdfast.disk import OsDisk
    >>> with ShanghaiLog(OsDisk(directory)) as log:
    ...     log.append([b"one", b"two"]), log.read(2)
    (2, b'two')
    """

    _is_shared = False

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size_max: int = 64 * 2**20,
        segment_age_max_ms: int | None = None,
        first_index: int = 1,
        now_ms: Callable[[], int] = runtime.now_ms,
        new_id: Callable[[], UUID] = runtime.new_id,
    ) -> None:
        if segment_size_max <= fmt.HEADER_SIZE or first_index < 1:
            raise ValueError(f"a segment takes more than {fmt.HEADER_SIZE} bytes; LSNs begin at 1")
        self._segment_size_max, self._segment_age_max_ms = segment_size_max, segment_age_max_ms
        self._first_index, self._now_ms, self._new_id = first_index, now_ms, new_id
        self._mark: Mark | None = None
        self.mended: tuple[str, ...] = ()  # what recovery did
        self._lock = disk.lock()
        try:
            self._commits = Commits(self._commit, lambda: self.damage, self._lock)
            super().__init__(disk)
        except BaseException:
            self._lock.release()
            raise

    def append(self, payloads: Payloads) -> int:
        """Add a batch; return its last LSN.  The batch is durable when this returns.

        After a crash inside append, a prefix of the batch may be there.
        """
        batch = _Batch(payloads)
        self._commits.submit(batch)
        return batch.last_lsn

    def rotate(self) -> str:
        """Seal the active segment, if it holds anything, and begin a new one; return its name."""
        return self._commits.change(self._rotate_by_hand)

    def compact(self, limits: Retention, *, dry_run: bool = False) -> Compaction:
        """Durably remove the oldest segments that `limits` name and no replica still needs."""
        return self._commits.exclusively(lambda: self._compact(limits, dry_run=dry_run))

    def refresh(self) -> int:
        """An owner has nothing to catch up with."""
        return self.last_index

    def close(self) -> None:
        """Leave a mark of how far the log is complete, and let the directory go."""
        self._commits.exclusively(self._close)

    # Opening and closing

    def _survey(self) -> None:
        state = recover(self._disk, self._new_header, self._first_index)
        self._show(state)
        self.mended = tuple(state.mended)
        for line in self.mended:
            _LOG.warning("recovered %r: %s", self._disk, line)
        for damage in self.damage:
            _LOG.error("damage in %r: %s", self._disk, damage)
        if not self.damage:
            self._number = state.found[-1].number
            self._file = self._disk.open(self._tail.name, writable=True)
            self._mark = state.mark
            self._leave_mark()

    def _close(self) -> None:
        try:
            if self._commits.may_finish and not self.damage:
                self._leave_mark()
        finally:
            self._commits.refusal = CLOSED
            if hasattr(self, "_file"):
                self._file.close()
            super().close()
            self._lock.release()

    def _leave_mark(self) -> None:
        tail = self._tail
        mark = Mark(tail.name, str(tail.header.id), tail.size, tail.stop_index - 1)
        if mark == self._mark:
            return
        try:
            write_mark(self._disk, mark)
            self._mark = mark
        except OSError as error:  # without it the log is as durable, only less sure what was torn
            _LOG.warning("%r: no mark left: %s", self._disk, error)

    # Writing: one thread at a time

    @property
    def _tail(self) -> Active:
        tail = self._segments[-1]
        assert isinstance(tail, Active)
        return tail

    def _commit(self, batches: Sequence[_Batch]) -> None:
        group: list[_Batch] = []
        size = self._tail.size
        for batch in batches:
            if self._is_due(size):
                self._write(group)
                self._rotate()
                group, size = [], self._tail.size
            group.append(batch)
            size += len(batch.data)
        self._write(group)

    def _is_due(self, size: int) -> bool:
        if size >= self._segment_size_max:
            return True
        age_max_ms = self._segment_age_max_ms
        if age_max_ms is None or size == fmt.HEADER_SIZE:
            return False
        return self._now_ms() - self._tail.header.created_ms >= age_max_ms

    def _write(self, group: Sequence[_Batch]) -> None:
        if not group:
            return
        tail = self._tail
        data = group[0].data if len(group) == 1 else b"".join([batch.data for batch in group])
        self._file.write_at(tail.size, data, sync=True)
        # Durable, so now visible.  Had the sync failed, readers would have seen nothing.
        bounds = tail.bounds
        for batch in group:
            if len(batch.ends) == 1:
                bounds.append(bounds[-1] + batch.ends[0])
            else:
                bounds.frombytes((np.frombuffer(batch.ends, np.int64) + bounds[-1]).tobytes())
            batch.last_lsn = tail.stop_index - 1

    def _rotate_by_hand(self) -> str:
        if self._tail.size > fmt.HEADER_SIZE:
            self._rotate()
        return self._tail.name

    def _rotate(self) -> None:
        """First the successor, whole and durable: its first LSN vouches for the seal."""
        old, stop_lsn = self._tail, self._tail.stop_index
        name, header = segment_name(self._number + 1), self._new_header(stop_lsn)
        self._disk.create(name, fmt.encode_header(header))
        self._file.write_at(fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(stop_lsn - 1), sync=True)
        self._file.close()
        self._file = self._disk.open(name, writable=True)
        self._number += 1
        sealed_header = replace(old.header, last_lsn=stop_lsn - 1)
        sealed = Sealed(self._disk, old.name, old.size, sealed_header, stop_lsn)
        active = Active(self._disk.open(name), name, header, array("q", [fmt.HEADER_SIZE]))
        self._publish((*self._segments[:-1], sealed, active))

    def _compact(self, limits: Retention, *, dry_run: bool) -> Compaction:
        self._commits.refuse_if_unwritable()
        plan = choose(self.segments(), limits, Replicas(self._disk).list(), self._now_ms())
        for segment in () if dry_run else plan.removed:
            self._publish(self._segments[1:])  # oldest first, so that a crash leaves no gap
            self._disk.remove(segment.name)
        return plan

    def _new_header(self, first_lsn: int) -> fmt.Header:
        return fmt.Header(self._new_id(), self._now_ms(), first_lsn)
