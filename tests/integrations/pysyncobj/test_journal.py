"""The journal alone: against PySyncObj's own as the model, and on a disk that crashes."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from pysyncobj.journal import FileJournal, MemoryJournal

from holdfast.disk import OsDisk
from holdfast.errors import (
    CorruptError,
    HoldfastError,
    LockedError,
    PoisonedError,
    UnsupportedError,
)
from holdfast.integrations.pysyncobj import RaftJournal
from holdfast.integrations.pysyncobj.journal import COMMAND_SIZE_MAX, TERM_AND_VOTE, Entry, NodeId
from holdfast.logs.raft_wal import RAFT_CODEC, RaftEntry, RaftWal, RaftWalReader
from holdfast.testing import BrokenPromiseError, Fault, PowerLost, SimDisk

Vote = tuple[int, NodeId | None]


def entry(index: int, term: int = 1, what: str = "") -> Entry:
    return f"\0{index}/{term}/{what}".encode(), index, term


def journal_on(disk: SimDisk, before_cut: Callable[[], None] = lambda: None) -> RaftJournal:
    return RaftJournal(disk, before_cut=before_cut, segment_size_max=400)


def filled(disk: SimDisk, count: int) -> RaftJournal:
    journal = journal_on(disk)
    for index in range(1, count + 1):
        journal.add(*entry(index))
    journal.flush()
    return journal


def syncs_of(disk: SimDisk, step: Callable[[], None]) -> int:
    counted: Counter[str] = Counter()
    original = disk.posix._sync
    disk.posix._sync = lambda *a, **k: (counted.update(["sync"]), original(*a, **k))[1]  # type: ignore[method-assign]
    step()
    disk.posix._sync = original  # type: ignore[method-assign]
    return counted["sync"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery tells of every torn write, and here there are thousands."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Trial:
    """One random sequence of calls, made to three journals that must never differ."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random, self.path = Random(seed), str(directory / f"file-{seed}")
        self.disk = SimDisk()
        self.ours, self.memory, self.file = (
            journal_on(self.disk),
            MemoryJournal(),
            FileJournal(self.path),
        )
        self.next_index, self.committed = 1, 1

    def all(self, name: str, *arguments: object) -> None:
        for journal in (self.ours, self.memory, self.file):
            getattr(journal, name)(*arguments)

    def run(self) -> None:
        steps = [
            self.add, self.add, self.add, self.delete_from, self.delete_to, self.clear,
            self.vote, self.commit, self.flush, self.reopen,
        ]  # fmt: skip
        for _ in range(60):
            self.random.choice(steps)()
            self.compare()
        self.ours._destroy()
        self.file._destroy()

    def compare(self) -> None:
        ours, file, random = self.ours, self.file, self.random
        assert len(ours) == len(file) == len(self.memory)
        assert ours[:] == file[:] == self.memory[:]
        start, stop = random.randint(-9, 9), random.randint(-9, 9)
        assert ours[start:stop] == file[start:stop]
        if len(ours):
            at = random.randrange(-len(ours), len(ours))
            assert ours[at] == file[at]
        assert ours.getCurrentTerm() == file.getCurrentTerm()
        assert ours.getVotedForNodeId() == file.getVotedForNodeId()
        assert ours.getRaftCommitIndex() == file.getRaftCommitIndex()

    def add(self) -> None:
        for _ in range(self.random.choice((1, 1, 5))):
            term = self.random.choice((1, 1, 1, 2))
            size = self.random.choice((0, 3, 90))
            self.all("add", bytes([self.random.randint(0, 3)]) * size, self.next_index, term)
            self.next_index += 1

    def delete_from(self) -> None:
        keep = self.committed - self.ours[0][1] + 1 if len(self.ours) else 0
        at = self.random.randint(max(0, keep), max(len(self.ours), keep) + 1)
        again = self.ours[at:]
        self.all("deleteEntriesFrom", at)
        self.next_index -= len(again)
        if self.random.random() < 0.6:  # as a follower does that gets entries again
            for command, index, term in again[: self.random.randint(0, len(again))]:
                self.all("add", command, index, term)
                self.next_index += 1

    def delete_to(self) -> None:
        applied = self.committed - self.ours[0][1] if len(self.ours) else 0
        self.all("deleteEntriesTo", self.random.randint(0, max(0, applied)))

    def clear(self) -> None:
        self.all("clear")
        self.next_index = self.committed = self.random.randint(1, 30)
        self.all("add", b"\1", self.next_index, 1)
        self.next_index += 1
        self.all("setRaftCommitIndex", self.committed)

    def vote(self) -> None:
        self.all("setCurrentTerm", self.random.randint(0, 5), self.random.choice((None, "a:1", 7)))

    def commit(self) -> None:
        if len(self.ours):
            self.committed = self.random.randint(
                min(self.committed, self.ours[-1][1]), self.ours[-1][1]
            )
            self.all("setRaftCommitIndex", self.committed)

    def flush(self) -> None:
        self.ours.flush()
        self.all("onOneSecondTimer")

    def reopen(self) -> None:
        self.all("onOneSecondTimer")
        self.ours._destroy()
        self.file._destroy()
        self.ours, self.file = journal_on(self.disk), FileJournal(self.path)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # FileJournal leaves its meta
