"""Three nodes, PySyncObj's own code in each, whose disks lose power: in one process, by a seed.

Clock, network and disks are simulated.  Power goes at any change to a disk, of one node or of all,
and what was not synced is old, new, zero, garbled or torn.  Then every command that was ever
acknowledged must be in every node's state, in one order; no term may have had two leaders, and no
two nodes may have applied different entries at one index.

While a node is down, its journal may be damaged below its mark or deleted: one node at a time, as
the others must be whole.  Then it must refuse to start until an operator repairs or replaces its
journal, and it must not harm the cluster when it is back.  In these runs nodes are also isolated:
their messages are delayed, so that a leader may be deposed and not know it.

A seed is one run, whatever Python does: clocks are simulated, no thread runs, and a descriptor that
the garbage collector closes changes nothing.
"""

import pickle
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from pysyncobj import FAIL_REASON, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from holdfast.errors import CorruptError
from holdfast.formats.mark import Mark
from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal
from holdfast.integrations.pysyncobj.journal import Entry
from holdfast.logs.mark import MARK, recall_mark
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, apply_repair, plan_repair
from holdfast.logs.raft_wal.marks import word_of
from holdfast.logs.raft_wal.meta_store import META_STORE, MetaStore
from holdfast.logs.raft_wal.repair import REPAIRED
from holdfast.runtime import Runtime
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
        cluster = self.cluster
        disk = cluster.disks[int(directory[-1])]
        return RaftJournal(disk, segment_size_max=2000, runtime=cluster.runtime)

    @replicated  # type: ignore[untyped-decorator]
    def append(self, command: str) -> None:
        self.state.append(command)


