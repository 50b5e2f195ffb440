"""The way back of a node that lost its journal or its dump."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON
from tests.integrations.pysyncobj.single import Single
from tests.integrations.pysyncobj.test_kills import cut_below_mark, free_addresses

from holdfast.disk import OsDisk
from holdfast.errors import (
    CorruptError,
    HoldfastError,
    LockedError,
    NotFoundError,
    UnsupportedError,
)
from holdfast.integrations.pysyncobj import RaftJournal
from holdfast.integrations.pysyncobj.messages import CarefulTransport
from holdfast.integrations.pysyncobj.rejoin import apply_rejoin, plan_rejoin
from holdfast.logs.raft_wal import apply_repair, plan_repair
from holdfast.testing import SimDisk

Start = Callable[..., Single]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (address,), nodes = free_addresses(1), list[Single]()

    def start() -> Single:
        for node in nodes:
            node.destroy()
        nodes.append(Single(tmp_path, address))
        return nodes[-1]

    yield start
    for node in nodes:
        node.destroy()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of nine entries that was closed."""
    path = tmp_path / "journal"
    journal = RaftJournal(OsDisk(path))
    for index in range(1, 10):
        journal.add(b"\0command", index, 1)
    journal.setCurrentTerm(1, "a")
    journal._destroy()
    return path


def test_a_repaired_journal_does_not_vote(journal: Path) -> None:
    cut_below_mark(journal)
    with pytest.raises(CorruptError, match="must not vote"):
        RaftJournal(OsDisk(journal))
    apply_repair(OsDisk(journal), plan_repair(OsDisk(journal)))
    for _ in range(2):  # and remembers it
        repaired = RaftJournal(OsDisk(journal))
        assert repaired.is_rejoining and len(repaired) < 9
        repaired._destroy()
    repaired = RaftJournal(OsDisk(journal))
    repaired.finish_rejoin()
    assert not repaired.is_rejoining
    repaired._destroy()
    again = RaftJournal(OsDisk(journal))
    assert not again.is_rejoining
    again._destroy()


def test_a_node_that_rejoins_does_not_keep_a_term_beyond_the_leaders(journal: Path) -> None:
    """It would hear no leader of an earlier term, and may not stand for election itself."""
    cut_below_mark(journal)
    apply_repair(OsDisk(journal), plan_repair(OsDisk(journal)))
    repaired = RaftJournal(OsDisk(journal))
    assert (repaired.getCurrentTerm(), repaired.getVotedForNodeId()) == (0, None)
    repaired._destroy()


def test_a_lost_meta_store_does_not_vote_when_it_is_rebuilt(journal: Path) -> None:
    (journal / "wal-meta.db").unlink()
    with pytest.raises(CorruptError, match="must not vote"):
        RaftJournal(OsDisk(journal))
    apply_repair(OsDisk(journal), plan_repair(OsDisk(journal)))
    repaired = RaftJournal(OsDisk(journal))
    assert repaired.is_rejoining and repaired.getVotedForNodeId() is None
    repaired._destroy()


def test_a_rejoin_keeps_what_is_left_and_starts_empty(journal: Path) -> None:
    dump = journal.with_name("journal.dump")
    dump.write_bytes(b"dump")
    for number in (1, 2):
        plan = plan_rejoin(journal)
        assert plan == plan_rejoin(f"{journal}/")
        assert len(plan.steps) == (3 if number == 1 else 2)
        apply_rejoin(plan)
        assert Path(f"{journal}.lost-{number}", "wal-meta.db").exists()
        new = RaftJournal(OsDisk(journal))
        assert new.is_rejoining and not new.is_new and not len(new)
        new._destroy()
    assert Path(f"{dump}.lost-1").read_bytes() == b"dump"


def test_a_wiped_node_can_rejoin(tmp_path: Path) -> None:
    apply_rejoin(plan_rejoin(tmp_path / "journal"))
    journal = RaftJournal(OsDisk(tmp_path / "journal"))
    assert journal.is_rejoining
    journal._destroy()


