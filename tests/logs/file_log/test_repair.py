import pytest

from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import rlog
from holdfast.logs.file_log import FileLogReader
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.repair import apply_repair, plan_repair
from holdfast.logs.mark import MARK
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject

NAMES = [f"log/00000/00/00/{index:014x}.rlog" for index in (1, 4, 8, 12)]


@pytest.fixture
def disk() -> SimDisk:
    """Entries 1..13 of b'1'.. in four files: 1..3, 4..7, 8..11 and 12..13."""
    disk = SimDisk()
    with FileLogSubject().open(disk) as log:
        log.append([b"%d" % number for number in range(1, 14)])
    return disk


def break_entry(disk: SimDisk, name: str, slot: int) -> None:
    """Give an entry an unknown type."""
    data = disk.files()[name]
    slots = rlog.decode_slots(data[24:40])
    start = data.index(b"ITMZ") + 8 + (int(slots[slot - 1]) if slot else 0)
    disk.open(name, writable=True).write_at(start + 12, b"\x09", sync=True)


def contents(disk: SimDisk) -> list[int]:
    with FileLogReader(disk) as guest:
        assert guest.damage == ()
        assert [d for s in guest.segments() if (d := guest.check(s.name))] == []
        return [int(guest.read(i)) for i in range(guest.first_index, guest.last_index + 1)]


def write_on(disk: SimDisk, last: int) -> None:
    with FileLogSubject().open(disk) as log:
        assert (log.damage, log.last_index) == ((), last)
        assert log.append([b"99"]) == last + 1


def test_a_sound_log_needs_nothing(disk: SimDisk) -> None:
    plan = plan_repair(disk)
    assert (plan.damage, plan.steps, plan.kept, plan.lossless) == ((), (), (1, 13), True)
    apply_repair(disk, plan)
    assert contents(disk) == list(range(1, 14))


@pytest.mark.parametrize(
    ("keep", "kept", "lost"), [("before", (1, 5), (6, 13)), ("after", (7, 13), (1, 6))]
)
def test_a_damaged_entry(disk: SimDisk, keep, kept, lost) -> None:  # type: ignore[no-untyped-def]
    break_entry(disk, NAMES[1], 2)
    plan = plan_repair(disk, keep=keep)
    assert [(d.first_index, d.last_index) for d in plan.damage] == [(6, 6)]
    assert (plan.kept, plan.lost, plan.unknown) == (kept, (lost,), ())
    assert all(map(str, plan.steps))
    apply_repair(disk, plan)
    assert contents(disk) == list(range(kept[0], kept[1] + 1))
    write_on(disk, kept[1])
    assert [name for name in disk.files() if name.endswith(".cut")]


@pytest.mark.parametrize(("keep", "kept"), [("before", (1, 3)), ("after", (8, 13))])
def test_a_missing_file(disk: SimDisk, keep, kept) -> None:  # type: ignore[no-untyped-def]
    disk.remove(NAMES[1])
    with pytest.raises(CorruptError), FileLogSubject().open(disk) as log:
        log.append([b"no"])
    plan = plan_repair(disk, keep=keep)
    assert plan.kept == kept
    apply_repair(disk, plan)
    assert contents(disk) == list(range(kept[0], kept[1] + 1))
    write_on(disk, kept[1])


def test_a_damaged_head(disk: SimDisk) -> None:
    disk.open(NAMES[3], writable=True).write_at(0, b"X", sync=True)
    plan = plan_repair(disk)
    assert (plan.kept, plan.unknown) == ((1, 11), (NAMES[3],))
    apply_repair(disk, plan)
    assert contents(disk) == list(range(1, 12))
    write_on(disk, 11)


def test_a_table_out_of_order(disk: SimDisk) -> None:
    disk.open(NAMES[2], writable=True).write_at(28, b"\1\0\0\0", sync=True)
    plan = plan_repair(disk)
    assert plan.kept == (1, 7)
    apply_repair(disk, plan)
    assert contents(disk) == list(range(1, 8))


def test_a_damaged_snapshot_is_replaced_by_an_older_one(disk: SimDisk) -> None:
    with FileLogSubject().open(disk) as log:
        log.create_snapshot(5, b"five")
        log.create_snapshot(9, b"nine")
    disk.open("snap", writable=True).write_at(0, b"X", sync=True)
    plan = plan_repair(disk)
    apply_repair(disk, plan)
    with FileLogReader(disk) as guest:
        assert (guest.snapshot.index, guest.read_snapshot(), guest.last_index) == (5, b"five", 13)
    write_on(disk, 13)


def test_a_damaged_snapshot_without_an_older_one(disk: SimDisk) -> None:
    disk.open("snap", writable=True).write_at(0, b"X", sync=True)
    apply_repair(disk, plan_repair(disk))
    assert contents(disk) == list(range(1, 14))
    disk.open("snap", writable=True).write_at(0, b"X", sync=True)
    disk.remove(NAMES[0])
    plan = plan_repair(disk)
    assert (plan.unknown, plan.lossless) == (("snap",), False)
    apply_repair(disk, plan)
    assert contents(disk) == list(range(4, 14))
    assert "snap.cut" in disk.files()


def test_an_unreadable_intent_is_set_aside(disk: SimDisk) -> None:
    disk.create(INTENT, b"{}")
    apply_repair(disk, plan_repair(disk))
    assert contents(disk) == list(range(1, 14))


def test_a_torn_tail_is_left_to_recovery(disk: SimDisk) -> None:
    disk.remove(MARK, UNTOUCHED)
    data = disk.files()[NAMES[3]]
    disk.create(NAMES[3], data[:-3], replace=True)
    plan = plan_repair(disk)
    assert ([d.torn for d in plan.damage], plan.steps, plan.kept) == ([True], (), (1, 12))
    apply_repair(disk, plan)
    assert contents(disk) == list(range(1, 13))


def test_a_log_that_has_changed_must_be_planned_again(disk: SimDisk) -> None:
    break_entry(disk, NAMES[1], 2)
    plan = plan_repair(disk)
    break_entry(disk, NAMES[0], 1)
    with pytest.raises(HoldfastError, match="plan it again"):
        apply_repair(disk, plan)
    with pytest.raises(ValueError, match="keep must be"):
        plan_repair(disk, keep="both")  # type: ignore[arg-type]
