from collections.abc import Callable

import pytest

from holdfast.logs.log import Damage
from holdfast.logs.scan_plan import ScanTask, plan_scan
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader
from holdfast.logs.shanghai.reader import scan_segment
from holdfast.testing import SimDisk
from holdfast.testing.shanghai import ShanghaiSubject

SECOND, THIRD, LAST = (f"segment_0000{n}.wal" for n in (2, 3, 4))


@pytest.fixture
def disk() -> SimDisk:
    """Four segments of ten entries each, cleanly closed: LSNs 1..40, payloads b'1'..b'40'."""
    disk = SimDisk()
    log = ShanghaiSubject().open(disk)
    for segment in range(4):
        if segment:
            log.rotate()
        log.append([b"%d" % (10 * segment + number + 1) for number in range(10)])
    log.close()
    return disk


def write(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    file = disk.open(name, writable=True)
    file.write_at(offset, data, sync=True)
    file.close()


def carried_out(disk: SimDisk, start: int, stop: int) -> tuple[list[int], list[Damage]]:
    """The plan, task by task: entries and damage found."""
    found: list[int] = []
    lost: list[Damage] = []
    for step in plan_scan(ShanghaiReader(disk), start, stop):
        if isinstance(step, Damage):
            lost.append(step)
            continue
        batches = scan_segment(disk, step.segment, step.start, step.stop, on_damage=lost.append)
        for batch in batches:
            assert [b"%d" % i for i in batch["index"].to_pylist()] == batch["payload"].to_pylist()
            found += batch["index"].to_pylist()
    return found, lost


def garble_header(disk: SimDisk) -> None:
    write(disk, SECOND, 0, b"GARBAGE!")


def remove_middle(disk: SimDisk) -> None:
    disk.remove(SECOND)


def renumber(disk: SimDisk) -> None:
    write(disk, SECOND, 39, b"\x0c")  # first LSN 12 instead of 11


def rot_entry(disk: SimDisk) -> None:
    disk.flip(SECOND, 8 * (64 + 10 * 4 + 8))


def rot_length(disk: SimDisk) -> None:
    disk.flip(SECOND, 8 * (64 + 10 * 4))


def rot_tail(disk: SimDisk) -> None:
    disk.flip(LAST, 8 * (64 + 10 * 4 + 8))


def cut_tail(disk: SimDisk) -> None:
    file = disk.open(LAST, writable=True)
    file.resize(64 + 10 * 4)
    file.sync()


def garble_first(disk: SimDisk) -> None:
    write(disk, "segment_00001.wal", 0, b"GARBAGE!")


def garble_last(disk: SimDisk) -> None:
    write(disk, LAST, 0, b"GARBAGE!")


def test_a_sound_log_is_one_task_per_segment_within_the_range(disk: SimDisk) -> None:
    plan = plan_scan(ShanghaiReader(disk), 15, 31)
    tasks = [step for step in plan if isinstance(step, ScanTask)]
    spans = [(task.segment.name, task.start, task.stop) for task in tasks]
    assert spans == [(SECOND, 15, 21), (THIRD, 21, 31)]
    assert len(plan) == 2
    assert plan_scan(ShanghaiReader(disk), 41, 99) == []
    assert len(plan_scan(ShanghaiReader(disk))) == 4


@pytest.mark.parametrize(
    ("harm", "found", "lost"),
    [
        (garble_header, [*range(1, 11), *range(21, 41)], [(11, 20)]),
        (remove_middle, [*range(1, 11), *range(21, 41)], [(11, 20)]),
        (rot_entry, [i for i in range(1, 41) if i != 15], [(15, 15)]),
        (rot_length, [*range(1, 15), *range(21, 41)], [(15, 20)]),
        (rot_tail, [i for i in range(1, 41) if i != 35], [(35, 35)]),
        (cut_tail, [*range(1, 35)], [(35, 40)]),
        (garble_first, [*range(11, 41)], [(1, 10)]),
        (garble_last, [*range(1, 31)], [(31, 40)]),
    ],
)
def test_every_index_is_found_or_reported_lost(
    disk: SimDisk, harm: Callable[[SimDisk], None], found: list[int], lost: list[tuple[int, int]]
) -> None:
    harm(disk)
    rows, damage = carried_out(disk, 1, 2**62)
    assert rows == found
    assert [(d.first_index, d.last_index) for d in damage] == lost


def test_segments_in_doubt_are_not_scanned(disk: SimDisk) -> None:
    renumber(disk)
    rows, damage = carried_out(disk, 1, 2**62)
    assert not set(rows) & set(range(11, 21))
    lost = {i for d in damage for i in range(d.first_index, d.last_index + 1)}
    assert set(rows) | lost == set(range(1, 41))


@pytest.mark.parametrize(
    "harm", [garble_header, remove_middle, rot_tail, garble_first, garble_last]
)
def test_damage_outside_of_the_range_is_not_reported(
    disk: SimDisk, harm: Callable[[SimDisk], None]
) -> None:
    harm(disk)
    assert carried_out(disk, 22, 28) == (list(range(22, 28)), [])


def test_only_damage_in_the_range_is_reported(disk: SimDisk) -> None:
    remove_middle(disk)
    rows, damage = carried_out(disk, 15, 22)
    assert rows == [21]
    assert [(d.first_index, d.last_index) for d in damage] == [(15, 20)]


def test_a_log_without_a_valid_header_is_reported_as_damage(disk: SimDisk) -> None:
    for name in list(disk.files()):
        if name.endswith(".wal"):
            write(disk, name, 0, b"GARBAGE!")
    rows, damage = carried_out(disk, 1, 2**62)
    assert rows == []
    assert len(damage) == 4


def test_an_owner_can_be_planned_too(disk: SimDisk) -> None:
    with ShanghaiLog(disk) as log:
        assert len(plan_scan(log)) == 4