def test_every_result_is_that_of_pysyncobjs_own_journals(tmp_path: Path) -> None:
    for seed in range(40):
        Trial(tmp_path, seed).run()


def test_many_entries_cost_one_sync_and_none_cost_none() -> None:
    disk = SimDisk()
    journal = RaftJournal(disk)
    journal.flush()
    for index in range(1, 101):
        journal.add(*entry(index))
    assert syncs_of(disk, journal.flush) == 1
    assert syncs_of(disk, journal.flush) == 0
    assert syncs_of(disk, lambda: journal.setRaftCommitIndex(100)) == 0
    journal.add(*entry(101))
    assert syncs_of(disk, lambda: journal.setRaftCommitIndex(101)) == 1


def test_an_entry_that_is_sent_again_is_not_written_again() -> None:
    disk = SimDisk()
    journal = filled(disk, 9)
    journal.deleteEntriesFrom(4)
    for index in range(5, 10):
        journal.add(*entry(index))
    assert syncs_of(disk, journal.flush) == 0
    journal.deleteEntriesFrom(4)
    journal.add(*entry(5))
    journal.flush()
    after = RaftJournal(disk.after_power_cut(Random(1)))
    assert len(after) == 9  # entries that were acknowledged once outlive a message cut in two
    journal.add(*entry(6, term=2))
    journal.flush()
    assert journal_on(disk.after_power_cut(Random(1)))[-2:] == [entry(5), entry(6, term=2)]


def test_many_pending_bytes_are_written_before_more_are_added() -> None:
    disk = SimDisk()
    journal = RaftJournal(disk)
    for index in range(1, 20):
        journal.add(bytes(2**20), index, 1)
    assert len(RaftJournal(disk.after_power_cut(Random(1)))) == 17


def test_cli_and_readers_see_decoded_entries_and_the_vote() -> None:
    disk = SimDisk()
    journal = journal_on(disk)
    for command, index in ((b"\1", 1), (b"\0pickle", 2), (b"\2change", 3), (b"\3version", 4)):
        journal.add(command, index, 7)
    journal.flush()
    journal.setCurrentTerm(7, "10.0.0.5:4321")
    guest = RaftWalReader(disk)
    types = [guest.get_log(index).type for index in range(1, 5)]
    assert types == [1, 0, 5, 0]  # noop, command, configuration, command
    assert guest.get_log(2) == RaftEntry(2, 7, 0, b"\0pickle")
    assert '{"term": 7, "vote": "10.0.0.5:4321"}' in guest.facts().values()


@pytest.mark.parametrize(
    ("command", "index"), [(b"x", 0), (b"x", 3), (b"x", 1), (bytes(COMMAND_SIZE_MAX + 1), 2)]
)
def test_an_invalid_entry_is_refused_and_harms_nothing(command: bytes, index: int) -> None:
    journal = filled(SimDisk(), 1)
    with pytest.raises(ValueError, match=r"entry|bytes"):
        journal.add(command, index, 1)
    with pytest.raises(ValueError, match="id must be"):
        journal.setCurrentTerm(1, ("host", 1))  # type: ignore[arg-type]
    journal.add(*entry(2))
    journal.flush()
    assert len(journal) == 2


