"""A log kept in raft-wal segments, open for writing.  The page: docs/formats/raft_wal.md

Invariants:
1. A batch is synced before the next one is written, and before anyone sees it.
2. A segment is sealed and synced before the meta store says so; the meta store names a segment
   before its file is made, and lets go of it before its file is removed.
3. No id is ever given to two segments.
4. After any failed write the log takes no more of them until it is reopened.
"""

import logging
from collections.abc import Callable, Sequence

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import RaftEntry, decode_entry, encode_entry
from holdfast.logs.log import Bytes, Payloads, as_payloads
from holdfast.logs.raft_wal.columns import first_of
from holdfast.logs.raft_wal.directory import header_of
from holdfast.logs.raft_wal.owner import Owner, Settings
from holdfast.logs.raft_wal.segment import Tail
from holdfast.logs.raft_wal.truncation import after_head, before_tail, sealed_at
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Compaction, Retention, choose

_LOG = logging.getLogger("holdfast")
_GROUP_SIZE_MAX = 16 * 2**20
_BATCH_SIZE_MAX = 2**31


class _Batch:
    __slots__ = ("bytes", "codec", "error", "first", "last", "lengths", "payloads", "size")

    def __init__(self, payloads: Sequence[Bytes], codec: int, first: int | None = None) -> None:
        self.payloads, self.codec, self.first, self.last = payloads, codec, first, 0
        self.error: ValueError | None = None
        if not payloads:
            raise ValueError("a batch has at least one entry")
        self.lengths = lengths = list(map(len, payloads))
        self.bytes = sum(lengths)
        self.size = self.bytes + 20 * len(lengths)  # headers, padding and index at most
        if self.size > fmt.ENTRY_SIZE_MAX and max(lengths) > fmt.ENTRY_SIZE_MAX:
            raise ValueError(f"a payload of {max(lengths)} bytes; the most is {fmt.ENTRY_SIZE_MAX}")
        if self.size > _BATCH_SIZE_MAX:
            raise ValueError(f"a batch of {self.size} bytes; the most is {_BATCH_SIZE_MAX}")


