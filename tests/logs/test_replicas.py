import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.disk import Disk, OsDisk
from holdfast.errors import CorruptError, DivergedError, HoldfastError, OutOfRangeError
from holdfast.logs.opening import FORMATS
from holdfast.logs.replicas import Follower, Replica, Replicas
from holdfast.logs.shanghai import Retention, ShanghaiLog, ShanghaiReader
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.log_contract import contents


def test_register_acknowledge_list_forget() -> None:
    replicas = Replicas(SimDisk(), last_index=lambda: 8, now_ms=lambda: 5)
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
    with pytest.raises(ValueError, match="not a valid replica name"):
        Replicas(SimDisk()).register(name)


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b'{"acknowledged": "x"}'])
def test_a_state_that_cannot_be_read_stops_compaction(content: bytes) -> None:
    disk = SimDisk()
    log = ShanghaiLog(disk)
    log.append([b"x"])
    log.rotate()
    disk.create("replicas/b.json", content)
    with pytest.raises(CorruptError, match="register it again"):
        log.trim(Retention(before=100))
    assert contents(log) == [b"x"]


def test_an_acknowledgement_survives_any_crash() -> None:
    for dies_at in range(12):
        disk = SimDisk()
        replicas = Replicas(disk, last_index=lambda: 2)
        replicas.register("b", 1)
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        acknowledged = 1
        try:
            replicas.acknowledge("b", 2)
            acknowledged = 2
        except PowerLost:
            pass
        for seed in range(20):
            cut = Replicas(disk.after_power_cut(Random(seed)), last_index=lambda: 2)
            after = cut.get("b").acknowledged
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
    follower = Follower(ShanghaiReader(source_disk), target, replicas, "b")
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
            follower = Follower(
                ShanghaiReader(source_disk), ShanghaiLog(target_disk), replicas, "b"
            )
            while follower.step(size_max=100):
                pass
        except PowerLost:
            pass
        acknowledged = replicas.get("b").acknowledged
        target = ShanghaiLog(target_disk.after_power_cut(Random(dies_at)))
        assert target.last_index >= acknowledged
        follower = Follower(ShanghaiReader(source_disk), target, replicas, "b")
        while follower.step():
            pass
        assert contents(target) == contents(source)


def test_divergence_and_gaps_are_refused() -> None:
    source_disk, source, target_disk = pair()
    target = ShanghaiLog(target_disk)
    target.append([b"something else"])
    replicas = Replicas(source_disk)
    with pytest.raises(HoldfastError, match="entry 1 differs"):
        Follower(ShanghaiReader(source_disk), target, replicas, "b")
    longer = ShanghaiLog(SimDisk(), first_index=60)
    longer.append([b"x"])
    with pytest.raises(HoldfastError, match="target ends at 60, the source at 50"):
        Follower(ShanghaiReader(source_disk), longer, replicas, "c")
    for replica in replicas.list():
        replicas.forget(replica.name)
    source.trim(Retention(before=40))
    late = Follower(ShanghaiReader(source_disk), ShanghaiLog(SimDisk()), replicas, "d")
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
        "f = Follower(ShanghaiReader(d), ShanghaiLog(OsDisk(sys.argv[2])), Replicas(d), 'b');\n"
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
    follower = Follower(ShanghaiReader(OsDisk(source)), copy, Replicas(OsDisk(source)), "b")
    while follower.step():
        pass
    assert copy.last_index == log.last_index
    assert contents(copy) == contents(log)


PAIRS = [(one, two) for one in FORMATS for two in FORMATS]


def opened(format: str, disk: Disk, **options: Any) -> Any:
    return FORMATS[format].open_writer(disk, **options)


