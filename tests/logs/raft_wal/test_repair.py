from random import Random

import pytest

from holdfast.errors import CorruptError, HoldfastError
from holdfast.logs.mark import MARK, REMEMBERED
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal, RaftWalReader
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.repair import apply_repair, plan_repair
from holdfast.testing import SimDisk
from holdfast.testing.raft_wal import RaftWalSubject


@pytest.fixture
def disk() -> SimDisk:
    """Entries 1..12 of b'1'.. in four segments: 1..3, 4..6, 7..9 and, unsealed, 10..12."""
    disk = SimDisk()
    with RaftWalSubject().open(disk) as wal:
        for number in range(1, 13):
            wal.append([b"%d" % number])
            if number in (3, 6, 9):
                wal.rotate()
        wal.set_uint64(b"CurrentTerm", 7)
    return disk


def names(disk: SimDisk) -> list[str]:
    return sorted(name for name in disk.files() if name.endswith(".wal"))


def contents(disk: SimDisk) -> list[bytes]:
    with RaftWalReader(disk) as guest:
        assert guest.damage == ()
        assert [guest.check(segment.name) for segment in guest.segments()] == [None] * len(
            guest.segments()
        )
        return [guest.read(i) for i in range(guest.first_index, guest.last_index + 1)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def write_on(disk: SimDisk, last: int) -> None:
    with RaftWal(disk, codec=OPAQUE_CODEC, segment_size_max=200) as wal:
        assert wal.last_index == last
        assert wal.append([b"on"]) == last + 1


def test_a_valid_log_needs_no_repair(disk: SimDisk) -> None:
    plan = plan_repair(disk)
    assert (plan.damage, plan.steps, plan.kept, plan.lossless) == ((), (), (1, 12), True)
    apply_repair(disk, plan)
    assert contents(disk) == numbers(1, 12)


@pytest.mark.parametrize(
    ("keep", "kept", "lost"), [("before", (1, 4), (5, 12)), ("after", (6, 12), (1, 5))]
)
def test_a_damaged_sealed_segment(disk: SimDisk, keep, kept, lost) -> None:  # type: ignore[no-untyped-def]
    disk.flip(names(disk)[1], 8 * 66)  # the payload of entry 5
    plan = plan_repair(disk, keep=keep)
    assert [(d.first_index, d.last_index) for d in plan.damage] == [(5, 5)]
    assert (plan.kept, plan.lost, plan.unknown) == (kept, (lost,), ())
    assert not plan.lossless
    before = disk.files()
    apply_repair(disk, plan)
    for seed in range(12):  # before a reader syncs what it shows
        assert contents(disk.after_power_cut(Random(seed))) == numbers(*kept)
    assert contents(disk) == numbers(*kept)
    write_on(disk, kept[1])
    kept_bytes = [data for name, data in disk.files().items() if name.endswith(".cut")]
    gone = set(before) - set(disk.files())
    assert sorted(before[name] for name in gone) == sorted(kept_bytes)


def test_a_missing_segment(disk: SimDisk) -> None:
    disk.remove(names(disk)[2])
    with pytest.raises(CorruptError), RaftWalSubject().open(disk) as wal:
        wal.append([b"no"])
    plan = plan_repair(disk, keep="after")
    assert (plan.kept, plan.lost) == ((10, 12), ((1, 9),))
    apply_repair(disk, plan)
    assert contents(disk) == numbers(10, 12)
    write_on(disk, 12)


def test_an_active_segment_damaged_in_its_middle(disk: SimDisk) -> None:
    disk.remove(MARK, REMEMBERED)
    tail = names(disk)[-1]
    disk.flip(tail, 8 * 66)  # entry 11
    plan = plan_repair(disk)
    assert (plan.kept, plan.unknown) == ((1, 10), (tail,))
    apply_repair(disk, plan)
    for seed in range(12):  # before a reader syncs what it shows
        assert contents(disk.after_power_cut(Random(seed))) == numbers(1, 10)
    assert contents(disk) == numbers(1, 10)
    write_on(disk, 10)
    assert any(name.startswith(tail) and name.endswith(".cut") for name in disk.files())


def test_a_missing_meta_store_is_rebuilt(disk: SimDisk) -> None:
    disk.rename(META_STORE, "elsewhere")
    with pytest.raises(CorruptError, match="missing"):
        RaftWalSubject().open(disk)
    plan = plan_repair(disk)
    assert (plan.kept, plan.lost, plan.unknown) == ((1, 12), (), (META_STORE,))
    apply_repair(disk, plan)
    assert contents(disk) == numbers(1, 12)
    write_on(disk, 12)


def test_a_damaged_meta_store_is_kept(disk: SimDisk) -> None:
    disk.create(META_STORE, b"garbage" * 1000, replace=True)
    apply_repair(disk, plan_repair(disk))
    assert contents(disk) == numbers(1, 12)
    assert disk.files()[f"{META_STORE}.cut"] == b"garbage" * 1000


def test_truncated_tails_stay_truncated_in_a_rebuilt_store(disk: SimDisk) -> None:
    with RaftWalSubject().open(disk) as wal:
        wal.truncate_tail(8)
        wal.append([b"new"])
    disk.remove(META_STORE)
    apply_repair(disk, plan_repair(disk))
    assert contents(disk) == [*numbers(1, 8), b"new"]


def test_without_valid_entries_repair_leaves_an_empty_log(disk: SimDisk) -> None:
    for name in names(disk):
        disk.create(name, b"garbage" * 40, replace=True)
    plan = plan_repair(disk)
    apply_repair(disk, plan)
    assert contents(disk) == []


def test_a_plan_is_for_one_state_only(disk: SimDisk) -> None:
    plan = plan_repair(disk)
    with RaftWalSubject().open(disk) as wal:
        wal.append([b"more"])
    with pytest.raises(HoldfastError, match="plan it again"):
        apply_repair(disk, plan)


def test_a_torn_tail_is_left_to_recovery(disk: SimDisk) -> None:
    disk.remove(MARK, REMEMBERED)
    disk.flip(names(disk)[-1], 8 * 92)  # entry 12, the last batch
    plan = plan_repair(disk)
    assert [d.torn for d in plan.damage] == [True]
    assert (plan.steps, plan.kept) == ((), (1, 11))
    apply_repair(disk, plan)
    assert contents(disk) == numbers(1, 11)


def test_keep_is_one_of_two(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="keep"):
        plan_repair(disk, keep="both")  # type: ignore[arg-type]
