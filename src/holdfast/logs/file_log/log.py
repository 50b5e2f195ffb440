"""A FileLog, open for writing: zmq-raft's files, byte for byte.  The page: docs/formats/rlog.md

Invariants:
1. Entries are durable before a slot shows them, and nobody sees them before the slot is durable.
2. A file is full, or was left by hand, before its successor exists; that is made whole.
3. A change of several files is written down first, and then happens whole.
4. After any failed write the log takes no more of them until it is reopened.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.formats import rlog
from holdfast.formats.rlog_entry import (
    CHECKPOINT,
    CHECKPOINT_DATA,
    CONFIG,
    ENTRY_HEADER_SIZE,
    NO_REQUEST,
    REQUEST_ID_SIZE,
    STATE,
    Bytes,
    FileEntry,
    Offsets,
    encode_entries,
    encode_type_and_term,
    join_entries,
)
from holdfast.logs.file_log.directory import LOG, SNAPSHOT
from holdfast.logs.file_log.history import replace
from holdfast.logs.file_log.intent import Discard, carry_out, plan_rollback, write_intent
from holdfast.logs.file_log.owner import Owner
from holdfast.logs.file_log.part import Part
from holdfast.logs.file_log.pruning import choose_covered
from holdfast.logs.file_log.snapshots import Data, write_temporary
from holdfast.logs.log import Payloads, SegmentInfo, as_payloads
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Compaction, Retention

_GROUP_SIZE_MAX = 16 * 2**20


class _Batch:
    """Entries that are appended together, encoded by the thread that waits for them."""

    __slots__ = ("data", "ends", "error", "ids", "index", "last", "once", "payloads", "terms")

    def __init__(self, ids: Sequence[bytes], data: bytes, ends: Offsets) -> None:
        self.ids, self.data, self.ends = ids, data, ends
        self.payloads: Sequence[Bytes] | None = None  # whose term is whatever the log's is
        self.terms = 0, 0  # of the first and the last
        self.index: int | None = None  # where the first shall stand
        self.once = False  # not again if the request is known
        self.last = 0
        self.error: ValueError | None = None
        longest = int(np.diff(ends, prepend=0).max()) if len(ends) else 0
        if longest > rlog.DATA_SIZE_MAX:
            most = rlog.DATA_SIZE_MAX - ENTRY_HEADER_SIZE
            raise ValueError(
                f"a payload of {longest - ENTRY_HEADER_SIZE} bytes; the most is {most}"
            )


class FileLog(Owner):
    """The owner of a FileLog: locks the directory, recovers it, appends.

    An empty directory becomes an empty log.  A damaged one can be read; append raises CorruptError.
    zmq-raft itself takes no lock: see to it that no server runs on the same directory.

    `capacity` is for a new log: files end at its multiples.  With `segment_size_max` they also end
    when they hold so many bytes.  `sync_mode` is explained in holdfast.logs.file_log.writer.
    Requests are remembered for `request_ttl_ms`, and at most `requests_max` of them.

    >>> from holdfast.disk import OsDisk
    >>> with FileLog(OsDisk(directory)) as log:
    ...     log.append_checkpoint(term=1)
    ...     log.append([b"one", b"two"]), log.read(3), log.get_entry(3).term
    1
    (3, b'two', 1)
    """

    # What every log can do

    def append(self, payloads: Payloads) -> int:
        """Add a batch of states; return its last index.  Durable when this returns.

        Each becomes an entry of the log's last term, with a new request id.  After a crash inside
        append, all of the batch is there or none, unless it went over the end of a file: then
        what is in the first file may be.
        """
        datas = as_payloads(payloads)
        if not datas:
            raise ValueError("a batch has at least one entry")
        ids, term = self._ids.take(len(datas)), max(self._term, 1)
        batch = _Batch(ids, *_encode_states(ids, datas, term))
        batch.payloads, batch.terms = datas, (term, term)
        return self._submit(batch)

    def truncate_tail(self, last: int) -> None:
        """Durably remove all entries after `last`, which may be one less than the first."""
        self._commits.change(lambda: self._roll_back(last + 1))

    def rotate(self) -> str:
        """Begin a new file, unless the last one is empty; return its name."""
        return self._commits.change(self._rotate_by_hand)

    def compact(self, limits: Retention, *, dry_run: bool = False) -> Compaction:
        """Durably remove the oldest files that `limits` name and the snapshot covers."""
        return self._commits.change(lambda: self._compact(limits, dry_run=dry_run))

    def close(self) -> None:
        """Leave the files as the original would, and let the directory go."""
        self._commits.exclusively(self._close)

    # What a Raft server asks of it

    def append_entries(self, entries: Sequence[FileEntry], index: int | None = None) -> int:
        """Add entries with terms and request ids of their own; return the last index.

        With `index` the first of them stands there, and what was there and behind it goes.
        """
        if not entries:
            raise ValueError("a batch has at least one entry")
        for one, two in pairwise(entries):
            if two.term < one.term:
                raise ValueError(f"term {two.term} behind term {one.term}")
        batch = _Batch([entry.request_id for entry in entries], *encode_entries(entries))
        batch.terms, batch.index = (entries[0].term, entries[-1].term), index
        return self._submit(batch)

    def append_request(
        self, request_id: bytes, data: bytes, *, term: int, type: int = STATE
    ) -> int:
        """Add the entry that a request asks for, unless it is there; return its index."""
        if request_id == NO_REQUEST or len(request_id) != REQUEST_ID_SIZE:
            raise ValueError(f"a request id is {REQUEST_ID_SIZE} bytes that are not all zero")
        batch = _Batch([request_id], *encode_entries([FileEntry(term, data, type, request_id)]))
        batch.terms, batch.once = (term, term), True
        return self._submit(batch)

    def append_config(self, request_id: bytes, data: bytes, *, term: int) -> int:
        """Add a change of peers, unless it is there; return its index."""
        return self.append_request(request_id, data, term=term, type=CONFIG)

    def append_checkpoint(self, term: int) -> int:
        """Add the entry with which a leader begins its term; return its index."""
        return self.append_entries([FileEntry(term, CHECKPOINT_DATA, CHECKPOINT)])

    def find_request(self, request_id: bytes) -> int | None:
        """The entry that a request became, if it is young enough to be remembered."""
        return self._commits.exclusively(lambda: self._known_requests().find(request_id))

    def create_snapshot(self, index: int, data: Data) -> None:
        """Let the log begin behind entry `index`, and `data` stand for all up to there."""
        self.install_snapshot(index, self.term_at(index), data, compact_only=True)

    def install_snapshot(
        self, index: int, term: int, data: Data, *, compact_only: bool = False
    ) -> None:
        """Put a snapshot, made here or sent by a leader, in the place of the present one.

        If the log has that entry, of that term, it begins behind it from now on; if not, the whole
        log is moved aside and begins anew behind the snapshot, or with `compact_only` ValueError.
        """
        self._commits.change(lambda: self._install(index, term, data, compact_only=compact_only))

    # Writing: one thread at a time

    def _submit(self, batch: _Batch) -> int:
        self._commits.submit(batch)
        if batch.error is not None:
            raise batch.error
        return batch.last

    def _commit(self, batches: Sequence[_Batch]) -> None:
        group: list[_Batch] = []
        size = 0
        for batch in batches:
            if group and (batch.once or batch.index is not None or size > _GROUP_SIZE_MAX):
                self._write(group)
                group, size = [], 0
            if self._admit(batch):
                group.append(batch)
                size += len(batch.data)
                self._term = batch.terms[1]
        self._write(group)

    def _admit(self, batch: _Batch) -> bool:
        """May this batch come next?  If not, it says why, or where its entry is already."""
        if batch.once and (known := self._known_requests().find(batch.ids[0])) is not None:
            batch.last = known
            return False
        if batch.index is not None and batch.index != self.last_index + 1:
            if not self.first_index <= batch.index <= self.last_index:
                span = f"{self.first_index}..{self.last_index}"
                batch.error = ValueError(f"index {batch.index} of a log that holds {span}")
                return False
            if batch.terms[0] < self.term_at(batch.index - 1):
                batch.error = ValueError(f"term {batch.terms[0]} behind a later one")
                return False
            self._roll_back(batch.index)
        # Others of its group may come first, and none of them has an entry without a byte.
        if self.last_index + len(batch.ends) > rlog.INDEX_MAX - 2 * _GROUP_SIZE_MAX:
            batch.error = ValueError(f"indexes end at {rlog.INDEX_MAX}")
            return False
        if batch.terms[0] < self._term:
            if batch.payloads is None:
                why = f"term {batch.terms[0]} behind term {self._term}: terms never go back"
                batch.error = ValueError(why)
                return False
            batch.data, batch.ends = _encode_states(batch.ids, batch.payloads, self._term)
            batch.terms = self._term, self._term
        return True

    def _write(self, group: Sequence[_Batch]) -> None:
        if not group:
            return
        data, ends = group[0].data, group[0].ends
        if len(group) > 1:
            starts = np.cumsum([0, *(len(batch.data) for batch in group[:-1])]).tolist()
            data = b"".join([batch.data for batch in group])
            ends = np.concatenate([b.ends + at for b, at in zip(group, starts, strict=True)])
        last = self.last_index
        self._put(data, ends)
        for batch in group:
            self._requests.add(batch.ids, last + 1)
            last += len(batch.ends)
            batch.last = last

    def _put(self, data: bytes, ends: Offsets) -> None:
        """Entries behind the last, over as many files as it takes; shown when all is durable."""
        assert self._writer is not None
        index, done, start = self.last_index + 1, 0, 0
        parts: list[Part] = []
        begun = None
        while done < len(ends):
            writer = self._writer
            room = writer.room_for(ends[done:] - start, self._segment_size_max)
            if not room:
                parts.append(self._full(writer))
                begun = self._begin_file(index + done)
                continue
            stop = int(ends[done + room - 1])
            slots = (ends[done : done + room] - start + writer.stop).astype(np.uint32)
            writer.write(data[start:stop] if room < len(ends) else data, slots)
            done, start = done + room, stop
        if begun is None:
            self._tail.push(self._writer.slots[self._tail.count : self._writer.count])
        else:
            last = self._last(*begun, self._writer.count)
            self._publish((*self._segments[:-1], *parts, last))

    # Changes of several files

    def _roll_back(self, index: int) -> None:
        if index == self.last_index + 1:
            return
        if not self.first_index <= index <= self.last_index:
            span = f"{self.first_index}..{self.last_index}"
            raise ValueError(f"the log holds {span}: it cannot end at {index - 1}")
        self._finish()
        part = next(part for part in reversed(self._segments) if part.first_index <= index)
        first = part.first_index
        keeps_file = index > first or index == self.first_index
        intent = plan_rollback(self._disk, index, first, keeps_file=keeps_file)
        write_intent(self._disk, intent)
        told = carry_out(self._disk, intent, self._stamps)
        self._look_again()
        if self.last_index != index - 1:
            raise HoldfastError(told)  # another program is at work here, in spite of our lock

    def _install(self, index: int, term: int, data: Data, *, compact_only: bool) -> None:
        if index < max(1, self.snapshot.index):
            raise ValueError(f"a snapshot of entry {index}, before {self.snapshot.index}")
        has_it = self.first_index - 1 <= index <= self.last_index
        compacts = has_it and self.term_at(index) == term
        if compact_only and not compacts:
            raise ValueError(f"the log has no entry {index} of term {term} to begin behind")
        self._finish()
        temporary = write_temporary(self._disk, index, term, data, self._stamps)
        old = self._stamps.history(SNAPSHOT, self._disk.list().__contains__)
        if compacts:
            replace(self._disk, temporary, SNAPSHOT, old)
        else:
            log = self._stamps.history(LOG, self._disk.directories().__contains__)
            last = self._segments[-1].stop_index - 1
            intent = Discard(index, term, temporary, old, log, last, self._capacity)
            write_intent(self._disk, intent)
            carry_out(self._disk, intent, self._stamps)
        self._look_again()

    def _compact(self, limits: Retention, *, dry_run: bool) -> Compaction:
        replicas, now_ms = Replicas(self._disk).list(), self._stamps.now_ms()
        oldest = self._known_requests().oldest_index()
        every = [
            SegmentInfo(
                s.name, s.state, p.first_index, p.stop_index - 1, s.size, s.created_ms, s.id
            )
            for s, p in zip(self.segments(), self._segments, strict=True)
        ]
        plan = choose_covered(every, limits, replicas, now_ms, self.first_index, oldest)
        for segment in () if dry_run else plan.removed:
            self._publish(self._segments[1:])  # oldest first, so that a crash leaves no gap
            self._disk.remove(segment.name)
        return plan


def _encode_states(
    ids: Sequence[bytes], datas: Sequence[Bytes], term: int
) -> tuple[bytes, Offsets]:
    rest = encode_type_and_term(STATE, term)
    return join_entries([request_id + rest for request_id in ids], datas)
