"""PySyncObj's journal, kept in a raft-wal log.  The page: docs/integrations/pysyncobj.md

Invariants:
1. The log holds the first `_durable` entries that PySyncObj sees, and after them those of `_gone`:
   what PySyncObj has deleted from the end and nothing has contradicted yet.
2. `flush` returns only when all that was added is durable; it costs one sync, or none.
3. `setCurrentTerm` returns only when term and vote are durable, both or neither.
4. The head is cut only after `before_cut`, which makes the dump durable, has returned.
5. After any failure the journal returns nothing but its length: a node cannot count, send or
   apply an entry that may not be on the disk.
6. A damaged log, or one that ends before its mark, is refused.  One that was repaired or replaced
   is_rejoining until `finish_rejoin` has returned, over restarts too: its node must not vote.

Raft deletes entries from a follower's log only where they contradict the leader's.  PySyncObj
deletes everything after the entries of a message, and adds most of it again from the same message
or the next; this can include acknowledged entries.  So a deletion by itself changes
nothing on the disk, and an entry that is added again is found there and not written again.  After
the message, `take_back` restores what was deleted without a reason.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, overload

from holdfast.disk import Disk
from holdfast.errors import CorruptError, PoisonedError, UnsupportedError
from holdfast.formats import raft_entry
from holdfast.formats.raft_wal import ENTRY_SIZE_MAX, RAFT_CODEC
from holdfast.logs.raft_wal import RaftEntry, RaftWal
from holdfast.logs.raft_wal.repair import REPAIRED
from holdfast.runtime import Runtime

Entry = tuple[bytes, int, int]  # command, index, term: as PySyncObj has it
NodeId = str | int

COMMAND_SIZE_MAX = ENTRY_SIZE_MAX - 64  # an encoded entry has less than that around its data
TERM_AND_VOTE, COMMIT_INDEX = b"PySyncObj", b"CommitIndex"
_PENDING_SIZE_MAX = 16 * 2**20
# The first byte of a command says what it is: regular, no-op, membership, version of the code.
_TYPES = {1: raft_entry.NOOP, 2: raft_entry.CONFIGURATION}
_MEMBERSHIP = b"\2"


# A node that votes with less than it has acknowledged can lose entries of the whole cluster.
REJOIN = (
    "this node must not vote without what it has acknowledged: run `holdfast pysyncobj rejoin {} "
    "--apply` and start the node again; it fetches everything from the other nodes, and then votes"
)


def _nothing() -> None: ...


class _Timer:
    """A step that PySyncObj's timer calls.  PySyncObj forks, so the log must start no thread."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step

    def close(self) -> None:
        self.step = _nothing


