"""Three real nodes on loopback, killed with kill -9: each in turn, then all at once, and again.

Nodes compact their logs all the while, so that dumps, cuts and snapshots are under way too.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from holdfast.cli.app import app
from holdfast.disk import OsDisk
from holdfast.formats.mark import Mark
from holdfast.logs.mark import read_mark
from holdfast.logs.raft_wal import RaftWalReader
from holdfast.logs.raft_wal.repair import REPAIRED

_PORTS = count(1)
MEMBER = Path(__file__).with_name("member.py")
PATIENCE_S = 60  # for a machine that has other things to do; nothing here takes a tenth of it


class Process:
    """One node, from start to kill.  What it says is heard by a thread."""

    def __init__(self, cluster: "Cluster", directory: Path, addresses: list[str]) -> None:
        self.cluster, self.state = cluster, ""
        self.is_ready = threading.Event()
        self.popen = subprocess.Popen(
            [sys.executable, str(MEMBER), str(directory), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.ear = threading.Thread(target=self.listen)
        self.ear.start()

    def listen(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            verb, _, rest = line.strip().partition(" ")
            if verb == "ack":
                self.cluster.acknowledged.append(rest)
            elif verb == "state":
                self.state = rest
            elif verb == "ready":
                self.is_ready.set()

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it is being killed
            self.popen.stdin.write(f"{line}\n")

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self.ear.join()
        assert self.popen.stdin is not None and self.popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        self.popen.stdout.close()


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory, self.acknowledged = directory, list[str]()
        self.addresses = free_addresses(3)
        self.nodes: dict[int, Process] = {}
        self.sent = self.kills = 0
        self.is_over = threading.Event()
        self.client = threading.Thread(target=self.send)

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number] = Process(self, *self.arguments(number))
        for number in numbers:
            assert self.nodes[number].is_ready.wait(PATIENCE_S), f"node {number} does not start"

    def arguments(self, number: int) -> tuple[Path, list[str]]:
        path = self.directory / str(number)
        path.mkdir(exist_ok=True)
        own, others = self.addresses[number], [*self.addresses]
        others.remove(own)
        return path, [own, *others]

    def start_in_vain(self, number: int) -> str:
        """Start a node that refuses to; return what it says."""
        path, addresses = self.arguments(number)
        command = [sys.executable, str(MEMBER), str(path), *addresses]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].popen.kill()
        for number in numbers:
            self.nodes.pop(number).kill()
            self.kills += 1

    def send(self) -> None:
        """Commands, each its own, to all nodes in turn.  None is ever sent twice."""
        while not self.is_over.wait(0.004):
            for node in list(self.nodes.values()):
                self.sent += 1
                node.tell(f"put {self.sent}")

    def go_on(self, count: int = 25) -> None:
        """Until so many more are acknowledged."""
        until = len(self.acknowledged) + count
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < until:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {until}"
            time.sleep(0.01)

    def states(self) -> list[list[str]]:
        """What each node has applied, once all of them have applied the same."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for node in self.nodes.values():
                node.tell("state")
            time.sleep(0.2)
            found = [node.state for node in self.nodes.values()]
            words = [state.split(" ")[-1].split(",") for state in found]
            is_whole = all(set(self.acknowledged) <= set(state) for state in words)
            if len(set(found)) == 1 and is_whole:
                break
        return words


def cut_below_mark(journal: Path) -> None:
    mark = read_mark(OsDisk(journal))
    assert isinstance(mark, Mark) and mark.size
    os.truncate(journal / mark.last.name, mark.size // 2)


def wait_until_it_votes(journal: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with RaftWalReader(OsDisk(journal)) as reader:
            if reader.get(REPAIRED) is None:
                return
        time.sleep(0.05)
    raise AssertionError("the node does not rejoin")


def free_addresses(wanted: int) -> list[str]:
    """Ports that were free a moment ago, below those that the kernel gives to connections; tests
    that run beside each other look in different places."""
    found: list[str] = []
    while len(found) < wanted:
        port = 20000 + os.getpid() % 90 * 100 + next(_PORTS) % 100
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(f"127.0.0.1:{port}")
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.is_over.set()
    if cluster.client.is_alive():
        cluster.client.join()
    cluster.kill(*cluster.nodes)


def test_no_kill_loses_an_acknowledged_command(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(0, 1, 2)
    cluster.client.start()
    cluster.go_on()
    for _ in range(2):
        for number in range(3):
            cluster.kill(number)
            cluster.go_on()  # two of three are enough
            cluster.start(number)
            cluster.go_on()
        cluster.kill(0, 1, 2)
        cluster.start(0, 1, 2)
        cluster.go_on()
    cluster.is_over.set()
    cluster.client.join()
    states = cluster.states()
    assert states[0] == states[1] == states[2]
    assert len(states[0]) == len(set(states[0]))
    assert set(cluster.acknowledged) <= set(states[0])  # 0 lost
    assert set(states[0]) <= {str(number) for number in range(1, cluster.sent + 1)}
    assert cluster.kills == 12
    dumps = list(tmp_path.glob("*/journal.dump"))
    assert len(dumps) == 3  # logs were compacted meanwhile


def test_a_node_that_lost_its_journal_comes_back_without_a_vote(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.start(0, 1, 2)
    cluster.client.start()
    cluster.go_on()
    cluster.kill(2)
    journal = tmp_path / "2" / "journal"
    cut_below_mark(journal)
    said = cluster.start_in_vain(2)
    assert "CorruptError" in said and "complete up to" in said
    advice = f"holdfast pysyncobj rejoin {journal} --apply"
    assert f"must not vote without what it has acknowledged: run `{advice}`" in said
    cluster.go_on()  # two of three are enough
    assert app(advice.split()[1:], standalone_mode=False) == 0
    assert "done; start the node" in capsys.readouterr().out
    cluster.start(2)
    wait_until_it_votes(journal)
    cluster.kill(0)
    cluster.go_on()  # the node is one of the two that are needed
    cluster.start(0)
    cluster.is_over.set()
    cluster.client.join()
    states = cluster.states()
    assert states[0] == states[1] == states[2]
    assert len(states[0]) == len(set(states[0]))
    assert set(cluster.acknowledged) <= set(states[0])  # 0 lost
    assert (tmp_path / "2" / "journal.lost-1").is_dir()  # nothing is deleted