def test_the_largest_command_comes_back(tmp_path: Path) -> None:
    command = os.urandom(64) * (COMMAND_SIZE_MAX // 64)
    journal = RaftJournal(OsDisk(tmp_path))
    journal.add(command, 1, 2**63)
    journal._destroy()
    assert RaftJournal(OsDisk(tmp_path))[0] == (command, 1, 2**63)


def test_one_owner(tmp_path: Path) -> None:
    journal = RaftJournal(OsDisk(tmp_path))
    with pytest.raises(LockedError):
        RaftJournal(OsDisk(tmp_path))
    journal._destroy()
    with pytest.raises(PoisonedError, match="closed"):
        journal.add(*entry(1))


@pytest.mark.parametrize("value", [b"{}", b"no json", b"[1]", b'{"term": "7", "vote": null}'])
def test_an_invalid_vote_is_refused(value: bytes) -> None:
    disk = SimDisk()
    with RaftWal(disk, codec=RAFT_CODEC, segment_size_max=400) as wal:
        wal.set(TERM_AND_VOTE, value)
    for _ in range(2):  # and the lock is given back
        with pytest.raises(CorruptError, match="PySyncObj"):
            journal_on(disk)


def test_the_log_of_a_raft_server_is_refused() -> None:
    disk = SimDisk()
    with RaftWal(disk, codec=RAFT_CODEC, segment_size_max=400) as wal:
        wal.store_logs([RaftEntry(1, 1, 0, b"not a pickle")])
        wal.set_uint64(b"CurrentTerm", 1)
    with pytest.raises(UnsupportedError, match="Raft server"):
        journal_on(disk)


def test_damage_is_refused() -> None:
    disk = SimDisk()
    filled(disk, 40)._destroy()
    name = next(name for name in disk.files() if name.endswith(".wal"))
    before = disk.files()[name]
    disk.flip(name, 8 * 60)
    with pytest.raises(CorruptError, match="checksum mismatch; this node must not vote"):
        journal_on(disk)
    file = disk.open(name, writable=True)
    file.write_at(0, before)
    journal_on(disk)._destroy()
    file.write_at(1500, bytes(len(before) - 1500), sync=True)
    file.close()
    with pytest.raises(CorruptError, match="must not vote"):  # it ends before its mark
        journal_on(disk)


# On a disk that crashes


class Life:
    """A journal in use, and what it may hold if it dies now.

    PySyncObj sees `seen`; the disk has `kept`.  While a call runs, the disk may come to hold any
    of `allowed`, and of `votes`: what it had, what it shall have, and what is between.
    """

    def __init__(self, disk: SimDisk, allowed: list[list[Entry]], votes: list[Vote]) -> None:
        self.disk, self.allowed, self.votes = disk, allowed, votes
        self.cuts = 0

    def begin(self) -> None:
        try:
            self.journal = journal_on(self.disk, self.count_cut)
        except HoldfastError as error:
            if self.disk.posix.fault:
                raise
            raise BrokenPromiseError("hidden", str(error)) from error
        journal = self.journal
        self.kept = journal[:]
        vote = journal.getCurrentTerm(), journal.getVotedForNodeId()
        if self.kept not in self.allowed:
            raise BrokenPromiseError("lost", f"{self.kept} is none of {self.allowed}")
        if vote not in self.votes:
            raise BrokenPromiseError("lost", f"{vote} is none of {self.votes}")
        assert all(one[1] + 1 == two[1] for one, two in pairwise(self.kept))
        assert 1 <= journal.getRaftCommitIndex() <= max([1, *(e[1] for e in self.kept)])
        self.allowed, self.votes = [self.kept], [vote]

    def count_cut(self) -> None:
        self.cuts += 1

    @property
    def next_index(self) -> int:
        return self.journal[-1][1] + 1 if len(self.journal) else self.cuts + 1

    def change(self, seen: list[Entry], step: Callable[[], None], *, settles: bool = False) -> None:
        """A call after which the disk has `seen`; a flush leaves it what contradicts nothing."""
        same = 0
        while same < min(len(seen), len(self.kept)) and seen[same] == self.kept[same]:
            same += 1
        if same == len(seen) and not settles:
            seen = self.kept
        self.allowed = [self.kept, self.kept[:same], self.journal[:], seen]
        step()
        self.kept, self.allowed = seen, [seen]

    def flush(self) -> None:
        self.change(self.journal[:], self.journal.flush)

    def settle(self) -> None:
        self.change(self.journal[:], self.journal.onOneSecondTimer, settles=True)

    def add(self, count: int, term: int) -> None:
        for _ in range(count):
            self.journal.add(*entry(self.next_index, term, "x" * (term * 37 % 50)))

    def vote(self, vote: Vote) -> None:
        self.votes = [*self.votes, vote]
        self.journal.setCurrentTerm(*vote)
        self.votes = [vote]


Step = Callable[[Life, Random], None]


def add_and_flush(life: Life, random: Random) -> None:
    life.add(random.choice((1, 3)), random.randint(1, 9))
    life.flush()


def add_only(life: Life, random: Random) -> None:
    life.add(2, random.randint(1, 9))


def replace_tail(life: Life, random: Random) -> None:
    life.journal.deleteEntriesFrom(max(0, len(life.journal) - 2))
    add_and_flush(life, random)


def tell_again(life: Life, random: Random) -> None:
    again = life.journal[-3:]
    life.journal.deleteEntriesFrom(max(0, len(life.journal) - 3))
    for one in again[: random.randint(0, 3)]:
        life.journal.add(*one)
    life.flush()
    if len(life.journal) and random.random() < 0.5:
        life.journal.take_back()
        assert life.journal[:] == life.kept


def cut_head(life: Life, random: Random) -> None:
    life.settle()
    half = len(life.journal) // 2
    step = life.journal.deleteEntriesTo
    life.change(life.journal[half:], lambda: step(half), settles=True)


def install_snapshot(life: Life, random: Random) -> None:
    first = life.next_index + random.choice((-3, 0, 5))
    life.journal.clear()
    life.journal.add(*entry(max(1, first), 5, "snapshot"))
    life.add(1, 5)
    life.flush()


def vote(life: Life, random: Random) -> None:
    life.vote((life.journal.getCurrentTerm() + 1, random.choice((None, "a:1", "b:2"))))


def commit(life: Life, random: Random) -> None:
    if len(life.journal):
        last = life.journal[-1][1]
        life.change(life.journal[:], lambda: life.journal.setRaftCommitIndex(last))
        life.settle()


def reopen(life: Life, random: Random) -> None:
    life.change(life.journal[:], life.journal._destroy, settles=True)
    life.begin()


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        add_and_flush, add_only, replace_tail, tell_again, cut_head, install_snapshot, vote,
        commit, reopen,
    )
}  # fmt: skip