class RaftJournal:
    """The journal of a PySyncObj node, with `flush`.  One thread at a time; `len` from any.

    All entries are in memory too, as in PySyncObj's own journals: its compaction keeps them few.

    >>> from holdfast.disk import OsDisk
    >>> journal = RaftJournal(OsDisk(directory))
    >>> journal.add(b"\\1", 1, 0)
    >>> journal.add(b"\\0a command", 2, 1)
    >>> journal.flush()  # durable from here on
    >>> journal.setCurrentTerm(1, "10.0.0.5:4321")  # durable when it returns
    >>> journal[-1], len(journal)
    ((b'\\x00a command', 2, 1), 2)
    >>> journal._destroy()
    """

    def __init__(
        self,
        disk: Disk,
        *,
        before_cut: Callable[[], None] = _nothing,
        segment_size_max: int = 16 * 2**20,
        runtime: Runtime | None = None,
    ) -> None:
        self._timers: list[_Timer] = []
        self._term: int
        self._vote: NodeId | None
        self._before_cut = before_cut
        self._refusal: str | None = None
        runtime = replace(runtime or Runtime(), ticker=self._new_timer)
        try:
            self._open(disk, segment_size_max, runtime)
        except CorruptError as error:
            advice = REJOIN.format(disk)
            raise CorruptError(error.where, error.offset, f"{error.why}; {advice}") from error
        self._is_rejoining = self._wal.get(REPAIRED) is not None
        if self._is_rejoining:
            # A term beyond the leader's would keep the node out: it stands for no election that
            # brings the others to that term.  What the node voted in it is void: see node.py.
            self._term, self._vote = 0, None
        self._is_new = not (self._entries or self._is_rejoining or self._wal.get(TERM_AND_VOTE))
        self._durable = len(self._entries)
        self._gone: deque[Entry] = deque()
        self._pending_size = 0
        last = self._entries[-1][1] if self._entries else 0
        self._stored_commit_index = self._wal.get_uint64(COMMIT_INDEX)
        self._commit_index = max(1, min(self._stored_commit_index, last))

    def _open(self, disk: Disk, segment_size_max: int, runtime: Runtime) -> None:
        self._wal = RaftWal(
            disk, codec=RAFT_CODEC, segment_size_max=segment_size_max, runtime=runtime
        )
        try:
            self._entries: list[Entry] = list(_entries_of(self._wal))
            self._term, self._vote = _term_and_vote_of(self._wal)
        except BaseException:
            self._wal.close()
            raise

    @property
    def refusal(self) -> str | None:
        """Return why the journal has stopped; None while it works."""
        return self._refusal

    @property
    def is_new(self) -> bool:
        """Whether the journal has never held anything; a journal whose files were deleted too."""
        return self._is_new

    @property
    def is_rejoining(self) -> bool:
        """Whether entries or votes may be missing that the node has given: it must not vote."""
        return self._is_rejoining

    def finish_rejoin(self) -> None:
        """Record, durably, that the journal has all that the node has ever acknowledged."""
        self.flush()
        self._guarded(lambda: self._wal.set(REPAIRED, None))
        self._is_rejoining = False

    def flush(self) -> None:
        """Make all added entries durable, with one sync; none if they are."""
        self.refuse_if_failed()
        if self._durable < len(self._entries):
            self._guarded(self._write)

    def take_back(self) -> None:
        """Restore what was deleted from the end, if nothing has contradicted it.

        Changes of the cluster's members are not restored: PySyncObj has undone them already.
        """
        self.refuse_if_failed()
        is_free = self._gone and self._entries and self._durable == len(self._entries)
        if is_free and not any(entry[0][:1] == _MEMBERSHIP for entry in self._gone):
            self._entries += self._gone
            self._durable = len(self._entries)
            self._gone.clear()

    def refuse_if_failed(self) -> None:
        if self._refusal is not None:
            raise PoisonedError(f"{self._refusal}; start the node again")

    def fail(self, why: str) -> None:
        """Stop the journal: what the node knows and what its disk holds may differ."""
        self._refusal = self._refusal or why

    def begin_with(self, first: Entry, second: Entry) -> None:
        """Delete the entries before these two, which a dump ends with, if both are here."""
        self.refuse_if_failed()
        start = first[1] - self._entries[0][1] if self._entries else -1
        if start >= 0 and self._entries[start : start + 2] == [first, second]:
            self.deleteEntriesTo(start)

    # What PySyncObj calls

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Add an entry.  It is durable when `flush` has returned."""
        self.refuse_if_failed()
        entries = self._entries
        if len(command) > COMMAND_SIZE_MAX:
            raise ValueError(f"a command has {len(command)} bytes; at most {COMMAND_SIZE_MAX} fit")
        if idx < 1 or (entries and idx != entries[-1][1] + 1):
            last = entries[-1][1] if entries else 0
            raise ValueError(f"entry {idx} cannot come after entry {last}")
        entry = (command, idx, term)
        if self._gone and self._gone[0] == entry and self._durable == len(entries):
            self._gone.popleft()  # it is still on the disk
            self._durable += 1
        else:
            self._pending_size += len(command)
        entries.append(entry)
        if self._pending_size > _PENDING_SIZE_MAX:
            self.flush()

    def clear(self) -> None:
        """Delete all entries."""
        self.deleteEntriesFrom(0)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Delete the entries from this position on."""
        self.refuse_if_failed()
        entries = self._entries
        start = slice(entryFrom, None).indices(len(entries))[0]
        if start < self._durable:
            self._gone.extendleft(reversed(entries[start : self._durable]))
            self._durable = start
        del entries[start:]
        self._pending_size = sum(len(command) for command, _, _ in entries[self._durable :])

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Delete the entries before this position, durably, once the dump is durable."""
        self.refuse_if_failed()
        stop = slice(entryTo).indices(len(self._entries))[1]
        if stop:
            self._guarded(lambda: self._cut(stop))

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        self.refuse_if_failed()
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setCurrentTerm(self, term: int, votedForNodeId: NodeId | None) -> None:
        """Store term and vote, durably when this returns: no vote may be given twice."""
        self.refuse_if_failed()
        if (term, votedForNodeId) == (self._term, self._vote):
            return
        if not isinstance(votedForNodeId, NodeId | None):
            raise ValueError(f"a node's id must be a text or a number, not {votedForNodeId!r}")  # noqa: TRY004
        value = json.dumps({"term": term, "vote": votedForNodeId}).encode()
        self._guarded(lambda: self._wal.set(TERM_AND_VOTE, value))
        self._term, self._vote = term, votedForNodeId

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> NodeId | None:
        return self._vote

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Make committed entries durable: they are about to be applied and acknowledged."""
        self.flush()
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:
        return self._commit_index

    def onOneSecondTimer(self) -> None:
        """Write what can wait: deletions, and how far entries are known to be committed."""
        self.refuse_if_failed()
        self._guarded(self._settle)
        for timer in self._timers:
            timer.step()

    def _destroy(self) -> None:
        """Write what can wait, and unlock the directory."""
        try:
            if self._refusal is None:
                self._guarded(self._settle)
        finally:
            self.fail("the journal is closed")
            self._wal.close()

    def _new_timer(self, interval_ms: float, step: Callable[[], None]) -> "_Timer":
        self._timers = [_Timer(step)]
        return self._timers[0]

    # Writing

    def _write(self) -> None:
        if self._gone:
            self._truncate()
        pending = self._entries[self._durable :]
        self._wal.store_logs(
            [
                RaftEntry(index, term, _TYPES.get(command[0], 0) if command else 0, command)
                for command, index, term in pending
            ]
        )
        self._durable = len(self._entries)
        self._pending_size = 0

    def _truncate(self) -> None:
        wal = self._wal
        kept = self._entries[self._durable - 1][1] if self._durable else wal.first_index - 1
        wal.truncate_tail(kept)
        self._gone.clear()

    def _settle(self) -> None:
        if self._durable < len(self._entries):
            self._write()
        if self._gone:
            self._truncate()
        if self._commit_index != self._stored_commit_index:
            self._wal.set_uint64(COMMIT_INDEX, self._commit_index)
            self._stored_commit_index = self._commit_index

    def _cut(self, stop: int) -> None:
        self._settle()
        self._before_cut()
        entries = self._entries
        self._wal.truncate_head(entries[stop - 1][1] + 1)
        del entries[:stop]
        self._durable = len(entries)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            self.fail(f"a write or sync failed ({error!r})")
            raise


def _entries_of(wal: RaftWal) -> Iterator[Entry]:
    if wal.get(b"CurrentTerm") is not None:  # its data are not commands, and must not be unpickled
        raise UnsupportedError("this is the log of a Raft server, not of PySyncObj")
    if wal.damage:
        damage = wal.damage[0]
        raise CorruptError(damage.file, damage.offset, damage.why)
    for batch in wal.scan():
        columns: Any = wal.decode_columns(batch)
        if columns["term"].null_count:
            raise CorruptError("the journal", 0, "an entry cannot be decoded as a Raft entry")
        names = ("data", "index", "term")
        yield from zip(*(columns[name].to_pylist() for name in names), strict=True)


def _term_and_vote_of(wal: RaftWal) -> tuple[int, NodeId | None]:
    value = wal.get(TERM_AND_VOTE)
    if value is None:
        return 0, None
    try:
        found = json.loads(value)
        term, vote = found["term"], found["vote"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"stable key {TERM_AND_VOTE.decode()}", 0, repr(error)) from error
    if not isinstance(term, int) or not isinstance(vote, NodeId | None):
        raise CorruptError(f"stable key {TERM_AND_VOTE.decode()}", 0, f"{value!r}")
    return term, vote
