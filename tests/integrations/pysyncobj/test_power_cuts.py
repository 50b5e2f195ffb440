"""A cluster whose nodes lose power, by a seed; and one whose journals are damaged meanwhile."""

import gc
import logging
import random as global_random
from collections.abc import Iterator
from typing import Any

import pysyncobj.syncobj
import pytest
from pysyncobj import FAIL_REASON
from pysyncobj.node import Node
from tests.integrations.pysyncobj.cluster import Cluster

from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal, messages
from holdfast.integrations.pysyncobj.messages import CarefulTransport
from holdfast.logs.mark import Recalled
from holdfast.logs.raft_wal import writer
from holdfast.logs.raft_wal.repair import REPAIRED
from holdfast.testing import BrokenPromiseError


@pytest.fixture(autouse=True)
def still_world() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # thousands of recoveries and elections
    yield
    logging.disable(logging.NOTSET)


def storm(seed: int, monkeypatch: pytest.MonkeyPatch, *, harms: bool = False) -> Cluster:
    cluster = Cluster(seed, harms=harms)
    monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: cluster.now)
    monkeypatch.setattr(writer, "Runtime", lambda: cluster.runtime)  # of the repair tool
    global_random.seed(seed)  # PySyncObj's election timeouts
    for _ in range(1500):
        cluster.step()
    cluster.calm()
    return cluster


def test_no_power_cut_loses_an_acknowledged_command(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [storm(seed, monkeypatch) for seed in range(12)]
    assert sum(cluster.cuts for cluster in clusters) > 100
    assert sum(len(cluster.acknowledged) for cluster in clusters) > 500


def test_no_lost_journal_loses_an_acknowledged_command(monkeypatch: pytest.MonkeyPatch) -> None:
    # In 20, a repaired node had a higher term than the leader, and could not come back.
    clusters = [storm(seed, monkeypatch, harms=True) for seed in (*range(14), 20)]
    assert sum(cluster.rejoined for cluster in clusters) > 15
    assert sum(len(cluster.acknowledged) for cluster in clusters) > 500


@pytest.mark.parametrize("seed", [1, 5])
def test_a_seed_is_one_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector closes descriptors of dead nodes at any time, and changes nothing."""
    thresholds = gc.get_threshold()
    runs = []
    try:
        for threshold in (0, 50, thresholds[0]):
            gc.set_threshold(threshold)
            cluster = storm(seed, monkeypatch, harms=True)
            files = [disk.files() for disk in cluster.disks.values()]
            runs.append((cluster.acknowledged, cluster.leaders, cluster.now, cluster.cuts, files))
    finally:
        gc.set_threshold(*thresholds)
    assert runs[0] == runs[1] == runs[2]


def vote_in_memory(self: RaftJournal, term: int, vote: int | None) -> None:
    self._term, self._vote = term, vote


def send_at_once(self: CarefulTransport, node: Node, message: Any) -> Any:
    return self._transport.send(node, message)


@pytest.mark.parametrize(
    ("where", "name", "bug", "seed"),  # the first that shows it
    [
        (RaftJournal, "flush", lambda self: None, 0),
        (RaftJournal, "setCurrentTerm", vote_in_memory, 3),
        (CarefulTransport, "send", send_at_once, 260),
    ],
)
def test_a_planted_bug_is_caught(
    where: type, name: str, bug: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(BrokenPromiseError, match="lost"):
        storm(seed, monkeypatch)


_open = RaftJournal._open


def vote_at_once(self: RaftJournal, *arguments: Any) -> None:
    """Take a repaired journal for a whole one."""
    _open(self, *arguments)
    if self._wal.get(REPAIRED) is not None:
        self._wal.set(REPAIRED, None)


def acknowledge(self: CarefulTransport, node: Node, message: Any) -> Any:
    """Count for a majority while it rejoins."""
    if message["type"] not in messages._NO_PROMISE:
        self._journal.flush()
    return self._transport.send(node, message)


def finish_at_once(self: DurableSyncObj) -> None:
    """Vote as soon as there is a leader, before the node has what it lost."""
    if self._getLeader() is not None:
        self._DurableSyncObj__finish_rejoin(None, FAIL_REASON.SUCCESS)


@pytest.mark.parametrize(
    ("where", "name", "bug", "seed"),
    [
        (RaftJournal, "_open", vote_at_once, 2),
        (messages, "_ELECTIONS", (), 12),  # a node that rejoins votes if it is asked
        (CarefulTransport, "send", acknowledge, 13),
        (DurableSyncObj, "_DurableSyncObj__rejoin", finish_at_once, 13),
        (writer, "recall", lambda *_: Recalled(None, None), 0),  # the mark is ignored
    ],
)
def test_a_bug_planted_in_the_way_back_is_caught(
    where: Any, name: str, bug: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(BrokenPromiseError):
        storm(seed, monkeypatch, harms=True)
