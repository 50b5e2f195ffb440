"""PySyncObj's journal, kept in a raft-wal log.  The page: docs/integrations/pysyncobj.md

Invariants:
1. The log holds the first `_durable` entries that PySyncObj sees, and behind them those of `_gone`:
   what PySyncObj has deleted from the end and nothing has contradicted yet.
2. `flush` returns only when all that was added is durable; it costs one sync, or none.
3. `setCurrentTerm` returns only when term and vote are durable, both or neither.
4. The head is cut only after `before_cut`, which makes the dump durable, has returned.
5. After any failure the journal answers nothing but its length: a node cannot count, send or
   apply an entry of which nobody knows whether it is on the disk.

Raft deletes entries from a follower's log only where they contradict the leader's.  PySyncObj
deletes everything behind what a message is about, and adds most of it again from the same message
or the next; entries that were acknowledged before are among it.  So a deletion by itself changes
nothing on the disk, an entry that comes back is found there and not written again, and when the
message is done with `take_back` undoes what was deleted without a reason.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, overload

from holdfast.disk import Disk
from holdfast.errors import CorruptError, PoisonedError, UnsupportedError
from holdfast.formats import raft_entry
from holdfast.formats.raft_wal import ENTRY_SIZE_MAX, RAFT_CODEC
from holdfast.logs.raft_wal import RaftEntry, RaftWal

Entry = tuple[bytes, int, int]  # command, index, term: as PySyncObj has it
NodeId = str | int

COMMAND_SIZE_MAX = ENTRY_SIZE_MAX - 64  # an encoded entry has less than that around its data
TERM_AND_VOTE, COMMIT_INDEX = b"PySyncObj", b"CommitIndex"
_PENDING_SIZE_MAX = 16 * 2**20
# The first byte of a command says what it is: regular, no-op, membership, version of the code.
_TYPES = {1: raft_entry.NOOP, 2: raft_entry.CONFIGURATION}
_MEMBERSHIP = b"\2"


def _nothing() -> None: ...


class RaftJournal:
    """What PySyncObj asks of a journal, and `flush`.  One thread at a time; `len` from any.

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
    ) -> None:
        self._wal = RaftWal(disk, codec=RAFT_CODEC, segment_size_max=segment_size_max)
        self._before_cut = before_cut
        self._refusal: str | None = None
        try:
            self._entries: list[Entry] = list(_entries_of(self._wal))
            self._term, self._vote = _term_and_vote_of(self._wal)
        except BaseException:
            self._wal.close()
            raise
        self._durable = len(self._entries)
        self._gone: deque[Entry] = deque()
        self._pending_size = 0
        last = self._entries[-1][1] if self._entries else 0
        self._stored_commit_index = self._wal.get_uint64(COMMIT_INDEX)
        self._commit_index = max(1, min(self._stored_commit_index, last))

    @property
    def refusal(self) -> str | None:
        """Why the journal does nothing any more; None while it does."""
        return self._refusal

    def flush(self) -> None:
        """Make all that was added durable: with one sync, or none if it is."""
        self.refuse_if_failed()
        if self._durable < len(self._entries):
            self._guarded(self._write)

    def take_back(self) -> None:
        """See again what was deleted from the end, if nothing has contradicted it.

        Not where the cluster's members change: PySyncObj has undone that change already.
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
        """From now on nothing is served: what the node knows and what its disk holds differ."""
        self._refusal = self._refusal or why

    def begin_with(self, first: Entry, second: Entry) -> None:
        """Cut off what is before these two, which a dump ends with, if both are here."""
        self.refuse_if_failed()
        start = first[1] - self._entries[0][1] if self._entries else -1
        if start >= 0 and self._entries[start : start + 2] == [first, second]:
            self.deleteEntriesTo(start)

    # What PySyncObj calls

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Add an entry.  It promises nothing until `flush` has returned."""
        self.refuse_if_failed()
        entries = self._entries
        if len(command) > COMMAND_SIZE_MAX:
            raise ValueError(f"a command of {len(command)} bytes; the most is {COMMAND_SIZE_MAX}")
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
        """Durable when this returns: a vote must not be sent, nor given twice."""
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
        """What is committed is about to be applied and acknowledged: it must be durable."""
        self.flush()
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:
        return self._commit_index

    def onOneSecondTimer(self) -> None:
        """Write what can wait: deletions, and how far entries are known to be committed."""
        self.refuse_if_failed()
        self._guarded(self._settle)

    def _destroy(self) -> None:
        """Let the directory go."""
        try:
            if self._refusal is None:
                self._guarded(self._settle)
        finally:
            self.fail("the journal is closed")
            self._wal.close()

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
    if wal.get(b"CurrentTerm") is not None:  # its data are not commands, and not to be unpickled
        raise UnsupportedError("this is the log of a Raft server, not of PySyncObj")
    if wal.damage:
        damage = wal.damage[0]
        raise CorruptError(damage.file, damage.offset, f"{damage.why}; see `holdfast log repair`")
    for batch in wal.scan():
        columns: Any = wal.decode_columns(batch)
        if columns["term"].null_count:
            raise CorruptError("the journal", 0, "an entry that is no Raft entry")
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