class Crashes:
    """Cuts the power, and kills, at every change to the disk, in recovery too."""

    def __init__(self) -> None:
        self.fired: Counter[str] = Counter()
        self.images: set[int] = set()

    def new_life(self) -> Life:
        disk = SimDisk()
        disk.posix.fired = self.fired
        return Life(disk, [[]], [(0, None)])

    def live(self, life: Life, sequence: Sequence[str], random: Random) -> bool:
        """Did it get to the end?"""
        try:
            life.begin()
            for name in sequence:
                STEPS[name](life, random)
        except PowerLost:
            return False
        return True

    def every_crash_point(self, sequence: Sequence[str], images_per_point: int) -> None:
        at = 0
        while True:
            life = self.new_life()
            life.disk.posix.dies_at = at
            got_to_the_end = self.live(life, sequence, Random(1))
            random = Random(f"{sequence}/{at}")
            for _ in range(images_per_point):
                self.outlive(life, life.disk.after_power_cut(random), random)
            self.outlive(life, life.disk.after_kill(), random)
            if got_to_the_end:
                return
            at += 1

    def every_fault(self, sequence: Sequence[str], kind: str) -> None:
        at = 0
        while True:
            life, random = self.new_life(), Random(f"{sequence}/{kind}/{at}")
            life.disk.posix.fault = Fault(kind, at)
            try:
                self.live(life, sequence, Random(1))
            except (OSError, HoldfastError):
                if hasattr(life, "journal") and life.journal.refusal:
                    self.is_dead(life.journal)
            if life.disk.posix.calls <= at:
                return
            self.outlive(life, life.disk.after_power_cut(random), random)
            self.outlive(life, life.disk.after_kill(), random)
            at += 1

    def is_dead(self, journal: RaftJournal) -> None:
        for attempt in (
            journal.flush,
            journal.clear,
            journal.onOneSecondTimer,
            lambda: journal[-1],
            lambda: journal.setCurrentTerm(99, "z:9"),
            lambda: journal.setRaftCommitIndex(1),
            lambda: journal.add(b"", 1, 1),
        ):
            with pytest.raises(PoisonedError):
                attempt()

    def outlive(self, dead: Life, disk: SimDisk, random: Random) -> None:
        files = frozenset(disk.files().items())
        image = hash((files, repr(dead.allowed), repr(dead.votes)))
        if image in self.images:
            return
        self.images.add(image)
        life = Life(disk, list(dead.allowed), list(dead.votes))
        if random.random() < 0.3:
            disk.posix.operations, disk.posix.dies_at = 0, random.randrange(12)
            if not self.live(life, ["add_and_flush"], random):
                life.disk = disk = disk.after_power_cut(random)
        disk.posix.dies_at = None
        judge = Life(disk.after_kill(), life.allowed, life.votes)
        judge.begin()
        if random.random() < 0.2:  # it must not only be readable but go on
            add_and_flush(judge, random)
            vote(judge, random)
            Life(disk.after_power_cut(random), judge.allowed, judge.votes).begin()