def test_what_is_not_a_lost_journal_is_refused(journal: Path, tmp_path: Path) -> None:
    running = RaftJournal(OsDisk(journal))
    with pytest.raises(LockedError):
        apply_rejoin(plan_rejoin(journal))
    running._destroy()
    assert journal.is_dir() and not Path(f"{journal}.lost-1").exists()
    with pytest.raises(NotFoundError):
        plan_rejoin(tmp_path / "missing" / "journal")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(UnsupportedError, match="not a journal"):
        plan_rejoin(tmp_path / "other")
    with pytest.raises(UnsupportedError, match="is a file"):
        plan_rejoin(tmp_path / "other" / "letter.txt")
    (journal / "wal-meta.db").unlink()
    for path in journal.glob("*.wal"):
        path.unlink()
    (journal / "holdfast.mark").unlink()
    assert plan_rejoin(journal).renames  # what is left of a journal


def test_no_node_starts_while_a_rejoin_is_interrupted(
    journal: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def rename(self, path: str, new: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_rejoin(plan_rejoin(journal), Dying())  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="interrupted"):
        start()
    shutil.rmtree(journal)  # as if it was interrupted after the first step
    with pytest.raises(HoldfastError, match="interrupted"):
        start()
    apply_rejoin(plan_rejoin(journal))
    assert start().is_rejoining


def test_a_dump_without_its_journal_is_refused(start: Start, tmp_path: Path) -> None:
    node = start()
    node.write("a", "b")
    node.dump()
    node.destroy()
    shutil.rmtree(tmp_path / "journal")
    for _ in range(2):
        with pytest.raises(CorruptError, match=r"there is a dump.*must not vote"):
            start()


def test_a_cluster_of_one_goes_on_with_what_its_repair_kept(start: Start, tmp_path: Path) -> None:
    node = start()
    node.write("a", "b", "c")
    node.destroy()
    cut_below_mark(tmp_path / "journal")
    disk = OsDisk(tmp_path / "journal")
    apply_repair(disk, plan_repair(disk))
    node = start()
    assert node.is_rejoining  # until its first tick: there is no other node to ask
    node.write("d")
    assert not node.is_rejoining
    assert node.words[-1] == "d"


class Wire:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.hear: Callable[[Any, Any], None] = lambda node, message: None

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self.sent.append(message)
        return True

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802
        self.hear = callback


def test_a_node_that_rejoins_hears_no_election_and_acknowledges_no_entry() -> None:
    journal, wire, heard = RaftJournal(SimDisk()), Wire(), list[str]()
    journal._is_rejoining = True
    transport = CarefulTransport(wire, journal)
    transport.setOnMessageReceivedCallback(lambda node, message: heard.append(message["type"]))
    answer = {"type": "next_node_idx", "next_node_idx": 5, "reset": False, "success": True}
    transport.send(None, answer)
    assert wire.sent.pop() == {**answer, "success": False}
    for type in ("request_vote", "timeout_now", "apply_command"):
        wire.hear(None, {"type": type})
    assert heard == ["apply_command"]
    journal.finish_rejoin()
    transport.send(None, answer)
    assert wire.sent.pop() == answer
    wire.hear(None, {"type": "request_vote"})
    assert heard[-1] == "request_vote"


def test_a_node_that_rejoined_does_not_vote_in_that_term(start: Start, tmp_path: Path) -> None:
    """It may have voted in it already, and does not know for whom."""
    apply_rejoin(plan_rejoin(tmp_path / "journal"))
    node = start()
    node._DurableSyncObj__finish_rejoin(None, FAIL_REASON.LEADER_CHANGED)
    assert node.is_rejoining
    node._DurableSyncObj__finish_rejoin(None, FAIL_REASON.SUCCESS)
    assert not node.is_rejoining
    assert node._SyncObj__votedForNodeId == node._SyncObj__raftLog.getVotedForNodeId()
    assert node._SyncObj__votedForNodeId is not None
