"""A FileLog open for writing: zmq-raft's files, byte for byte.  The page: docs/formats/rlog.md

Invariants:
1. Entries are durable before a slot shows them, and visible only after the slot is durable.
2. A file is full, or was left by `rotate`, before the next one exists, which is created complete.
3. A change of several files is recorded first, and then carried out completely.
4. The mark covers only what is durable, and is lowered before entries are removed.
5. After a failed write the log accepts no more writes until it is reopened.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from itertools import pairwise

import numpy as np

from holdfast.disk import Disk, Lock
from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.rlog_entry import (
    CHECKPOINT,
    CHECKPOINT_DATA,
    CONFIG,
    NO_REQUEST,
    REQUEST_ID_SIZE,
    STATE,
    FileEntry,
    Offsets,
    encode_entries,
)
from holdfast.logs.file_log.active import Active, SyncMode, check_options, empty_state
from holdfast.logs.file_log.directory import LOG, SNAPSHOT, UNTOUCHED, create_file
from holdfast.logs.file_log.entries import NO_ENTRY, Entries, encode_states
from holdfast.logs.file_log.history import Data, Stamps, replace, sweep, write_snapshot
from holdfast.logs.file_log.intent import Discard, carry_out, plan_rollback, write_intent
from holdfast.logs.file_log.marker import Marker
from holdfast.logs.file_log.reader import FileLogReader, FileLogSource
from holdfast.logs.file_log.recovery import recover, survey
from holdfast.logs.file_log.requests import TTL_MS, RequestCache, RequestIds, keep_needed
from holdfast.logs.file_log.state import StateFile
from holdfast.logs.file_log.view import Segment
from holdfast.logs.log import Payloads, as_payloads
from holdfast.logs.mark import recall_mark
from holdfast.logs.retention import Retention, Trim, choose
from holdfast.logs.writer import Writer
from holdfast.runtime import Runtime

_LOG = logging.getLogger("holdfast")
_GROUP_SIZE_MAX = 16 * 2**20


class FileLog(Writer[Entries]):
    """The owner of a FileLog: it locks the directory, recovers it and appends.

    An empty directory becomes a log.  A damaged log can be read; append raises CorruptError.
    zmq-raft itself takes no lock: make sure that no server runs on the same directory.

    A payload becomes an entry of type state, of the log's last term, with a new request id.  A
    crash inside append leaves all of the batch or nothing; of a batch that continued in a new file
    perhaps the part in the first file.

    `capacity` is for a new log: files end at its multiples.  With `segment_size_max` they also end
    when they hold that many bytes.  `sync_mode` is explained in holdfast.logs.file_log.active.
    Requests are remembered for `request_ttl_ms`, and at most `requests_max` of them.

    >>> from holdfast.disk import OsDisk
    >>> with FileLog(OsDisk(directory)) as log:
    ...     log.append_checkpoint(term=1)
    ...     log.append([b"one", b"two"]), log.read(3), log.get_entry(3).term
    1
    (3, b'two', 1)
    """

    reader: FileLogReader

    def __init__(
        self,
        disk: Disk,
        acquire: Callable[[], Lock] | None = None,
        *,
        capacity: int = rlog.CAPACITY_DEFAULT,
        segment_size_max: int = rlog.DATA_SIZE_MAX,
        first_index: int = 1,
        sync_mode: SyncMode = "ordered",
        request_ttl_ms: int | None = TTL_MS,
        requests_max: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_options(capacity, segment_size_max, first_index, sync_mode)
        runtime = runtime or Runtime()
        self._segment_size_max = min(segment_size_max, rlog.DATA_SIZE_MAX)
        self._stamps, self._ids = Stamps(runtime), RequestIds(runtime)
        self._requests = RequestCache(request_ttl_ms, requests_max, runtime)
        self._source = FileLogSource(disk, sync_mode)
        self._state: StateFile | None = None
        self._marker: Marker | None = None  # of a log that can be changed
        lock = (acquire or disk.lock)()
        try:
            mark = recall_mark(disk)
            found = recover(disk, mark, self._stamps, capacity, first_index)
            reader = FileLogReader(self._source, view=self._source.show(found))
            super().__init__(reader, lock, runtime, found.recovered, found.full)
            self._term = 0
            with self._opening():
                if reader.handle.refusal is None:
                    # As the original does: whatever was asked for, even if the first file is small.
                    first = reader.view.segments[0].head.header
                    self._capacity = rlog.nominal_capacity(first.capacity)
                    self._term = reader.last_term
                    sweep(disk, SNAPSHOT, UNTOUCHED)
                    self._marker = Marker(reader, mark, found.promise, lock=lock, runtime=runtime)
        except BaseException:
            lock.release()
            raise
        self.get_entry, self.term_at = reader.get_entry, reader.term_at
        self.read_snapshot, self.read_state = reader.read_snapshot, reader.read_state
        self.decode_columns, self.facts = reader.decode_columns, reader.facts
        self.check_whole, self.old_snapshots = reader.check_whole, reader.old_snapshots

    @property
    def snapshot(self) -> snapshot_file.Head:
        """The head of the snapshot; its index is 0 if there is none."""
        return self.reader.snapshot

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the snapshot before it; 0 in a new log."""
        return self.reader.last_term

    @property
    def state(self) -> StateFile:
        """The state file of the server that owns this log; created at first use."""
        self._check_write()
        if self._state is None:
            self._state = StateFile(self.disk, runtime=self.runtime, lock=self._lock)
        return self._state

    def truncate_tail(self, last: int) -> None:
        """Durably remove all entries after `last`.  HoldfastError if a replica has one of them."""
        self._change(lambda: self._roll_back(last + 1), lambda: (self.first_index, last))

    def append_entries(self, entries: Sequence[FileEntry], index: int | None = None) -> int:
        """Append entries with their own terms and request ids; return the last index.

        With `index`, the entries from there on are removed first.  Durable when this returns.
        """
        if not entries:
            raise ValueError(NO_ENTRY)
        for one, two in pairwise(entries):
            if two.term < one.term:
                raise ValueError(f"term {two.term} after term {one.term}: terms never decrease")
        ids, terms = [entry.request_id for entry in entries], (entries[0].term, entries[-1].term)
        return self._append(Entries(ids, encode_entries(entries), terms, index=index))

    def append_request(
        self, request_id: bytes, data: bytes, *, term: int, type: int = STATE
    ) -> int:
        """Append the entry of a request, unless the log has it; return its index."""
        if request_id == NO_REQUEST or len(request_id) != REQUEST_ID_SIZE:
            raise ValueError(
                f"request id {request_id!r}; expected {REQUEST_ID_SIZE} bytes that are not all zero"
            )
        encoded = encode_entries([FileEntry(term, data, type, request_id)])
        return self._append(Entries([request_id], encoded, (term, term), once=True))

    def append_config(self, request_id: bytes, data: bytes, *, term: int) -> int:
        """Append a change of peers, unless the log has it; return its index."""
        return self.append_request(request_id, data, term=term, type=CONFIG)

    def append_checkpoint(self, term: int) -> int:
        """Append the entry with which a leader begins its term; return its index."""
        return self.append_entries([FileEntry(term, CHECKPOINT_DATA, CHECKPOINT)])

    def find_request(self, request_id: bytes) -> int | None:
        """Return the index of the entry of a request, if the request is remembered."""
        return self._commits.exclusively(lambda: self._known_requests().find(request_id))

    def create_snapshot(self, index: int, data: Data) -> None:
        """Create a snapshot at `index`; the log then begins after that entry."""
        self.install_snapshot(index, self.reader.term_at(index), data, compact_only=True)

    def install_snapshot(
        self, index: int, term: int, data: Data, *, compact_only: bool = False
    ) -> None:
        """Replace the snapshot by one that was created here or sent by a leader.

        If the log has that entry, of that term, it begins after it.  If not, the whole log is moved
        aside and a new one begins after the snapshot; with `compact_only`, ValueError.  If a
        registered replica needs an entry that the snapshot covers, HoldfastError.
        """
        self._change(
            lambda: self._install(index, term, data, compact_only=compact_only),
            lambda: (index + 1 if index <= self.last_index else 0, self.last_index),
        )

    # Append: one thread at a time

    def _encode(self, payloads: Payloads) -> Entries:
        datas = as_payloads(payloads)
        if not datas:
            raise ValueError(NO_ENTRY)
        ids, term = self._ids.take(len(datas)), max(self._term, 1)
        return Entries(ids, encode_states(ids, datas, term), (term, term), payloads=datas)

    def _append(self, batch: Entries) -> int:
        self._commits.commit(batch)
        if batch.error is not None:
            raise batch.error
        return batch.last

    def _write(self, batches: Sequence[Entries]) -> None:
        group: list[Entries] = []
        size = 0
        for batch in batches:
            if group and (batch.once or batch.index is not None or size > _GROUP_SIZE_MAX):
                self._write_group(group)
                group, size = [], 0
            if self._admit(batch):
                group.append(batch)
                size += len(batch.data)
                self._term = batch.terms[1]
        if group:
            self._write_group(group)

    def _admit(self, batch: Entries) -> bool:
        """Return whether a batch may come next; if not, set its error or its known index."""
        if batch.once and (known := self._known_requests().find(batch.ids[0])) is not None:
            batch.last, batch.entries, batch.size = known, 0, 0
            return False
        first, last, term = self.first_index, self.last_index, self._term
        cut = batch.index if batch.index != last + 1 else None
        if cut is not None and not first <= cut <= last:
            batch.error = ValueError(f"index {cut}; the log holds {first}..{last}")
            return False
        if cut is not None:
            term = self.reader.term_at(cut - 1)
        # Others of its group may come first, and each of their entries takes at least one byte.
        if last + len(batch.ends) > rlog.INDEX_MAX - 2 * _GROUP_SIZE_MAX:
            batch.error = ValueError(f"the log is full: indexes end at {rlog.INDEX_MAX}")
            return False
        if batch.terms[0] < term and batch.payloads is None:
            why = f"term {batch.terms[0]} after term {term}: terms never decrease"
            batch.error = ValueError(why)
            return False
        if batch.terms[0] < term and batch.payloads is not None:
            batch.data, batch.ends = encode_states(batch.ids, batch.payloads, term)
            batch.terms = term, term
        if cut is not None:
            self._roll_back(cut)
        return True

    def _write_group(self, group: Sequence[Entries]) -> None:
        data, ends = group[0].data, group[0].ends
        if len(group) > 1:
            starts = np.cumsum([0, *(len(batch.data) for batch in group[:-1])]).tolist()
            data = b"".join([batch.data for batch in group])
            ends = np.concatenate([b.ends + at for b, at in zip(group, starts, strict=True)])
        last = self.last_index
        self._put(data, ends, last + 1)
        for batch in group:
            self._requests.add(batch.ids, last + 1)
            last += len(batch.ends)
            batch.last = last

    def _put(self, data: bytes, ends: Offsets, index: int) -> None:
        """Write entries into as many files as they need; show them when all are durable."""
        active, sealed = self._active, list[Segment]()
        done, start = 0, 0
        while done < len(ends):
            room = active.room_for(ends[done:] - start, self._segment_size_max)
            if not room:
                sealed.append(active.sealed())
                active = self._begin_file(active, index + done)
                continue
            stop = int(ends[done + room - 1])
            slots = (ends[done : done + room] - start + active.stop).astype(np.uint32)
            active.write(data[start:stop] if room < len(ends) else data, slots)
            done, start = done + room, stop
        active.show()
        if sealed:
            self.reader.publish_segments((*self.reader.view.segments[:-1], *sealed, active))
        self._marks.commit(active, index + len(ends) - 1, data, ends)

    @property
    def _marks(self) -> Marker:
        assert self._marker is not None, "only a log that is not damaged is changed"
        return self._marker

    @property
    def _active(self) -> Active:
        active = self.reader.view.segments[-1]
        assert isinstance(active, Active)
        return active

    def _begin_file(self, active: Active, index: int) -> Active:
        """Create the file whose first entry is `index`, durably; leave the active one."""
        active.finish()
        found = create_file(self.disk, index, self._capacity, self._stamps.meta())
        assert isinstance(found.head, rlog.Head)
        self.reader.counters.segment_rotations += 1
        empty = empty_state(found.head.header, found.size)
        return self._source.open_active(found, found.head, empty, active.floor, writable=True)

    def _rotate(self) -> str:
        active = self._active
        if active.count:
            new = self._begin_file(active, self.last_index + 1)
            segments = self.reader.view.segments
            self.reader.publish_segments((*segments[:-1], active.sealed(), new))
        return self._active.name

    def _known_requests(self) -> RequestCache:
        if not self._requests.is_loaded:
            self._requests.load(self.reader.view.segments)
        return self._requests

    # Changes of several files

    def _roll_back(self, index: int) -> None:
        first, last = self.first_index, self.last_index
        if index == last + 1:
            return
        if not first <= index <= last:
            raise ValueError(f"the log holds {first}..{last}: it cannot end at {index - 1}")
        self._active.finish()
        segments = self.reader.view.segments
        base = next(part.base for part in reversed(segments) if part.base <= index)
        keeps_file = index > base or index == first
        intent = plan_rollback(self.disk, index, base, keeps_file=keeps_file)
        remaining = [part for part in segments if part.base < base + keeps_file]
        spare = keeps_file or remaining[-1].has_spare
        self._marks.lower(remaining, index - 1, has_spare=spare)
        write_intent(self.disk, intent)
        for part in segments:
            part.revoke(index)
        done = carry_out(self.disk, intent, self._stamps)
        self._look_again()
        if self.last_index != index - 1:
            raise HoldfastError(done)  # another program writes here, in spite of our lock

    def _install(self, index: int, term: int, data: Data, *, compact_only: bool) -> None:
        present = self.snapshot.index
        if index < max(1, present):
            raise ValueError(f"a snapshot at {index}; the present one is at {present}")
        has_it = self.first_index - 1 <= index <= self.last_index
        compacts = has_it and self.reader.term_at(index) == term
        if compact_only and not compacts:
            raise ValueError(f"the log has no entry {index} of term {term}")
        active = self._active
        active.finish()
        temporary = write_snapshot(self.disk, index, term, data, self._stamps)
        old = self._stamps.history(SNAPSHOT, self.disk.list().__contains__)
        if compacts:
            replace(self.disk, temporary, SNAPSHOT, old)
        else:
            log = self._stamps.history(LOG, self.disk.directories().__contains__)
            last = active.base + active.count - 1
            intent = Discard(index, term, temporary, old, log, last, self._capacity)
            self._marks.void()
            write_intent(self.disk, intent)
            for part in self.reader.view.segments:
                part.revoke(0)
            carry_out(self.disk, intent, self._stamps)
        self._look_again()
        self._marks.record()

    def _look_again(self) -> None:
        """Show the files that a change of ours has left."""
        found = survey(self.disk, self._marks.mark)
        self.reader.publish(self._source.show(found))
        if found.damage:
            raise CorruptError(found.damage[0].file, found.damage[0].offset, found.damage[0].why)
        self._term = self.last_term
        self._requests.forget()

    def _plan(self, limits: Retention) -> Trim:
        every = [
            changed(p.info, first_index=p.base, last_index=p.base + p.count - 1)
            for p in self.reader.view.segments
        ]
        plan = choose(every, limits, self._replicas().list(), self.runtime.now_ms())
        return keep_needed(plan, self.first_index, self._known_requests().oldest_index())

    def _remove(self, trim: Trim) -> None:
        remaining = self.reader.view.segments[len(trim.removed) :]
        self._marks.lower(remaining, self.last_index, has_spare=self._active.has_spare)
        super()._remove(trim)

    def _finish(self) -> None:
        try:
            self._active.finish()
            self._marks.finish()
        except OSError as error:  # all is durable; the next owner removes the record
            _LOG.warning("%r: it was closed with an older mark, or a record: %s", self.disk, error)

    def _release(self) -> None:
        for file in (self._marker, self._state):
            if file is not None:
                file.close()