CASES = (
    ("add_and_flush", "add_and_flush", "vote", "add_only", "add_and_flush"),
    ("add_and_flush", "add_and_flush", "replace_tail", "add_and_flush"),
    ("add_and_flush", "add_and_flush", "tell_again", "tell_again", "replace_tail"),
    ("add_and_flush", "add_and_flush", "add_and_flush", "cut_head", "add_and_flush", "cut_head"),
    ("add_and_flush", "install_snapshot", "add_and_flush", "install_snapshot"),
    ("vote", "add_and_flush", "vote", "commit", "vote", "reopen", "add_and_flush"),
)

FAULTY_CASES = (
    ("vote", "add_and_flush", "replace_tail", "cut_head", "commit"),
    ("add_and_flush", "install_snapshot", "vote"),
)


def examine(images_per_point: int) -> Crashes:
    crashes = Crashes()
    for case in CASES:
        crashes.every_crash_point(case, images_per_point)
    return crashes


def test_no_crash_loses_or_invents_an_entry_or_a_vote() -> None:
    crashes = examine(images_per_point=6)
    random = Random(7)
    for _ in range(8):
        crashes.every_crash_point(random.choices(list(STEPS), k=6), 3)
    assert len(crashes.images) > 1800
    assert min(crashes.fired[fate] for fate in ("torn", "old", "zero", "garbled", "kill")) > 100


@pytest.mark.parametrize("kind", ["eio", "enospc", "short write", "sync eio"])
def test_every_failure_stops_the_journal_and_loses_nothing(kind: str) -> None:
    crashes = Crashes()
    for case in FAULTY_CASES:
        crashes.every_fault(case, kind)
    assert crashes.fired[kind] > 10


def vote_in_memory(self: RaftJournal, term: int, vote: NodeId | None) -> None:
    self._term, self._vote = term, vote


def believe_in_old_entries(self: RaftJournal) -> None:
    self._gone.clear()


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("flush", lambda self: None),
        ("setCurrentTerm", vote_in_memory),
        ("_truncate", believe_in_old_entries),
        ("_cut", lambda self, stop: self._entries.__delitem__(slice(stop))),
    ],
)
def test_a_planted_bug_is_caught(
    name: str, bug: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RaftJournal, name, bug)
    with pytest.raises((BrokenPromiseError, HoldfastError, ValueError, AssertionError)):
        examine(images_per_point=3)
