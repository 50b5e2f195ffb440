import pytest

from holdfast.errors import CorruptError
from holdfast.logs.shanghai import ShanghaiGuest, ShanghaiLog
from holdfast.logs.shanghai.directory import segment_name
from holdfast.logs.shanghai.rewrite import copy_segments
from holdfast.testing import SimDisk
from holdfast.testing.log_contract import contents

EXPECTED = [b"%d" % (i + 1) for i in range(40)]


@pytest.mark.parametrize("size_max", [65, 100, 164, 200, 10_000])
@pytest.mark.parametrize("groups", [[4], [1, 1, 1, 1], [3, 1]])
def test_segments_of_any_size_hold_the_same_entries(
    disk: SimDisk, size_max: int, groups: list[int]
) -> None:
    segments, target, number = ShanghaiGuest(disk).segments(), SimDisk(), 0
    for task, count in enumerate(groups):
        group, segments = segments[:count], segments[count:]
        copied = copy_segments(disk, group, target, f"new-{task}", segment_size_max=size_max)
        for segment in copied:
            assert segment.size < size_max + 10
            number += 1
            target.rename(segment.name, segment_name(number))
    log = ShanghaiLog(target)
    assert contents(log) == EXPECTED
    assert log.append([b"41"]) == 41
    assert not log.damage


def test_the_indexes_stay_as_they_were(disk: SimDisk) -> None:
    target = SimDisk()
    (copied,) = copy_segments(disk, ShanghaiGuest(disk).segments()[2:], target, "new")
    assert (copied.first_index, copied.last_index) == (21, 40)
    target.rename(copied.name, segment_name(1))
    log = ShanghaiLog(target)
    assert (log.first_index, log.last_index, log.read(21)) == (21, 40, b"21")
    assert log.segments()[0].created_ms == ShanghaiGuest(disk).segments()[2].created_ms


def test_damage_is_not_copied(disk: SimDisk) -> None:
    disk.flip("segment_00002.wal", 8 * (64 + 10 * 4 + 8))
    with pytest.raises(CorruptError, match="LSN 15"):
        copy_segments(disk, ShanghaiGuest(disk).segments(), SimDisk(), "new")