def many(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def roll_back(path: Path, format: str, log: Any, last: int) -> Any:
    """End the log at `last`, as its owner or an operator with a backup does; return the owner."""
    if format != "shanghai":
        log.truncate_tail(last)
        return log
    kept = [log.read(index) for index in range(1, last + 1)]
    log.close()
    for file in path.iterdir():
        if file.is_file():
            file.unlink()
    log = opened(format, OsDisk(path), segment_size_max=4096)
    log.append(kept)
    return log


@pytest.mark.parametrize(("one", "two"), PAIRS)
@pytest.mark.parametrize("rewritten", [many(*range(106, 116)), many(106, 107, 108, 109, 10, 11)])
def test_a_running_follower_stops_when_its_source_was_rolled_back(
    tmp_path: Path, one: str, two: str, rewritten: list[bytes]
) -> None:
    """Also if the entries end as before: 10 is the same, and 6..9 are others."""
    disk = OsDisk(tmp_path / "source")
    source = opened(one, disk, segment_size_max=4096)
    source.append(many(*range(1, 11)))
    target = opened(two, OsDisk(tmp_path / "target"))
    replicas = Replicas(disk)
    with FORMATS[one].open_reader(disk) as guest:
        follower = Follower(guest, target, replicas, "b")
        assert follower.step() == 10
        assert follower.step() == 0
        replicas.forget("b")
        source = roll_back(tmp_path / "source", one, source, 5)
        replicas.register("b", 5)
        with pytest.raises(DivergedError, match="ends at 10, the source at 5"):
            follower.step()
        source.append(rewritten)
        with pytest.raises(DivergedError, match="entry 6 differs"):
            follower.step()
        assert contents(target) == many(*range(1, 11))
        with pytest.raises(DivergedError, match="entry 6 differs"):
            Follower(guest, target, replicas, "b")


@pytest.mark.parametrize("format", ["raft-wal", "file-log"])
def test_a_follower_goes_on_if_the_same_entries_were_written_again(
    tmp_path: Path, format: str
) -> None:
    disk = OsDisk(tmp_path / "source")
    with (
        opened(format, disk) as source,
        opened(format, OsDisk(tmp_path / "target")) as target,
        FORMATS[format].open_reader(disk) as guest,
    ):
        source.append(many(*range(1, 11)))
        follower = Follower(guest, target, Replicas(disk), "b")
        follower.step()
        Replicas(disk).forget("b")
        source.truncate_tail(5)
        source.append(many(*range(6, 13)))
        Replicas(disk).register("b", 10)
        assert follower.step() == 2
        assert contents(target) == many(*range(1, 13))


@pytest.mark.parametrize("format", ["raft-wal", "file-log"])
def test_a_rollback_during_a_step_is_divergence(tmp_path: Path, format: str) -> None:
    """The source is rolled back after the batch was read, before it is acknowledged."""
    disk = OsDisk(tmp_path / "source")
    with (
        opened(format, disk) as source,
        opened(format, OsDisk(tmp_path / "target")) as target,
        FORMATS[format].open_reader(disk) as guest,
    ):
        source.append(many(*range(1, 6)))

        class Late(Replicas):
            def acknowledge(self, name: str, index: int) -> Replica:
                if source.last_index == 10:
                    source.truncate_tail(7)
                return super().acknowledge(name, index)

        follower = Follower(guest, target, Late(disk), "b")
        follower.step()
        source.append(many(*range(6, 11)))
        with pytest.raises(DivergedError, match="ends at 10, the source at 7"):
            follower.step()
        assert Replicas(disk).get("b").acknowledged == 5


def removals(log: Any) -> dict[str, Callable[[int], object]]:
    """The calls that remove the first entries of a log, up to an index."""
    found: dict[str, Callable[[int], object]] = {}
    if hasattr(log, "truncate_head"):
        found["truncate_head"] = lambda index: log.truncate_head(index + 1)
        found["delete_range"] = lambda index: log.delete_range(1, index)
    if hasattr(log, "create_snapshot"):
        found["create_snapshot"] = lambda index: log.create_snapshot(index, b"state")
        found["install_snapshot"] = lambda index: log.install_snapshot(
            index, log.term_at(index), b"state"
        )
    found["trim"] = lambda index: log.trim(Retention(before=index + 1))
    return found


@pytest.mark.parametrize(
    ("format", "call"),
    [
        *(("raft-wal", call) for call in ("truncate_head", "delete_range", "trim")),
        *(("file-log", call) for call in ("create_snapshot", "install_snapshot", "trim")),
        ("shanghai", "trim"),
    ],
)
def test_no_call_removes_what_a_replica_still_needs(format: str, call: str) -> None:
    disk = SimDisk()
    with closing(opened(format, disk)) as log:
        for first in (1, 11, 21):
            log.append(many(*range(first, first + 10)))
            log.rotate()
        replicas, remove = Replicas(disk), removals(log)[call]
        replicas.register("b", 10)
        if call == "trim":
            remove(20)
        else:
            with pytest.raises(HoldfastError, match=r"replica b has acknowledged 10 .* forget it"):
                remove(20)
        assert log.first_index <= 11
        follower = Follower(
            FORMATS[format].open_reader(disk), opened(format, SimDisk()), replicas, "c"
        )
        if log.first_index == 1:
            assert follower.step() > 0
        replicas.forget("c")
        log.append([b"31"])  # a refusal does not poison it
        remove(10)
        replicas.forget("b")
        remove(20)
        assert log.first_index == (1 if (format, call) == ("file-log", "trim") else 21)


@pytest.mark.parametrize("format", ["raft-wal", "file-log"])
def test_no_call_truncates_what_a_replica_has(format: str) -> None:
    disk = SimDisk()
    with closing(opened(format, disk)) as log:
        log.append(many(*range(1, 11)))
        Replicas(disk).register("b", 8)
        with pytest.raises(HoldfastError, match="replica b has acknowledged 8"):
            log.truncate_tail(7)
        log.truncate_tail(8)
        Replicas(disk).register("late", 0)
        disk.create("replicas/broken.json", b"?")
        with pytest.raises(CorruptError):
            log.truncate_tail(8)
        Replicas(disk).forget("broken")
        log.append([b"more"])
        assert log.last_index == 9


def test_raft_may_remove_the_newest_entries_in_any_case() -> None:
    """Raft has decided so.  The replica that has them stops."""
    disk = SimDisk()
    with closing(opened("raft-wal", disk)) as log:
        log.append(many(*range(1, 11)))
        Replicas(disk).register("b", 8)
        log.delete_range(6, 10)
        assert log.last_index == 5


def test_a_step_of_a_follower_does_not_open_the_source_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cost would grow with the number of segments."""
    source_disk = SimDisk()
    source = ShanghaiLog(source_disk, segment_size_max=100)
    for number in range(20):
        source.append([b"entry %d" % number])
    replicas = Replicas(source_disk)
    follower = Follower(ShanghaiReader(source_disk), ShanghaiLog(SimDisk()), replicas, "b")
    monkeypatch.setattr(Replicas, "_read_last_index", None)  # which opens it
    while follower.step():
        pass
    assert follower.lag == 0
