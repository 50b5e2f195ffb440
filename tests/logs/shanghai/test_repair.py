from random import Random

import pytest

from holdfast.errors import HoldfastError
from holdfast.formats import shanghai as fmt
from holdfast.logs.repairing import Keep
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.logs.shanghai.repair import apply_repair, plan_repair
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.log_contract import contents

EXPECTED = [b"%d" % (i + 1) for i in range(40)]
KEEPS: list[Keep] = ["before", "after"]


def write(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    file = disk.open(name, writable=True)
    file.write_at(offset, data, sync=True)
    file.close()


def flip_lsn_15(disk: SimDisk) -> None:
    disk.flip("segment_00002.wal", 8 * (64 + 4 * 10 + 8))


def lose_a_header(disk: SimDisk) -> None:
    write(disk, "segment_00002.wal", 0, b"GARBAGE!")


def lose_a_segment(disk: SimDisk) -> None:
    disk.remove("segment_00002.wal")


def lose_the_first_header(disk: SimDisk) -> None:
    write(disk, "segment_00001.wal", 0, bytes(64))


def break_the_closed_tail(disk: SimDisk) -> None:
    disk.flip("segment_00004.wal", 8 * (64 + 4 * 10 + 8))


def lose_the_last_header(disk: SimDisk) -> None:
    write(disk, "segment_00004.wal", 0, b"GARBAGE!")


def break_a_seal(disk: SimDisk) -> None:
    write(disk, "segment_00001.wal", fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(9))


def lose_everything(disk: SimDisk) -> None:
    for number in range(1, 5):
        disk.remove(f"segment_0000{number}.wal")


DAMAGES = {
    flip_lsn_15: {"before": (1, 14), "after": (16, 40)},
    lose_a_header: {"before": (1, 40), "after": (1, 40)},
    lose_a_segment: {"before": (1, 10), "after": (21, 40)},
    lose_the_first_header: {"before": (1, 40), "after": (1, 40)},
    break_the_closed_tail: {"before": (1, 34), "after": (36, 40)},
    lose_the_last_header: {"before": (1, 40), "after": (1, 40)},
    break_a_seal: {"before": (1, 40), "after": (1, 40)},
    lose_everything: {"before": (41, 40), "after": (41, 40)},
}


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_the_plan_says_what_is_kept_and_then_that_is_kept(
    disk: SimDisk, damage: object, keep: Keep
) -> None:
    assert callable(damage)
    damage(disk)
    first, last = DAMAGES[damage][keep]
    before = disk.files()
    plan = plan_repair(disk, keep=keep)
    assert disk.files() == before, "a plan changes nothing"
    assert plan.kept == (first, last)
    lost = {index for a, b in plan.lost for index in range(a, b + 1)}
    assert lost == set(range(1, 41)) - set(range(first, last + 1))
    assert plan.lossless == (not lost)
    apply_repair(disk, plan)
    log = ShanghaiLog(disk)
    assert log.damage == ()
    assert (log.first_index, log.last_index) == (first, last)
    assert contents(log) == EXPECTED[first - 1 : last]
    assert [log.check(segment.name) for segment in log.segments()] == [None] * len(log.segments())
    assert log.append([b"on"]) == last + 1


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("damage", [flip_lsn_15, lose_a_segment], ids=lambda d: d.__name__)
def test_every_sound_payload_is_still_somewhere(disk: SimDisk, damage: object, keep: Keep) -> None:
    assert callable(damage)
    damage(disk)
    sound = set()
    for name, data in disk.files().items():
        if name.endswith(".wal"):
            sound |= {bytes(data[i : i + 10]) for i in range(64, len(data), 10)}
    apply_repair(disk, plan_repair(disk, keep=keep))
    everything = b"".join(data for _, data in sorted(disk.files().items()))
    assert not [entry for entry in sound if len(entry) == 10 and entry not in everything]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_crash_in_repair_can_be_repaired(disk: SimDisk, damage: object, keep: Keep) -> None:
    assert callable(damage)
    damage(disk)
    first, last = DAMAGES[damage][keep]
    plan = plan_repair(disk, keep=keep)
    files = {name: data for name, data in disk.files().items() if name != "LOCK"}
    for dies_at in range(200):
        again = SimDisk()
        for name, data in files.items():
            again.create(name, data)
        again.posix.operations, again.posix.dies_at = 0, dies_at
        try:
            apply_repair(again, plan)
            break
        except PowerLost:
            after = again.after_power_cut(Random(dies_at))
        apply_repair(after, plan_repair(after, keep=keep))
        log = ShanghaiLog(after)
        assert (log.damage, log.last_index) == ((), last)
        assert log.first_index <= first
        assert contents(log)[first - log.first_index :] == EXPECTED[first - 1 : last]
    else:
        raise AssertionError("repair never ended")


def test_the_only_header_is_made_again_from_the_mark() -> None:
    disk = SimDisk()
    with ShanghaiLog(disk, first_index=7) as log:
        log.append([b"a", b"b", b"c"])
    write(disk, "segment_00001.wal", 0, bytes(64))
    plan = plan_repair(disk)
    assert (plan.kept, plan.lossless) == ((7, 9), True)
    apply_repair(disk, plan)
    assert contents(ShanghaiLog(disk)) == [b"a", b"b", b"c"]


def test_entries_that_cannot_be_placed_are_not_called_kept() -> None:
    disk = SimDisk()
    with ShanghaiLog(disk) as log:
        log.append([b"a", b"b", b"c"])
    write(disk, "segment_00001.wal", 0, bytes(64))
    disk.remove("metadata.json", "holdfast.mark")
    plan = plan_repair(disk)
    assert plan.unknown == ("segment_00001.wal",)
    assert not plan.lossless
    apply_repair(disk, plan)
    assert "segment_00001.wal.cut" in disk.files()
    assert contents(ShanghaiLog(disk)) == []


def test_a_sound_log_needs_no_repair(disk: SimDisk) -> None:
    plan = plan_repair(disk)
    assert (plan.damage, plan.steps, plan.kept, plan.lossless) == ((), (), (1, 40), True)
    before = disk.files()
    apply_repair(disk, plan)
    assert disk.files() == before | {"LOCK": disk.files()["LOCK"]}


def test_a_torn_tail_is_recovered_by_repair_too(disk: SimDisk) -> None:
    size = len(disk.files()["segment_00004.wal"])
    write(disk, "segment_00004.wal", size, b"torn")
    plan = plan_repair(disk)
    assert plan.damage[0].torn
    assert (plan.steps, plan.kept, plan.lossless) == ((), (1, 40), True)
    apply_repair(disk, plan)
    assert len(disk.files()["segment_00004.wal"]) == size


def test_a_plan_is_not_applied_to_another_log(disk: SimDisk) -> None:
    flip_lsn_15(disk)
    plan = plan_repair(disk)
    flip_lsn_15(disk)
    with pytest.raises(HoldfastError, match="plan it again"):
        apply_repair(disk, plan)


def test_keep_is_before_or_after(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="'before' or 'after'"):
        plan_repair(disk, keep="both")  # type: ignore[arg-type]


def test_steps_can_be_read_by_a_person(disk: SimDisk) -> None:
    flip_lsn_15(disk)
    texts = [str(step) for step in plan_repair(disk).steps]
    assert texts == [
        "set segment_00004.wal aside",
        "set segment_00003.wal aside",
        "rewrite segment_00002.wal from LSN 11 with its bytes 64..104; keep the rest aside",
    ]
