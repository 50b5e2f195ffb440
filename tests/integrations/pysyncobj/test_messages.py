"""One follower, and messages that a leader might send it."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pysyncobj import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal
from holdfast.integrations.pysyncobj.journal import Entry
from holdfast.testing import SimDisk

LEADER, OTHER = Node("leader"), Node("other")


class Recorder(Transport):  # type: ignore[misc]
    """What would be sent, and what was durable when it would."""

    def __init__(self, node: "Follower", own: Node, others: list[Node]) -> None:
        super().__init__(node, own, others)
        self.disk = node.disk
        self.sent: list[tuple[dict[str, Any], int]] = []

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        durable = RaftJournal(self.disk.after_power_cut(Random(1)), segment_size_max=4000)
        self.sent.append((message, len(durable)))
        return True


class Follower(DurableSyncObj):
    def __init__(self, dump: Path) -> None:
        self.disk = SimDisk()
        conf = SyncObjConf(
            autoTick=False,
            journalFile="/sim",
            fullDumpFile=str(dump),
            dynamicMembershipChange=True,
        )
        others = [LEADER.id, OTHER.id]
        super().__init__("me", others, conf, nodeClass=Node, transportClass=Recorder)

    def _open_journal(self, directory: str) -> RaftJournal:
        return RaftJournal(self.disk, segment_size_max=4000)

    @property
    def journal(self) -> RaftJournal:
        journal: RaftJournal = self._SyncObj__raftLog
        return journal

    @property
    def wire(self) -> Recorder:
        wire: Recorder = self._SyncObj__transport._transport
        return wire

    def hear(self, kind: str, **fields: object) -> list[tuple[dict[str, Any], int]]:
        """What it answers."""
        self.wire.sent.clear()
        message = {"type": kind, "term": 1, **fields}
        self.wire._onMessageReceived(LEADER if kind == "append_entries" else OTHER, message)
        return self.wire.sent

    def take(self, *entries: Entry, after: tuple[int, int], commit: int = 1) -> Any:
        prev = {"prevLogIdx": after[0], "prevLogTerm": after[1]}
        return self.hear("append_entries", entries=list(entries), commit_index=commit, **prev)


def entry(index: int, term: int = 1) -> Entry:
    return f"\0{index}".encode(), index, term


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path / "dump")
    follower.take(*map(entry, range(2, 11)), after=(1, 0))
    assert len(follower.journal) == 10
    yield follower
    follower.destroy()


def test_what_is_acknowledged_is_durable(follower: Follower) -> None:
    ((message, durable),) = follower.take(entry(11), entry(12), after=(10, 1))
    assert (message["next_node_idx"], message["success"], durable) == (13, True, 12)


def test_a_vote_is_durable_before_it_is_sent(follower: Follower) -> None:
    ((message, _),) = follower.hear("request_vote", term=7, last_log_index=99, last_log_term=6)
    assert message["type"] == "response_vote"
    after = RaftJournal(follower.disk.after_power_cut(Random(1)), segment_size_max=4000)
    assert (after.getCurrentTerm(), after.getVotedForNodeId()) == (7, "other")


def test_a_follower_that_gets_a_part_again_keeps_the_rest_and_votes_by_it(
    follower: Follower,
) -> None:
    ((message, _),) = follower.take(entry(4), entry(5), after=(3, 1), commit=9)
    assert message["next_node_idx"] == 6  # it claims no more than it was sent
    assert follower.raftCommitIndex == 5
    assert follower.journal[-1] == entry(10)
    assert follower.hear("request_vote", term=2, last_log_index=9, last_log_term=1) == []
    granted = follower.hear("request_vote", term=3, last_log_index=10, last_log_term=1)
    assert [message["type"] for message, _ in granted] == ["response_vote"]


def test_entries_that_contradict_the_leader_are_deleted(follower: Follower) -> None:
    ((message, durable),) = follower.take(entry(4), entry(5, 2), after=(3, 1))
    assert (message["next_node_idx"], durable) == (6, 5)
    assert follower.journal[3:] == [entry(4), entry(5, 2)]


def test_a_change_of_members_that_was_undone_stays_undone(follower: Follower) -> None:
    follower.take((b"\2\x80\x02](X\x03\x00\x00\x00addX\x01\x00\x00\x00xe.", 11, 1), after=(10, 1))
    assert {node.id for node in follower.otherNodes} == {"leader", "other", "x"}
    follower.take(after=(9, 1))
    assert {node.id for node in follower.otherNodes} == {"leader", "other"}
    assert follower.journal[-1] == entry(9)


def test_a_part_of_a_snapshot_commits_nothing(follower: Follower) -> None:
    follower.take(after=(10, 1), commit=4)
    follower.hear("append_entries", term=5, commit_index=500, serialized=(b"part", True, False))
    assert follower.raftCommitIndex == 4
    follower._SyncObj__serializer._Serializer__incomingTransmissionFile.close()


def test_the_position_of_a_command_costs_no_sync(follower: Follower) -> None:
    follower.journal.add(*entry(11))
    answer = {"type": "apply_command_response", "request_id": 1, "log_idx": 11, "log_term": 1}
    follower._SyncObj__transport.send(OTHER, answer)
    assert follower.wire.sent[-1][1] == 10
    follower._SyncObj__transport.send(OTHER, {"type": "append_entries"})
    assert follower.wire.sent[-1][1] == 11
