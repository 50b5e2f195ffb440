"""Three nodes, PySyncObj's own code in each, whose disks lose power: in one process, by a seed.

Clock, network and disks are simulated.  Power goes at any change to a disk, of one node or of all,
and what was not synced is old, new, zero, garbled or torn.  Then every command that was ever
acknowledged must be in every node's state, in one order; and no term may have had two leaders.
"""

import logging
import pickle
import random as global_random
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pysyncobj.syncobj
import pytest
from pysyncobj import FAIL_REASON, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal
from holdfast.integrations.pysyncobj.messages import CarefulTransport
from holdfast.testing import BrokenPromiseError, PowerLost, SimDisk

NAMES = (1, 2, 3)  # numbers, because PySyncObj has sets of nodes, and a seed must mean one run


class Wire(Transport):  # type: ignore[misc]
    """A transport whose messages lie in the cluster's hands."""

    def __init__(self, node: "Member", own: Node, others: list[Node]) -> None:
        super().__init__(node, own, others)
        self.cluster, self.own = node.cluster, own

    def send(self, node: Node, message: Any) -> bool:
        return self.cluster.post(self.own.id, node.id, pickle.dumps(message))


class Member(DurableSyncObj):
    def __init__(self, cluster: "Cluster", name: int) -> None:
        self.cluster = cluster
        conf = SyncObjConf(
            autoTick=False,
            journalFile=f"/sim/{name}",
            appendEntriesUseBatch=cluster.random.random() < 0.7,
        )
        others = [other for other in NAMES if other != name]
        super().__init__(name, others, conf, nodeClass=Node, transportClass=Wire)
        self.state: list[str] = []

    def _open_journal(self, directory: str) -> RaftJournal:
        return RaftJournal(self.cluster.disks[int(directory[-1])], segment_size_max=2000)

    @replicated  # type: ignore[untyped-decorator]
    def append(self, command: str) -> None:
        self.state.append(command)