class RaftWal(Owner[_Batch]):
    """The owner of a raft-wal log: locks it against Go programs too, recovers it, appends.

    An empty directory becomes an empty log.  A damaged one can be read; append raises CorruptError.

    `codec` says what payloads are: fmt.RAFT_CODEC, the default of a new log, for Raft entries as
    store_logs takes them; fmt.OPAQUE_CODEC or any number from 65536 on for whatever the caller
    means.  It is recorded in every segment, and opening a log with another is refused.  If nobody
    says, a log whose first payload is no Raft entry becomes one of opaque payloads.

    With `segment_fill_ms` segments begin at 1 MiB, and each next one is twice as large if the one
    before was full in less than half that time, half as large if it took more than twice as long;
    never above `segment_size_max`.

    >>> from holdfast.disk import OsDisk
    >>> with RaftWal(OsDisk(directory)) as wal:
    ...     wal.store_logs([RaftEntry(1, term=1, data=b"one"), RaftEntry(2, term=1, data=b"two")])
    ...     wal.get_log(2).data
    b'two'
    """

    def __init__(
        self,
        disk: Disk,
        *,
        codec: int | None = None,
        segment_size_max: int = 64 * 2**20,
        segment_fill_ms: int | None = None,
        first_index: int = 1,
        now_ms: Callable[[], int] = runtime.now_ms,
    ) -> None:
        settings = Settings(codec, segment_size_max, segment_fill_ms, first_index)
        super().__init__(disk, settings, self._commit, now_ms)

    # What raft asks of a LogStore

    def store_logs(self, entries: Sequence[RaftEntry]) -> None:
        """Add Raft entries, durably, all or none.  Their indexes go on where the log ends; an
        empty log may begin at any."""
        if not entries:
            return
        self._commits.refuse_if_unwritable()
        self._refuse_other_codec()
        first = entries[0].index
        for i, entry in enumerate(entries):
            if entry.index != first + i:
                raise ValueError(
                    f"non-monotonic log entries: index {entry.index} where {first + i} should be"
                )
        payloads = [encode_entry(entry) for entry in entries]
        self._submit(_Batch(payloads, fmt.RAFT_CODEC, first))

    def delete_range(self, first: int, last: int) -> None:
        """Remove the oldest or the newest entries, durably; both ends included.

        Nothing happens if the log has none of them.  ValueError if it would leave a hole.
        """
        self._commits.change(lambda: self._delete_range(first, last))

    @property
    def raft_first_index(self) -> int:
        """first_index as raft means it: 0 if the log is empty."""
        return self.first_index if self.first_index <= self.last_index else 0

    @property
    def raft_last_index(self) -> int:
        """last_index as raft means it: 0 if the log is empty."""
        return self.last_index if self.first_index <= self.last_index else 0

    # What raft asks of a StableStore

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set a key, or with None remove it.  Durable when this returns."""
        self._commits.change(lambda: self._meta.set(key, value))
        self._counters.stable_sets += 1

    def set_uint64(self, key: bytes, value: int) -> None:
        """Set a number.  Durable when this returns."""
        self._commits.change(lambda: self._meta.set_uint64(key, value))
        self._counters.stable_sets += 1

    # What every log can do

    def append(self, payloads: Payloads) -> int:
        """Add a batch; return its last index.  The batch is durable when this returns.

        After a crash inside append, all of the batch is there or none.  In a log of Raft entries
        each payload is one, encoded, with the index that comes next.
        """
        batch = _Batch(as_payloads(payloads), self.codec)
        if self._commits.refusal is not None or self.damage:
            self._commits.refuse_if_unwritable()
        if batch.codec == fmt.RAFT_CODEC:
            entry = decode_entry(bytes(batch.payloads[0]))
            if isinstance(entry, Flaw) and self._is_undecided:
                batch.codec = fmt.OPAQUE_CODEC
            else:
                batch.first = first_of(batch.payloads, batch.lengths)
        self._submit(batch)
        return batch.last

    def truncate_head(self, first: int) -> None:
        """Durably remove all entries before `first`, which may be one more than the last."""
        self._commits.change(lambda: self._truncate_head(first))

    def truncate_tail(self, last: int) -> None:
        """Durably remove all entries after `last`, which may be one less than the first."""
        self._commits.change(lambda: self._truncate_tail(last))

    def compact(self, limits: Retention, *, dry_run: bool = False) -> Compaction:
        """Durably remove the oldest segments that `limits` name and no replica still needs."""
        return self._commits.exclusively(lambda: self._compact(limits, dry_run=dry_run))

    def rotate(self) -> str:
        """Seal the active segment, if it holds anything, and begin a new one; return its name."""
        self._commits.change(self._rotate_by_hand)
        return self._tail.name

    def close(self) -> None:
        """Let the directory go."""
        self._commits.exclusively(self._close)

    # Writing: one thread at a time

    def _submit(self, batch: _Batch) -> None:
        self._commits.submit(batch)
        if batch.error is not None:
            raise batch.error

    def _commit(self, batches: Sequence[_Batch]) -> None:
        group: list[_Batch] = []
        size, next_index = 0, self._tail.stop_index
        for batch in batches:
            if group and size + batch.size > _GROUP_SIZE_MAX:
                self._write(group)
                self._commits.refuse_if_unwritable()  # this one may have been the last
                group, size = [], 0
            if not self._admit(batch, next_index, is_first=not group):
                continue
            group.append(batch)
            size += batch.size
            next_index = (batch.first or next_index) + len(batch.payloads)
        if group:
            self._write(group)

    def _admit(self, batch: _Batch, next_index: int, *, is_first: bool) -> bool:
        """May this batch come next?  An empty log begins where it is told to."""
        first, codec = batch.first, self._tail.meta.codec
        if batch.codec == codec and (first is None or first == next_index):
            return True
        if batch.codec != codec:
            if is_first and self._is_undecided:
                self._install((), self._new_segment(first or next_index, batch.codec))
                return True
            batch.error = ValueError(f"this log's codec is {self.codec}, not {batch.codec}")
            return False
        if is_first and first and self.first_index > self.last_index:
            self._install((), self._new_segment(first))
            return True
        batch.error = ValueError(
            f"non-monotonic log entries: tried to append index {first} after {next_index - 1}"
        )
        return False

    def _write(self, group: Sequence[_Batch]) -> None:
        """One batch of the file for all of the group: what is acknowledged together is torn
        together, so that an unsound batch with another behind it is never a torn one."""
        tail = self._tail
        payloads, lengths = group[0].payloads, group[0].lengths
        if len(group) > 1:
            payloads = [payload for batch in group for payload in batch.payloads]
            lengths = [length for batch in group for length in batch.lengths]
        try:
            encoded = _encode(tail, payloads, lengths, tail.meta.size_limit)
        except ValueError as error:  # nothing is written yet
            for batch in group:
                batch.error = error
            return
        self._file.write_at(tail.stop, encoded.data, sync=True)
        # Durable, so now visible.  Had the sync failed, readers would have seen nothing.
        last = tail.stop_index - 1
        tail.push(encoded)
        for batch in group:
            last += len(batch.payloads)
            batch.last = last
            self._counters.log_entry_bytes_written += batch.bytes
        self._counters.log_entries_written += len(payloads)
        self._counters.log_appends += len(group)
        if encoded.index_start:
            self._rotate_after_write()

    def _rotate_after_write(self) -> None:
        """The batch is durable and is acknowledged whatever happens here."""
        try:
            self._rotate()
        except (OSError, HoldfastError) as error:
            _LOG.error("%r: no new segment: %s", self._disk, error)
            self._commits.poison("beginning a new segment", error)

    def _rotate_by_hand(self) -> None:
        if self._tail.count:
            self._seal()
            self._rotate()

    def _seal(self) -> None:
        tail = self._tail
        encoded = _encode(tail, [], [], None)
        self._file.write_at(tail.stop, encoded.data, sync=True)
        tail.push(encoded)

    # Truncating

    def _delete_range(self, first: int, last: int) -> None:
        if first > last or last < self.first_index or first > self.last_index:
            return
        if first <= self.first_index:
            self._truncate_head(min(last, self.last_index) + 1)
        elif last >= self.last_index:
            self._truncate_tail(first - 1)
        else:
            raise ValueError("only suffix or prefix ranges may be deleted from log")

    def _truncate_head(self, first: int) -> None:
        if first > self.last_index + 1:
            raise ValueError(f"the log ends at {self.last_index}, before {first}")
        if first <= self.first_index:
            return
        last, gone = self.last_index, first - self.first_index
        kept = after_head(self._state.segments, first, last)
        self._install(kept, None if kept else self._new_segment(last + 1))
        self._counters.head_truncations += gone

    def _truncate_tail(self, last: int) -> None:
        if last < self.first_index - 1:
            raise ValueError(f"the log begins at {self.first_index}, after {last}")
        if last >= self.last_index:
            return
        kept, gone = before_tail(self._state.segments, last), self.last_index - last
        if kept:
            if not kept[-1].sealed:
                self._seal()
            index_start = kept[-1].index_start or self._tail.index_start
            kept = (*kept[:-1], sealed_at(kept[-1], last, index_start, self._now()))
        self._install(kept, self._new_segment(last + 1))
        self._counters.tail_truncations += gone

    def _compact(self, limits: Retention, *, dry_run: bool) -> Compaction:
        self._commits.refuse_if_unwritable()
        plan = choose(self.segments(), limits, Replicas(self._disk).list(), self._now_ms())
        if plan.removed and not dry_run:
            self._commits.guard(lambda: self._truncate_head(plan.first_index))
        return plan

    @property
    def _is_undecided(self) -> bool:
        """Nothing was ever written, and nobody has said what it will be."""
        return (
            self._settings.codec is None
            and self._state.next_segment_id == 1
            and not self._tail.stop
        )

    def _refuse_other_codec(self) -> None:
        if self.codec != fmt.RAFT_CODEC:
            raise ValueError(f"this log's codec is {self.codec}, not that of Raft entries")


def _encode(
    tail: Tail, payloads: Sequence[Bytes], lengths: list[int], size_limit: int | None
) -> fmt.Batch:
    header = b"" if tail.stop else fmt.encode_header(header_of(tail.meta))
    return fmt.encode_batch(
        payloads,
        offset=tail.stop,
        header=header,
        earlier=tail.starts,
        size_limit=size_limit,
        lengths=lengths,
    )
