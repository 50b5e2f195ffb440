import pytest

from holdfast.errors import CorruptError
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader
from holdfast.logs.shanghai.rewrite import adopt_segments, copy_segments
from holdfast.testing import SimDisk
from holdfast.testing.log_contract import contents

EXPECTED = [b"%d" % (i + 1) for i in range(40)]


@pytest.mark.parametrize("size_max", [65, 100, 164, 200, 10_000])
@pytest.mark.parametrize("groups", [[4], [1, 1, 1, 1], [3, 1]])
def test_segments_of_any_size_hold_the_same_entries(
    disk: SimDisk, size_max: int, groups: list[int]
) -> None:
    segments, target, copied = ShanghaiReader(disk).segments(), SimDisk(), []
    for task, count in enumerate(groups):
        group, segments = segments[:count], segments[count:]
        copied += copy_segments(disk, group, target, f"new-{task}", segment_size_max=size_max)
    assert all(segment.size < size_max + 10 for segment in copied)
    adopt_segments(target, copied)
    log = ShanghaiLog(target)
    assert log.recovered == ()
    assert contents(log) == EXPECTED
    assert log.append([b"41"]) == 41
    assert not log.damage


def test_the_indexes_stay_as_they_were(disk: SimDisk) -> None:
    target = SimDisk()
    (copied,) = copy_segments(disk, ShanghaiReader(disk).segments()[2:], target, "new")
    assert (copied.first_index, copied.last_index) == (21, 40)
    adopt_segments(target, [copied])
    log = ShanghaiLog(target)
    assert (log.first_index, log.last_index, log.read(21)) == (21, 40, b"21")
    assert log.segments()[0].created_ms == ShanghaiReader(disk).segments()[2].created_ms


def test_nothing_makes_an_empty_log() -> None:
    disk = SimDisk()
    adopt_segments(disk, [], first_index=7)
    assert (ShanghaiReader(disk).first_index, ShanghaiReader(disk).last_index) == (7, 6)


def test_a_gap_between_tasks_is_refused(disk: SimDisk) -> None:
    target, segments = SimDisk(), ShanghaiReader(disk).segments()
    copied = [
        one for s in (segments[0], segments[2]) for one in copy_segments(disk, [s], target, s.name)
    ]
    with pytest.raises(ValueError, match="does not follow"):
        adopt_segments(target, copied)


def test_damage_is_not_copied(disk: SimDisk) -> None:
    disk.flip("segment_00002.wal", 8 * (64 + 10 * 4 + 8))
    with pytest.raises(CorruptError, match="entry 15"):
        copy_segments(disk, ShanghaiReader(disk).segments(), SimDisk(), "new")