class NoTicker:
    """A timer that never fires: no thread runs in a simulation."""

    def __init__(self, interval_ms: float, step: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Cluster:
    def __init__(self, seed: int, *, harms: bool = False) -> None:
        self.random, self.now, self.harms = Random(seed), 0.0, harms
        self.runtime = Runtime(now_ns=lambda: 10**18 + int(self.now * 10**9), ticker=NoTicker)
        self.disks = {name: SimDisk() for name in NAMES}
        self.nodes: dict[int, Member] = {}
        self.wires: dict[tuple[int, int], deque[bytes]] = {}
        self.acknowledged: list[str] = []
        self.sent = self.cuts = 0
        self.leaders: dict[int, int] = {}
        self.applied: dict[int, Entry] = {}
        self.judged = dict.fromkeys(NAMES, 0)  # how far the entries that a node applied are judged
        self.lost: int | None = None  # the node whose journal was damaged, until it has all again
        self.is_refused = self.is_replaced = False  # its journal has been
        self.rejoined = 0
        self.isolated: int | None = None  # the node whose messages are delayed

    # The network: in order between two nodes, lost when one of them dies

    def post(self, source: int, target: int, message: bytes) -> bool:
        if target not in self.nodes:
            return False
        self.wires.setdefault((source, target), deque()).append(message)
        return True

    def deliver(self) -> None:
        wires = [
            wire for wire, messages in self.wires.items() if messages and self.isolated not in wire
        ]
        if wires:
            self.deliver_from(*self.random.choice(wires))

    def deliver_from(self, source: int, target: int) -> None:
        messages = self.wires.get((source, target))
        if messages and self.isolated not in (source, target):
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

        self.judged[name] = 0
        posix = self.disks[name].posix
        posix.operations = 0
        posix.dies_at = self.random.choice((None, 3, 8, 20, 40)) if self.is_stormy else None
        try:
            self.run(name, begin)
        except CorruptError as error:
            if name != self.lost or self.is_replaced or "must not vote" not in str(error):
                raise BrokenPromiseError(
                    "hidden", f"a whole journal is refused: {error}"
                ) from error
            self.bring_back(name)
        if name == self.lost and name in self.nodes and not self.is_refused:
            raise BrokenPromiseError("hidden", "a damaged journal is taken for a whole one")

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

        if self.harms and self.lost is None and self.random.random() < 0.3:
            self.harm(name)

    # Lost journals

    def harm(self, name: int) -> None:
        """Damage or delete what lies below the mark of a journal whose node is down."""
        disk = self.disks[name]
        mark = recall_mark(disk)  # durable: no power cut takes it back
        names = [name for name in sorted(disk.list()) if name.endswith(".wal")]
        with MetaStore(disk, read_only=True) as store:
            txid = store.txid
        # A newer transaction lowers the mark: what it names may be removed already.
        if not isinstance(mark, Mark) or mark.word != word_of(txid) or mark.last_index < 2:
            return
        self.lost, self.is_refused, self.is_replaced = name, False, False
        harm = self.random.choice(("cut", "cut", "flip", "delete", "wipe"))
        if harm == "wipe":  # nobody can tell, so the operator must: see the page
            self.replace(name)
        elif harm == "delete":
            disk.remove(self.random.choice((*names, META_STORE, MARK)))
        elif mark.size > 40:
            file = disk.open(mark.last.name, writable=True)
            place = self.random.randrange(40, mark.size)
            if harm == "cut":
                file.resize(place)
            else:
                file.write_at(place, bytes([file.read_at(place, 1)[0] ^ 1]))
            file.sync()
            file.close()
        else:
            self.lost = None

    def bring_back(self, name: int) -> None:
        """Do what an operator may do with a journal that is refused."""
        if self.is_refused or self.random.random() < 0.5:
            self.replace(name)
        else:
            self.is_refused = True
            disk = self.disks[name] = self.disks[name].after_kill()
            apply_repair(disk, plan_repair(disk))

    def replace(self, name: int) -> None:
        """Do what `holdfast pysyncobj rejoin` does."""
        self.is_refused = self.is_replaced = True
        disk = SimDisk()
        with RaftWal(disk, codec=RAFT_CODEC, runtime=self.runtime) as wal:
            wal.set(REPAIRED, b"lost: everything")
        self.disks[name] = disk.after_kill()

    def look_at_lost(self) -> None:
        node = self.nodes.get(self.lost or 0)
        if node is not None and not journal_of(node)._is_rejoining:
            self.lost, self.rejoined = None, self.rejoined + 1

    # Steps

    is_stormy = True

    def step(self) -> None:
        chance = self.random.random()
        if self.is_stormy:
            self.disturb(chance)
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
            self.judge_applied(name)
            self.look_at_lost()
            if node._isLeader() and self.leaders.setdefault(node.raftCurrentTerm, name) != name:
                raise BrokenPromiseError("lost", f"two leaders in term {node.raftCurrentTerm}")
        self.now += self.random.random() * 0.02

    def disturb(self, chance: float) -> None:
        if chance < 0.001:
            for name in list(self.nodes):
                self.cut(name)
        elif chance < 0.003 and self.nodes:
            self.cut(self.random.choice(list(self.nodes)))
        if self.harms and self.random.random() < 0.01:
            self.isolated = self.random.choice((None, *NAMES))

    def judge_applied(self, name: int) -> None:
        if name in self.nodes:
            node, start = self.nodes[name], self.judged[name]
            for entry in journal_of(node)[start : node.raftLastApplied]:  # nothing is compacted
                if self.applied.setdefault(entry[1], entry) != entry:
                    raise BrokenPromiseError("lost", f"two entries were committed at {entry[1]}")
            self.judged[name] = node.raftLastApplied

    def submit(self, node: Member) -> None:
        self.sent += 1
        command = f"command {self.sent}"

        def hear(_: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                self.acknowledged.append(command)

        node.append(command, callback=hear)

    def calm(self) -> None:
        """No more storms, until all are of one mind."""
        self.is_stormy, self.isolated = False, None
        for name in NAMES:
            self.disks[name].posix.dies_at = None
        for _ in range(6000):
            self.step()
            nodes = self.nodes.values()
            ends = {
                end for node in nodes for end in (node.raftLastApplied, journal_of(node)[-1][1])
            }
            is_led = any(node._isLeader() for node in nodes)
            if len(nodes) == 3 and self.lost is None and len(ends) == 1 and is_led:
                return self.judge([node.state for node in nodes])
        raise BrokenPromiseError("hidden", f"they do not come to an end: {ends}")

    def judge(self, states: list[list[str]]) -> None:
        if not states[0] == states[1] == states[2]:
            raise BrokenPromiseError("lost", "the states differ")
        if lost := set(self.acknowledged) - set(states[0]):
            raise BrokenPromiseError("lost", f"{sorted(lost)}")
        if len(set(states[0])) != len(states[0]):
            raise BrokenPromiseError("invented", "a command was applied twice")


def journal_of(node: Member) -> RaftJournal:
    journal: RaftJournal = node._SyncObj__raftLog
    return journal


def transport_of(node: Member) -> Any:
    return node._SyncObj__transport
