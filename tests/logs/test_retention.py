import pytest

from holdfast.errors import ChangedError, CorruptError
from holdfast.logs.log import SegmentInfo
from holdfast.logs.raft_wal import RaftWal
from holdfast.logs.replicas import Replica, Replicas
from holdfast.logs.retention import Retention, choose
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.testing import SimDisk
from holdfast.testing.log_contract import contents

HOUR = 3_600_000
SEGMENTS = [
    SegmentInfo(f"segment_0000{n}.wal", "sealed", 10 * n - 9, 10 * n, 1000, n * HOUR, "")
    for n in range(1, 5)
]


def chosen(limits: Retention, *replicas: Replica) -> list[int]:
    plan = choose(SEGMENTS, limits, replicas, now_ms=5 * HOUR)
    assert plan.freed == 1000 * len(plan.removed)
    assert plan.first_index == 10 * len(plan.removed) + 1
    return [segment.last_index for segment in plan.removed]


def test_by_hand() -> None:
    assert chosen(Retention(before=1)) == []
    assert chosen(Retention(before=20)) == [10]
    assert chosen(Retention(before=21)) == [10, 20]


def test_by_size() -> None:
    assert chosen(Retention(size_max=4000)) == []
    assert chosen(Retention(size_max=3999)) == [10]
    assert chosen(Retention(size_max=0)) == [10, 20, 30]


def test_age_counts_from_the_newest_entry_and_not_from_the_oldest() -> None:
    assert chosen(Retention(age_max_ms=3 * HOUR)) == []
    assert chosen(Retention(age_max_ms=3 * HOUR - 1)) == [10]
    assert chosen(Retention(age_max_ms=0)) == [10, 20, 30]


def test_the_active_segment_always_stays() -> None:
    assert chosen(Retention(before=10**9, age_max_ms=0, size_max=0)) == [10, 20, 30]


def test_trim_keeps_what_a_replica_needs() -> None:
    slow, fast = Replica("slow", 19, 0), Replica("fast", 40, 0)
    assert chosen(Retention(before=10**9), fast, slow) == [10]
    plan = choose(SEGMENTS, Retention(before=10**9), [slow], 0)
    assert plan.stopped_by == "replica slow has acknowledged only 19"
    assert chosen(Retention(acknowledged=True), fast) == [10, 20, 30]


def test_limits_must_say_something() -> None:
    with pytest.raises(ValueError, match="pass at least one limit"):
        Retention()
    with pytest.raises(ValueError, match="must not be negative"):
        Retention(before=-1)
    with pytest.raises(ValueError, match="no replica is registered"):
        chosen(Retention(acknowledged=True))


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture(params=[ShanghaiLog, RaftWal])
def log(request: pytest.FixtureRequest, disk: SimDisk) -> ShanghaiLog | RaftWal:
    """Four segments of ten entries each: 1..40, payloads b'1'..b'40'."""
    log: ShanghaiLog | RaftWal = request.param(disk, segment_size_max=10_000)
    for first in (1, 11, 21, 31):
        log.rotate()
        log.append([b"%d" % index for index in range(first, first + 10)])
    return log


def test_trim_removes_files_and_a_plan_does_not(log: ShanghaiLog | RaftWal, disk: SimDisk) -> None:
    before = set(disk.list())
    plan = log.plan_trim(Retention(before=25))
    assert set(disk.list()) == before
    assert log.trim(Retention(before=25)) == plan
    assert before - set(disk.list()) == {segment.name for segment in plan.removed}
    assert (len(plan.removed), log.first_index) == (2, 21)
    assert contents(log)[0] == b"21"


def test_a_registered_replica_holds_trim_back(log: ShanghaiLog | RaftWal, disk: SimDisk) -> None:
    replicas = Replicas(disk)
    replicas.register("b", 15)
    assert log.trim(Retention(before=10**6)).first_index == 11
    replicas.acknowledge("b", 40)
    assert log.trim(Retention(before=10**6)).first_index == 31


def test_a_refused_trim_harms_nothing(log: ShanghaiLog | RaftWal, disk: SimDisk) -> None:
    disk.create("replicas/broken.json", b"?")
    with pytest.raises(CorruptError):
        log.trim(Retention(before=25))
    log.append([b"goes on"])


@pytest.mark.parametrize("format", [RaftWal, ShanghaiLog])
def test_a_scan_beside_a_trim_by_the_same_owner_sees_no_damage(format: type) -> None:
    """The files were removed by another thread of this process: they are not missing."""
    with format(SimDisk()) as log:
        for number in range(1, 7):
            log.append([b"%d" % number])
            log.rotate()
        batches = log.scan()
        assert next(batches).column("payload").to_pylist() == [b"1"]
        log.trim(Retention(before=6))
        with pytest.raises(ChangedError, match="read again"):
            list(batches)
        assert contents(log) == [b"6"]