class Cluster:
    def __init__(self, seed: int) -> None:
        self.random, self.now = Random(seed), 0.0
        self.disks = {name: SimDisk() for name in NAMES}
        self.nodes: dict[int, Member] = {}
        self.wires: dict[tuple[int, int], deque[bytes]] = {}
        self.acknowledged: list[str] = []
        self.sent = self.cuts = 0
        self.leaders: dict[int, int] = {}

    # The network: in order between two nodes, lost when one of them dies

    def post(self, source: int, target: int, message: bytes) -> bool:
        if target not in self.nodes:
            return False
        self.wires.setdefault((source, target), deque()).append(message)
        return True

    def deliver(self) -> None:
        wires = [wire for wire, messages in self.wires.items() if messages]
        if wires:
            self.deliver_from(*self.random.choice(wires))

    def deliver_from(self, source: int, target: int) -> None:
        messages = self.wires.get((source, target))
        if messages:
            message = pickle.loads(messages.popleft())
            wire = transport_of(self.nodes[target])
            self.run(target, lambda: wire._onMessageReceived(Node(source), message))

    # Life and death

    def start(self, name: int) -> None:
        def begin() -> None:
            self.nodes[name] = Member(self, name)
            for other in [other for other in self.nodes if other != name]:
                transport_of(self.nodes[name])._onNodeConnected(Node(other))
                transport_of(self.nodes[other])._onNodeConnected(Node(name))

        posix = self.disks[name].posix
        posix.operations = 0
        posix.dies_at = self.random.choice((None, 3, 8, 20, 40)) if self.is_stormy else None
        self.run(name, begin)

    def run(self, name: int, step: Callable[[], None]) -> None:
        before = self.term_of(name)
        try:
            step()
        except PowerLost:
            self.cut(name)
        if self.is_stormy and before != self.term_of(name) and self.random.random() < 0.15:
            self.cut(name)  # it has voted, and may soon be asked again

    def term_of(self, name: int) -> int:
        return self.nodes[name].raftCurrentTerm if name in self.nodes else 0

    def cut(self, name: int) -> None:
        self.cuts += 1
        self.nodes.pop(name, None)
        disk = self.disks[name]
        is_kill = self.random.random() < 0.2
        self.disks[name] = disk.after_kill() if is_kill else disk.after_power_cut(self.random)
        for other in list(self.nodes):
            # What is on its way is heard, or a part of it, before the connection is found broken.
            for _ in range(self.random.choice((0, 1, 2, 99))):
                if other in self.nodes:
                    self.deliver_from(name, other)
            if other in self.nodes:
                transport_of(self.nodes[other])._onNodeDisconnected(Node(name))
        for wire in self.wires:
            if name in wire:
                self.wires[wire].clear()

    # Steps

    is_stormy = True

    def step(self) -> None:
        chance = self.random.random()
        if self.is_stormy and chance < 0.001:
            for name in list(self.nodes):
                self.cut(name)
        elif self.is_stormy and chance < 0.003 and self.nodes:
            self.cut(self.random.choice(list(self.nodes)))
        for name in NAMES:
            if name not in self.nodes and chance < 0.05:
                self.start(name)
        for _ in range(self.random.randint(0, 8)):
            self.deliver()
        if self.nodes:
            name = self.random.choice(list(self.nodes))
            node = self.nodes[name]
            if chance > 0.8 and self.is_stormy:
                self.submit(node)
            self.run(name, node.doTick)
            if node._isLeader() and self.leaders.setdefault(node.raftCurrentTerm, name) != name:
                raise BrokenPromiseError("lost", f"two leaders in term {node.raftCurrentTerm}")
        self.now += self.random.random() * 0.02

    def submit(self, node: Member) -> None:
        self.sent += 1
        command = f"command {self.sent}"

        def hear(_: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                self.acknowledged.append(command)

        node.append(command, callback=hear)

    def calm(self) -> None:
        """No more storms, until all are of one mind."""
        self.is_stormy = False
        for name in NAMES:
            self.disks[name].posix.dies_at = None
        for _ in range(6000):
            self.step()
            nodes = self.nodes.values()
            ends = {end for node in nodes for end in (node.raftLastApplied, last_index_of(node))}
            if len(nodes) == 3 and len(ends) == 1 and any(node._isLeader() for node in nodes):
                return self.judge([node.state for node in nodes])
        raise BrokenPromiseError("hidden", f"they do not come to an end: {ends}")

    def judge(self, states: list[list[str]]) -> None:
        if not states[0] == states[1] == states[2]:
            raise BrokenPromiseError("lost", "the states differ")
        if lost := set(self.acknowledged) - set(states[0]):
            raise BrokenPromiseError("lost", f"{sorted(lost)}")
        if len(set(states[0])) != len(states[0]):
            raise BrokenPromiseError("invented", "a command was applied twice")


def last_index_of(node: Member) -> int:
    last: int = node._SyncObj__raftLog[-1][1]
    return last


def transport_of(node: Member) -> Any:
    return node._SyncObj__transport


@pytest.fixture(autouse=True)
def still_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # thousands of recoveries and elections
    yield
    logging.disable(logging.NOTSET)


def storm(seed: int, monkeypatch: pytest.MonkeyPatch, steps: int = 1500) -> Cluster:
    cluster = Cluster(seed)
    monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: cluster.now)
    global_random.seed(seed)  # PySyncObj's election timeouts
    for _ in range(steps):
        cluster.step()
    cluster.calm()
    return cluster


def test_no_power_cut_loses_an_acknowledged_command(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [storm(seed, monkeypatch) for seed in range(12)]
    cuts = sum(cluster.cuts for cluster in clusters)
    acknowledged = sum(len(cluster.acknowledged) for cluster in clusters)
    assert cuts > 100
    assert acknowledged > 500


def vote_in_memory(self: RaftJournal, term: int, vote: int | None) -> None:
    self._term, self._vote = term, vote


def send_at_once(self: CarefulTransport, node: Node, message: Any) -> Any:
    return self._transport.send(node, message)


@pytest.mark.parametrize(
    ("where", "name", "bug", "seed"),  # from which on to look: the first that shows it
    [
        (RaftJournal, "flush", lambda self: None, 1),
        (RaftJournal, "setCurrentTerm", vote_in_memory, 34),
        (CarefulTransport, "send", send_at_once, 128),
    ],
)
def test_a_planted_bug_is_caught(
    where: type, name: str, bug: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(BrokenPromiseError):
        for one in range(seed, seed + 200):
            storm(one, monkeypatch)
