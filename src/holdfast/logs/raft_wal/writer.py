"""A log kept in raft-wal segments, open for writing.  The page: docs/formats/raft_wal.md

Invariants:
1. A batch is synced before the next one is written, and before it is visible.
2. A segment is sealed and synced before the meta store says so; the meta store names a segment
   before its file is created, and drops its name before its file is removed.
3. No two segments ever have the same id.
4. After any failed write the log takes no more of them until it is reopened.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.disk import Disk, Lock
from holdfast.errors import HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.mark import Mark
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.logs.log import FIRST_INDEX_MAX, INDEX_MAX, Bytes, Damage, Payloads, as_payloads
from holdfast.logs.mark import MarkFile, recall_mark, remember_mark
from holdfast.logs.raft_wal.changes import Segments
from holdfast.logs.raft_wal.marks import mark_of, recall, tail_crc, word_of
from holdfast.logs.raft_wal.meta_store import MetaStore, RaftOwnership, uint64_of
from holdfast.logs.raft_wal.raft_entries import first_of
from holdfast.logs.raft_wal.reader import RaftWalReader, view_of
from holdfast.logs.raft_wal.segment_list import SegmentList, Settings
from holdfast.logs.retention import Trim
from holdfast.logs.writer import Writer
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("holdfast")
_GROUP_SIZE_MAX = 16 * 2**20
_BATCH_SIZE_MAX = 2**31


class _Batch:
    __slots__ = ("entries", "error", "first", "last", "lengths", "payloads", "room", "size")

    def __init__(self, payloads: Sequence[Bytes], first: int | None = None) -> None:
        self.payloads, self.first, self.last = payloads, first, 0
        self.error: Exception | None = None
        if not payloads:
            raise ValueError("a batch has at least one entry")
        self.lengths = lengths = list(map(len, payloads))
        self.entries, self.size = len(lengths), sum(lengths)
        if first is not None:
            self.place(first)
        self.room = self.size + 20 * len(lengths)  # headers, padding and index at most
        if self.room > fmt.ENTRY_SIZE_MAX and max(lengths) > fmt.ENTRY_SIZE_MAX:
            raise ValueError(
                f"a payload of {max(lengths)} bytes is too large: raft-wal takes at most "
                f'{fmt.ENTRY_SIZE_MAX}; create the log with format="shanghai" for larger ones'
            )
        if self.room > _BATCH_SIZE_MAX:
            raise ValueError(
                f"a batch of {self.room} bytes is too large: at most {_BATCH_SIZE_MAX}; split it"
            )

    def place(self, first: int) -> None:
        """Set the index of the first entry, for Raft entries, which hold their own."""
        if first + self.entries - 1 > INDEX_MAX:
            raise ValueError(f"entry {first + self.entries - 1}: the last index is {INDEX_MAX}")
        self.first = first


class RaftWal(Writer[_Batch]):
    """The owner of a raft-wal log: locks it against Go programs too, recovers it, appends.

    An empty directory becomes an empty log.  A damaged one can be read; append raises CorruptError.
    After a crash inside append, all of the batch is there or none.

    `codec` says what the payloads of a new log are: OPAQUE_CODEC, the default, for plain bytes;
    RAFT_CODEC for Raft entries, as store_logs takes them; any number from 65536 on for a codec of
    the caller's own.  It is recorded in every segment.  A log that holds or held entries keeps its
    codec: opening it with another raises UnsupportedError.

    The first segment takes 1 MiB.  Each later one is sized so that it fills in about
    `segment_fill_ms`, up to `segment_size_max`; with None all of them take `segment_size_max`.
    A segment that holds entries and is older than `segment_age_max_ms` is sealed before the next
    batch is written.

    >>> from holdfast.disk import OsDisk
    >>> from holdfast.logs.raft_wal import RAFT_CODEC
    >>> with RaftWal(OsDisk(directory), codec=RAFT_CODEC) as wal:
    ...     wal.store_logs([RaftEntry(1, term=1, data=b"one"), RaftEntry(2, term=1, data=b"two")])
    ...     wal.get_log(2).data
    b'two'
    """

    reader: RaftWalReader

    def __init__(
        self,
        disk: Disk,
        acquire: Callable[[], Lock] | None = None,
        *,
        codec: int | None = None,
        segment_size_max: int = 64 * 2**20,
        segment_fill_ms: int | None = 3_600_000,
        segment_age_max_ms: int | None = None,
        first_index: int = 1,
        runtime: Runtime | None = None,
    ) -> None:
        settings = Settings(
            codec, segment_size_max, segment_fill_ms, segment_age_max_ms, first_index
        )
        runtime = runtime or Runtime()
        lock = RaftOwnership(disk, acquire)
        self._meta = MetaStore(disk, lock=lock)
        try:
            self._segments = segments = SegmentList(disk, self._meta, settings, runtime)
            recalled = recall(disk, recall_mark)
            found = segments.recover(recalled)
            view = view_of(segments.all, found)
            reader = RaftWalReader(disk, meta=self._meta, view=view)
            segments.show = self._show
            super().__init__(reader, lock, runtime, found.recovered, found.full)
            with self._opening():
                if reader.handle.refusal is None:
                    self._mark = MarkFile(
                        disk,
                        self._new_mark(),
                        recalled.stored,
                        lock=lock,
                        handle=reader.handle,
                        runtime=runtime,
                    )
                    remember_mark(disk)
        except BaseException:
            self._meta.close()
            raise
        self.codec = reader.codec

    # What raft asks of a LogStore

    def store_logs(self, entries: Sequence[RaftEntry]) -> None:
        """Append Raft entries, durably, all or none.

        Their indexes come after the last one; those of an empty log may start anywhere.
        """
        if not entries:
            return
        self._check_write()
        if self.codec != fmt.RAFT_CODEC:
            raise ValueError(
                f"this log's codec is {self.codec}, not {fmt.RAFT_CODEC} (Raft entries)"
            )
        first = entries[0].index
        for i, entry in enumerate(entries):
            if entry.index != first + i:
                raise ValueError(
                    f"non-monotonic log entries: {entry.index} in place of {first + i}"
                )
        batch = _Batch([encode_entry(entry) for entry in entries], first)
        self._commits.commit(batch)
        if batch.error is not None:
            raise batch.error

    def get_log(self, index: int) -> RaftEntry:
        """Return one Raft entry, its checksum and its index verified."""
        return self.reader.get_log(index)

    def delete_range(self, first: int, last: int) -> None:
        """Remove the oldest or the newest entries, durably; both ends included.

        Does nothing if the log has none of them.  ValueError if it would leave a gap.
        HoldfastError if a registered replica needs one of the oldest.  The newest are removed in
        any case, because Raft has decided so: then a replica that has them stops.
        """

        def keeps() -> tuple[int, int]:
            return last + 1 if first <= self.first_index <= last else 0, self.last_index

        self._change(lambda: self._delete_range(first, last), keeps)

    @property
    def raft_first_index(self) -> int:
        """first_index as raft defines it: 0 if the log is empty."""
        return self.first_index if self.first_index <= self.last_index else 0

    @property
    def raft_last_index(self) -> int:
        """last_index as raft defines it: 0 if the log is empty."""
        return self.last_index if self.first_index <= self.last_index else 0

    # What raft asks of a StableStore

    @property
    def stable(self) -> dict[bytes, bytes]:
        """All keys of the stable store."""
        return self.reader.stable

    def get(self, key: bytes) -> bytes | None:
        """Return a value of the stable store; None if it has no such key."""
        return self.reader.get(key)

    def get_uint64(self, key: bytes) -> int:
        """Return a number of the stable store; 0 if it has no such key."""
        return self.reader.get_uint64(key)

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set a key, or with None remove it.  Durable when this returns."""
        self._change(lambda: self._set(key, value))
        self.reader.counters.stable_sets += 1

    def set_uint64(self, key: bytes, value: int) -> None:
        """Set a number.  Durable when this returns."""
        self._change(lambda: self._set(key, uint64_of(value)))
        self.reader.counters.stable_sets += 1

    # What other logs do not have

    def facts(self) -> dict[str, str]:
        """Return what only a raft-wal log has: its codec and its stable keys."""
        return self.reader.facts()

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """Return the fields of the Raft entries of a scanned batch; None for other payloads."""
        return self.reader.decode_columns(batch)

    def check_whole(self) -> list[Damage]:
        """Check the sums of the verifier's checkpoints, which span many segments."""
        return self.reader.check_whole()

    def truncate_head(self, first: int) -> None:
        """Durably remove all entries before `first`, which may be one more than the last.

        HoldfastError if a registered replica needs one of them.
        """
        self._change(lambda: self._truncate_head(first), lambda: (first, self.last_index))

    def truncate_tail(self, last: int) -> None:
        """Durably remove all entries after `last`, which may be one less than the first.

        HoldfastError if a registered replica has one of them.
        """
        self._change(lambda: self._truncate_tail(last), lambda: (self.first_index, last))

    # Writing: one thread at a time

    def _encode(self, payloads: Payloads) -> _Batch:
        batch = _Batch(as_payloads(payloads))
        if self.codec == fmt.RAFT_CODEC:
            batch.place(first_of(batch.payloads, batch.lengths))
        return batch

    def _write(self, batches: Sequence[_Batch]) -> None:
        segments = self._segments
        if segments.is_old:
            self._rotate()
        group: list[_Batch] = []
        room, next_index = 0, segments.active.stop_index
        for batch in batches:
            if group and room + batch.room > _GROUP_SIZE_MAX:
                self._write_group(group)
                self._check_write()  # a failed rotation has poisoned the log
                group, room = [], 0
            if not self._admit(batch, next_index, is_first=not group):
                continue
            group.append(batch)
            room += batch.room
            next_index = (batch.first or next_index) + batch.entries
        if group:
            self._write_group(group)

    def _admit(self, batch: _Batch, next_index: int, *, is_first: bool) -> bool:
        """Return whether this batch may come next.  An empty log may start at any index."""
        first = batch.first
        if first is None or first == next_index:
            return True
        if is_first and 0 < first <= FIRST_INDEX_MAX and self.first_index > self.last_index:
            self._segments.install((), first)
            return True
        why = f"non-monotonic log entries: tried to append index {first} after {next_index - 1}"
        if first > FIRST_INDEX_MAX:
            why += f"; a log may start at 1 to {FIRST_INDEX_MAX}"
        batch.error = ValueError(why)
        return False

    def _write_group(self, group: Sequence[_Batch]) -> None:
        """Write the group as one batch of the file.

        What is acknowledged together is torn together, so a bad batch that another follows is
        never a torn one.
        """
        segments = self._segments
        active = segments.active
        payloads, lengths = group[0].payloads, group[0].lengths
        if len(group) > 1:
            payloads = [payload for batch in group for payload in batch.payloads]
            lengths = [length for batch in group for length in batch.lengths]
        try:
            encoded = active.encode(payloads, lengths, active.meta.size_limit)
        except ValueError as error:  # nothing is written yet
            for batch in group:
                batch.error = error
            return
        segments.file.write_at(active.stop, encoded.data, sync=True)
        # Durable, so now visible.  Had the sync failed, readers would have seen nothing.
        last = active.stop_index - 1
        active.push(encoded)
        for batch in group:
            last += batch.entries
            batch.last = last
        crc = int.from_bytes(encoded.data[-4:], "little")
        self._mark.advance(active.stop, last, crc, self._word)
        if encoded.index_start:
            self._rotate_after_write()

    def _rotate_after_write(self) -> None:
        """Start the next segment.  The batch is durable: it is acknowledged even if this fails."""
        try:
            self._start_segment()
        except (OSError, HoldfastError) as error:
            _LOG.error("%r: cannot create the next segment: %s", self.disk, error)
            self._handle.poison("creating a segment", error)

    def _rotate(self) -> str:
        if self._segments.active.count:
            self._segments.seal()
            self._start_segment()
        return self._segments.active.name

    def _start_segment(self) -> None:
        self._segments.rotate()
        self.reader.counters.segment_rotations += 1

    # The mark

    def _show(self, segments: Segments) -> None:
        """Show these segments, which the meta store names and whose files are there."""
        self.reader.publish_segments(segments)
        self._mark.save(self._new_mark())

    def _new_mark(self) -> Mark:
        active, txid = self._segments.active, self._meta.txid
        self._word = word_of(txid)
        crc = tail_crc(active.file, active.stop)
        before = self._mark.mark if hasattr(self, "_mark") else None
        return mark_of(self._segments.metas, active.stop, active.count, crc, txid, before)

    def _set(self, key: bytes, value: bytes | None) -> None:
        self._meta.set(key, value)
        mark, self._word = self._mark.mark, word_of(self._meta.txid)
        self._mark.advance(mark.size, mark.last_index, mark.tail_crc, self._word)

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
        if first > self.first_index:
            removed = first - self.first_index
            self._segments.truncate_head(first)
            self.reader.counters.head_truncations += removed

    def _truncate_tail(self, last: int) -> None:
        if last < self.first_index - 1:
            raise ValueError(f"the log begins at {self.first_index}, after {last}")
        if last < self.last_index:
            removed = self.last_index - last
            self._segments.truncate_tail(last)
            self.reader.counters.tail_truncations += removed

    def _remove(self, trim: Trim) -> None:
        self._truncate_head(trim.first_index)

    def _finish(self) -> None:
        self._mark.finish()

    def _release(self) -> None:
        if hasattr(self, "_mark"):
            self._mark.close()
        self._segments.close()
        self._meta.close()
