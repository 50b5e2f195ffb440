import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, HoldfastError, OutOfRangeError
from holdfast.logs.replicas import Follower, Replicas
from holdfast.logs.shanghai import Retention, ShanghaiGuest, ShanghaiLog
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.log_contract import contents


def test_register_acknowledge_list_forget() -> None:
    replicas = Replicas(SimDisk(), now_ms=lambda: 5)
    assert replicas.list() == []
    replicas.register("b", 3)
    replicas.register("a")
    replicas.acknowledge("a", 7)
    assert [(r.name, r.acknowledged, r.updated_ms) for r in replicas.list()] == [
        ("a", 7, 5),
        ("b", 3, 5),
    ]
    with pytest.raises(ValueError, match="already acknowledged 7"):
        replicas.acknowledge("a", 6)
    replicas.forget("a")
    with pytest.raises(HoldfastError, match="no replica 'a'"):
        replicas.acknowledge("a", 8)
    with pytest.raises(ValueError, match="negative"):
        replicas.register("c", -1)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0", "x" * 65, "é"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(ValueError, match="no replica name"):
        Replicas(SimDisk()).register(name)


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b'{"acknowledged": "x"}'])
def test_a_state_that_cannot_be_read_stops_compaction(content: bytes) -> None:
    disk = SimDisk()
    log = ShanghaiLog(disk)
    log.append([b"x"])
    log.rotate()
    disk.create("replicas/b.json", content)
    with pytest.raises(CorruptError, match="register it again"):
        log.compact(Retention(before=100))
    assert contents(log) == [b"x"]


def test_an_acknowledgement_survives_any_crash() -> None:
    for dies_at in range(12):
        disk = SimDisk()
        Replicas(disk).register("b", 1)
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        acknowledged = 1
        try:
            Replicas(disk).acknowledge("b", 2)
            acknowledged = 2
        except PowerLost:
            pass
        for seed in range(20):
            after = Replicas(disk.after_power_cut(Random(seed))).get("b").acknowledged
            assert acknowledged <= after <= 2


def pair() -> tuple[SimDisk, ShanghaiLog, SimDisk]:
    source_disk = SimDisk()
    source = ShanghaiLog(source_disk, segment_size_max=200)
    for number in range(50):
        source.append([b"%d" % number])
    return source_disk, source, SimDisk()


def test_a_follower_copies_in_bounded_batches_and_acknowledges() -> None:
    source_disk, source, target_disk = pair()
    target = ShanghaiLog(target_disk)
    replicas = Replicas(source_disk)
    follower = Follower(ShanghaiGuest(source_disk), target, replicas, "b")
    assert follower.lag == 50
    assert follower.step(size_max=1) == 1
    assert replicas.get("b").acknowledged == 1
    while follower.step():
        assert replicas.get("b").acknowledged == target.last_index
    assert contents(target) == contents(source)
    source.append([b"more"])
    assert follower.step() == 1
    assert target.read(51) == b"more"


def test_a_follower_resumes_after_any_crash_of_the_target() -> None:
    source_disk, source, _ = pair()
    for dies_at in range(0, 60, 3):
        target_disk = SimDisk()
        target_disk.posix.dies_at = dies_at
        replicas = Replicas(source_disk)
        replicas.register("b", 0)
        try:
            follower = Follower(ShanghaiGuest(source_disk), ShanghaiLog(target_disk), replicas, "b")
            while follower.step(size_max=100):
                pass
        except PowerLost:
            pass
        acknowledged = replicas.get("b").acknowledged
        target = ShanghaiLog(target_disk.after_power_cut(Random(dies_at)))
        assert target.last_index >= acknowledged
        follower = Follower(ShanghaiGuest(source_disk), target, replicas, "b")
        while follower.step():
            pass
        assert contents(target) == contents(source)


def test_divergence_and_gaps_are_refused() -> None:
    source_disk, source, target_disk = pair()
    target = ShanghaiLog(target_disk)
    target.append([b"something else"])
    replicas = Replicas(source_disk)
    with pytest.raises(HoldfastError, match="entry 1 differs"):
        Follower(ShanghaiGuest(source_disk), target, replicas, "b")
    longer = ShanghaiLog(SimDisk(), first_index=60)
    longer.append([b"x"])
    with pytest.raises(HoldfastError, match="target ends at 60, the source at 50"):
        Follower(ShanghaiGuest(source_disk), longer, replicas, "c")
    for replica in replicas.list():
        replicas.forget(replica.name)
    source.compact(Retention(before=40))
    late = Follower(ShanghaiGuest(source_disk), ShanghaiLog(SimDisk()), replicas, "d")
    with pytest.raises(OutOfRangeError, match="start a new target there"):
        late.step()


def wait_for_more(source: Path, acknowledged: int) -> int:
    """Both sides are at work when more has been acknowledged."""
    for _ in range(3000):
        found = [replica.acknowledged for replica in Replicas(OsDisk(source)).list()]
        if found and found[0] > acknowledged:
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no progress in 30 seconds")


def test_following_survives_kills_on_both_sides(tmp_path: Path) -> None:
    """Real processes: the writer and the follower are killed in turn, then compared."""
    source, target = tmp_path / "source", tmp_path / "target"
    ShanghaiLog(OsDisk(source)).close()
    follow = (
        "import sys, time; from holdfast.disk import OsDisk;"
        "from holdfast.logs.replicas import *; from holdfast.logs.shanghai import *;"
        "d = OsDisk(sys.argv[1]);"
        "f = Follower(ShanghaiGuest(d), ShanghaiLog(OsDisk(sys.argv[2])), Replicas(d), 'b');\n"
        "while True: f.step(5000) or time.sleep(0.01)"
    )
    write = [sys.executable, "-m", "holdfast.testing.writer", str(source)]
    commands = (write, [sys.executable, "-c", follow, str(source), str(target)])
    running = [subprocess.Popen(c, stdout=subprocess.DEVNULL) for c in commands]
    try:
        acknowledged = 0
        for turn in range(6):
            acknowledged = wait_for_more(source, acknowledged)
            which = turn % 2
            os.kill(running[which].pid, signal.SIGKILL)
            assert running[which].wait() == -signal.SIGKILL
            running[which] = subprocess.Popen(commands[which], stdout=subprocess.DEVNULL)
        wait_for_more(source, acknowledged)
    finally:
        for process in running:
            process.kill()
            process.wait()
    log, copy = ShanghaiLog(OsDisk(source)), ShanghaiLog(OsDisk(target))
    acknowledged = Replicas(OsDisk(source)).get("b").acknowledged
    assert 0 < acknowledged <= copy.last_index
    follower = Follower(ShanghaiGuest(OsDisk(source)), copy, Replicas(OsDisk(source)), "b")
    while follower.step():
        pass
    assert copy.last_index == log.last_index
    assert contents(copy) == contents(log)
