"""How a durable node begins, and how it stops."""

import builtins
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pysyncobj.syncobj
import pytest
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, SyncObjException, replicated
from pysyncobj.batteries import ReplCounter
from tests.integrations.pysyncobj.test_kills import free_addresses

from holdfast.disk import OsDisk
from holdfast.errors import LockedError, MissingError, PoisonedError, UnsupportedError
from holdfast.integrations import pysyncobj as integration
from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal
from holdfast.integrations.pysyncobj.journal import COMMAND_SIZE_MAX
from holdfast.testing import Fault, SimDisk

WAIT_S = 30


class Single(DurableSyncObj):
    """A cluster of one with a thread of its own, on a disk that can fail."""

    def __init__(self, path: Path, disk: SimDisk | None = None, **options: Any) -> None:
        self.sim_disk = disk
        (address,) = free_addresses(1)
        self.given = SyncObjConf(
            journalFile=str(path / "journal"),
            bindAddress=address,
            autoTickPeriod=0.01,
            raftMinTimeout=0.07,
            raftMaxTimeout=0.09,
            appendEntriesPeriod=0.02,
            **options,
        )
        super().__init__(address, [], self.given)
        self.words: list[str] = []

    def _open_journal(self, directory: str) -> RaftJournal:
        if self.sim_disk is None:
            return super()._open_journal(directory)
        return RaftJournal(self.sim_disk, segment_size_max=4000)

    @replicated  # type: ignore[untyped-decorator]
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def node(tmp_path: Path, disk: SimDisk) -> Iterator[Single]:
    node = Single(tmp_path, disk)
    assert node.put("a", sync=True, timeout=WAIT_S) == 1
    yield node
    node.destroy_synchronous()


def fail_from_now_on(disk: SimDisk) -> None:
    disk.posix.calls = 0
    disk.posix.fault = Fault("sync eio", 0, always=True)


def test_acknowledged_commands_survive_a_restart(tmp_path: Path) -> None:
    for life in range(2):
        node = Single(tmp_path)
        assert node.put(f"word {life}", sync=True, timeout=WAIT_S) == life + 1
        with pytest.raises(LockedError):
            Single(tmp_path)
        node.destroy_synchronous()
    assert node.given.journalFile == node.conf.journalFile == str(tmp_path / "journal")
    assert node.conf.fullDumpFile == str(tmp_path / "journal.dump")
    assert node.given.fullDumpFile is None  # the caller's conf is his own


def test_a_failed_sync_acknowledges_nothing_and_stops_the_node(
    node: Single, disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    fail_from_now_on(disk)
    with pytest.raises(SyncObjException) as raised:
        node.put("b", sync=True, timeout=WAIT_S)
    assert raised.value.errorCode == FAIL_REASON.UNKNOWN_OUTCOME
    assert node.words == ["a"]
    deadline = time.monotonic() + WAIT_S
    while node.tick_thread_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not node.tick_thread_alive()
    assert node.failure is not None and "Input/output error" in node.failure
    assert any("has stopped" in record.message for record in caplog.records)
    with pytest.raises(PoisonedError, match="start the node again"):
        node.put("c")
    disk.posix.fault = None
    again = RaftJournal(disk.after_kill(), segment_size_max=4000)
    assert any(b"a" in command for command, _, _ in again[:])


def test_ticked_by_hand_a_failed_node_keeps_raising(tmp_path: Path, disk: SimDisk) -> None:
    node = Single(tmp_path, disk, autoTick=False)
    fail_from_now_on(disk)
    with pytest.raises(OSError, match="Input/output"):
        for _ in range(200):
            node.doTick(0.01)
    disk.posix.fault = None  # that the disk is well again changes nothing
    with pytest.raises(PoisonedError):
        node.doTick()
    node.destroy()


def test_an_error_of_the_application_does_not_stop_the_node(node: Single) -> None:
    failed_once = threading.Event()

    def fail_once() -> None:
        if not failed_once.is_set():
            failed_once.set()
            raise RuntimeError("mine")

    node.addOnTickCallback(fail_once)
    assert failed_once.wait(WAIT_S)
    assert node.put("b", sync=True, timeout=WAIT_S) == 2
    assert node.failure is None


class Theirs(SyncObj):  # type: ignore[misc]
    """Somebody's node, which knows nothing of us."""

    def __init__(self, own: str, others: list[str], conf: SyncObjConf, greeting: str) -> None:
        self.counter = ReplCounter()
        super().__init__(own, others, conf, consumers=[self.counter])
        self.greeting = greeting


class OursOfTheirs(DurableSyncObj, Theirs): ...


def test_a_node_of_another_class_and_its_consumers_become_durable(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    for life in range(2):
        conf = SyncObjConf(
            journalFile=tmp_path / "journal",
            bindAddress=address,
            autoTickPeriod=0.01,
            raftMinTimeout=0.07,
            raftMaxTimeout=0.09,
            appendEntriesPeriod=0.02,
            logCompactionMinEntries=5,
            useFork=False,  # a child would hold the port, and we start again at once
        )
        node = OursOfTheirs(address, [], conf, "hello")
        for number in range(10):
            counted = node.counter.inc(sync=True, timeout=WAIT_S)
            assert counted == 10 * life + number + 1
        assert (node.greeting, node.failure) == ("hello", None)
        node.destroy_synchronous()
    assert (tmp_path / "journal.dump").exists()


def test_a_command_that_is_too_large_is_refused_at_once(node: Single) -> None:
    with pytest.raises(ValueError, match=r"at most \d+ fit"):
        node.put("x" * COMMAND_SIZE_MAX)
    assert node.put("b", sync=True, timeout=WAIT_S) == 2


def test_no_two_processes_number_their_requests_alike(tmp_path: Path) -> None:
    numbers = []
    for _ in range(2):
        node = Single(tmp_path, autoTick=False)
        numbers.append(node._SyncObj__commandsLocalCounter)
        node.destroy()
    assert abs(numbers[0] - numbers[1]) > 2**32


def test_a_journal_directory_is_required_and_a_file_journal_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="journalFile"):
        DurableSyncObj("127.0.0.1:1", [])
    (tmp_path / "journal").write_bytes(b"PYSYNCOBJ")
    with pytest.raises(UnsupportedError, match="FileJournal"):
        Single(tmp_path)


def test_an_unknown_pysyncobj_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(self: Any, *_: Any, **__: Any) -> None:
        self._SyncObj__log = pysyncobj.syncobj.createJournal(None)

    monkeypatch.setattr(SyncObj, "__init__", renamed)
    with pytest.raises(UnsupportedError, match="not supported"):
        Single(tmp_path)


def test_a_missing_pysyncobj_raises_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "pysyncobj":
            raise ModuleNotFoundError(f"No module named {name!r}", name="pysyncobj")
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "holdfast.integrations.pysyncobj.node", raising=False)
    monkeypatch.delattr(integration, "node", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingError, match=r"holdfast\[pysyncobj\]"):
        _ = integration.DurableSyncObj
    with pytest.raises(AttributeError):
        _ = integration.Nothing


_FORKER = """
import os, sys, time
from holdfast.disk import OsDisk
from holdfast.integrations.pysyncobj import RaftJournal
journal = RaftJournal(OsDisk(sys.argv[1]))
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_child_that_still_writes_a_dump_does_not_keep_the_journal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FORKER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with pytest.raises(LockedError):
            RaftJournal(OsDisk(tmp_path))
        process.kill()
        process.wait()
        os.kill(child, 0)  # the child is there
        RaftJournal(OsDisk(tmp_path))._destroy()
        os.kill(child, signal.SIGKILL)
