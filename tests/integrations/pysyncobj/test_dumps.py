"""Dumps: on a disk that loses power, and at the start of real nodes."""

import gzip
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.integrations.pysyncobj import single
from tests.integrations.pysyncobj.single import Single
from tests.integrations.pysyncobj.test_kills import free_addresses

from holdfast.errors import CorruptError, PoisonedError
from holdfast.integrations.pysyncobj.dumps import replace_durably, sync_dump
from holdfast.testing import PowerLost, SimDisk

ROOT = Path(__file__).parents[3]


def test_a_power_cut_leaves_the_old_dump_or_the_new_one() -> None:
    seen = set()
    for dies_at in range(4):
        disk = SimDisk()
        disk.create("dump", b"old")
        disk.posix.open(f"{disk.path}/dump.tmp", 0o100)  # O_CREAT
        disk.open("dump.tmp", writable=True).write_at(0, b"new")  # as PySyncObj leaves it
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        is_done = False
        try:
            replace_durably(f"{disk.path}/dump.tmp", f"{disk.path}/dump", disk.posix)
            is_done = True
        except PowerLost:
            pass
        for seed in range(50):
            found = disk.after_power_cut(Random(seed)).files()["dump"]
            assert found == b"new" or (found == b"old" and not is_done)
            seen.add(found)
    assert is_done
    assert seen == {b"old", b"new"}


def test_a_dump_that_was_renamed_without_a_sync_is_synced() -> None:
    disk = SimDisk()
    disk.create("dump", b"old")
    disk.open("dump", writable=True).write_at(0, b"new")
    sync_dump(f"{disk.path}/dump", disk.posix)
    assert disk.after_power_cut(Random(1)).files()["dump"] == b"new"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Single]]:
    (address,), nodes = free_addresses(1), list[Single]()

    def start() -> Single:
        for node in nodes:
            node.destroy()
        nodes.append(Single(tmp_path, address))
        return nodes[-1]

    yield start
    for node in nodes:
        node.destroy()


Start = Callable[..., Single]


def test_a_node_starts_from_its_dump_and_its_journal(start: Start) -> None:
    node = start()
    node.write("a", "b", "c")
    node.dump()
    node.write("d")
    node = start()
    assert node._getRaftLogSize() > 2
    node.settle()
    assert node.words == ["a", "b", "c", "d"]


def test_a_node_starts_from_a_dump_that_a_fork_wrote(start: Start, tmp_path: Path) -> None:
    # The writer of the dump is a process of its own: a fork of this one, which has threads, warns.
    command = [sys.executable, "-W", "always:This process", "-m", single.__name__, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    node = start()
    assert node._getRaftLogSize() > 2
    node.settle()
    assert node.words == ["a", "b", "c", "d"]


def test_a_crash_between_dump_and_cut_loses_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.write("a", "b", "c")
    with monkeypatch.context() as patch:
        patch.setattr(node._SyncObj__raftLog, "deleteEntriesTo", lambda to: None)
        node.forceLogCompaction()
        for _ in range(3):
            node.doTick()
    assert node._getRaftLogSize() > 4
    node.write("delta", "echo")  # acknowledged, and in the journal only
    node = start()
    node.doTick()
    _, _, delta, echo, *_ = (command for command, _, _ in node._SyncObj__raftLog[:])
    assert b"delta" in delta and b"echo" in echo
    node.settle()
    assert node.words == ["a", "b", "c", "delta", "echo"]


def test_without_the_dump_it_needs_a_node_does_not_start(start: Start, tmp_path: Path) -> None:
    node = start()
    node.write("a", "b", "c")
    node.dump()
    (tmp_path / "journal.dump").rename(tmp_path / "aside")
    for _ in range(2):
        with pytest.raises(CorruptError, match="missing, and the journal begins with entry"):
            start()
    (tmp_path / "aside").rename(tmp_path / "journal.dump")
    node = start()
    node.settle()
    assert node.words == ["a", "b", "c"]


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def age(path: Path) -> None:
    """As if an old copy had been brought back."""
    with gzip.open(path) as file:
        state, second, first, cluster = pickle.load(file)
    older = state, (second[0], second[1] - 2, second[2]), (first[0], first[1] - 2, first[2])
    with gzip.open(path, "wb") as file:
        pickle.dump((*older, cluster), file)


@pytest.mark.parametrize("harm", [spoil, age])
def test_a_dump_that_cannot_be_used_stops_the_node(
    start: Start, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    node = start()
    node.write("a", "b", "c")
    node.dump()
    node.destroy()
    harm(tmp_path / "journal.dump")
    node = start()
    with pytest.raises(PoisonedError, match="cannot be used"):
        node.doTick()
    assert node.failure is not None
    assert len(node._SyncObj__raftLog) == 2  # and nothing was thrown away
    with pytest.raises(PoisonedError):
        node.put("d")


def test_the_head_is_not_cut_if_the_dump_cannot_be_synced(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr("holdfast.integrations.pysyncobj.node.sync_dump", fails)
    node = start()
    node.write("a", "b", "c")
    with pytest.raises(OSError, match="Input/output"):
        node.dump()
    monkeypatch.undo()
    node = start()
    node.settle()
    assert node.words == ["a", "b", "c"]
