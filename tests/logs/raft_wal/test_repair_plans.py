"""A plan of a repair is true to the entry, whatever was damaged; verify is clean afterwards."""

from dataclasses import dataclass
from random import Random

import pytest

from holdfast.errors import HoldfastError
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.logs.mark import MARK, REMEMBERED
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader, repair
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.repair import Piece, apply_repair, plan_repair
from holdfast.logs.repairing import Keep
from holdfast.logs.verify import verify_log
from holdfast.testing.sim_disk import SimDisk

Files = dict[str, bytes]
KEEPS: list[Keep] = ["before", "after"]


def disk_of(files: Files) -> SimDisk:
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    return disk


def verdict_of(disk: SimDisk) -> str:
    try:
        return verify_log(disk, pause=lambda _: None).verdict
    except HoldfastError:
        return "corrupt"


def entries_of(disk: SimDisk) -> dict[int, bytes]:
    with RaftWalReader(disk) as log:
        rows = [(b["index"].to_pylist(), b["payload"].to_pylist()) for b in log.scan()]
        found = {i: entry for row in rows for i, entry in zip(*row, strict=True)}
        assert sorted(found) == list(range(log.first_index, log.last_index + 1))
        return found


def check_plan(files: Files, keep: Keep) -> repair.RaftRepairPlan:
    """Plan, apply, and compare what is there with what was planned."""
    disk = disk_of(files)
    plan = plan_repair(disk, keep=keep)
    is_clean = verdict_of(disk) == "clean"
    assert is_clean == (not plan.damage), f"verify and repair disagree: {plan.damage}"
    apply_repair(disk, plan)
    assert verdict_of(disk) == "clean"
    first, last = plan.kept
    assert sorted(entries_of(disk)) == list(range(first, last + 1))
    return plan


# What was found by hand


def sealed_files(*, size: int = 2000) -> tuple[Files, str]:
    """A log whose first segment is sealed by its index alone, and the name of that segment."""
    disk = SimDisk()
    with RaftWal(disk, segment_size_max=size, segment_fill_ms=None) as wal:
        for number in range(1, 21):
            wal.append([b"entry %d" % number * 5])
        name = wal.segments()[0].name
        wal.rotate()
        wal.append([b"last"])
    return disk.files(), name


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("bit", [0, 7, 30, 65, 200, 500])
def test_a_flipped_bit_of_an_index_is_repaired_without_loss(keep: Keep, bit: int) -> None:
    files, name = sealed_files()
    with RaftWalReader(disk_of(files)) as log:
        start = log.view.segments[0].meta.index_start - 8
    data = bytearray(files[name])
    data[start + bit // 8] ^= 1 << bit % 8
    hurt = {**files, name: bytes(data)}
    with RaftWalReader(disk_of(hurt)) as log:
        assert (log.read(1), log.read(21)) == (b"entry 1" * 5, b"last")
    plan = check_plan(hurt, keep)
    assert (plan.kept, plan.lost, plan.unknown) == ((1, 21), (), ())


@pytest.mark.parametrize("size", [0, 20, 31, 32, 100, 600, 601, 1000])
@pytest.mark.parametrize("keep", KEEPS)
def test_a_sealed_segment_that_was_cut_is_repaired(keep: Keep, size: int) -> None:
    files, name = sealed_files()
    plan = check_plan({**files, name: files[name][:size]}, keep)
    assert not plan.unknown
    kept = set(range(plan.kept[0], plan.kept[1] + 1))
    lost = {i for first, last in plan.lost for i in range(first, last + 1)}
    assert (kept | lost, kept & lost) == (set(range(1, 22)), set())
    is_empty = size < 100  # then what comes after it is all there is
    assert 21 in (kept if keep == "after" or is_empty else lost)


def test_a_batch_that_was_cut_by_a_truncation_stays_whole() -> None:
    """The last entry that stays is inside of a batch, and the index is damaged."""
    disk = SimDisk()
    with RaftWal(disk) as wal:
        wal.append([b"a", b"b", b"c"])
        wal.truncate_tail(2)
        wal.append([b"C"])
        first = wal.reader.view.segments[0]
        at = first.meta.index_start + 1
    files = disk.files()
    name = first.name
    data = bytearray(files[name])
    data[at] ^= 4
    plan = check_plan({**files, name: bytes(data)}, "before")
    assert (plan.kept, plan.lost) == ((1, 3), ())


def test_no_index_is_used_again_after_the_head_was_truncated_in_the_active_segment() -> None:
    disk = SimDisk()
    with RaftWal(disk) as wal:
        for number in range(1, 11):
            wal.append([b"entry %d" % number])
        wal.truncate_head(8)
        name = wal.segments()[0].name
    files = {n: data for n, data in disk.files().items() if n not in (MARK, REMEMBERED)}
    files[name] = bytes(len(files[name]))
    plan = check_plan(files, "before")
    assert plan.kept == (9, 8)
    assert plan.lost == ((8, 8),)


def test_a_damaged_header_of_removed_entries_is_reported() -> None:
    disk = SimDisk()
    with RaftWal(disk) as wal:
        for number in range(1, 6):
            wal.append([b"entry %d" % number])
        wal.truncate_head(3)
        name = wal.segments()[0].name
    files = disk.files()
    data = bytearray(files[name])
    data[22] ^= 8
    check_plan({**files, name: bytes(data)}, "after")


# At random


@dataclass
class Case:
    files: Files
    known: dict[int, bytes]
    is_marked: bool
    what: list[str]
    last_base: int


def some_log(random: Random) -> tuple[SimDisk, dict[int, bytes]]:
    disk, known, count = SimDisk(), dict[int, bytes](), 0
    codec = random.choice((RAFT_CODEC, None))
    size = random.choice((300, 600, 2000, 10_000))
    wal = RaftWal(disk, codec=codec, segment_size_max=size, segment_fill_ms=None)
    for _ in range(random.randrange(3, 25)):
        act = random.random()
        if act < 0.8:
            batch = []
            for index in range(wal.last_index + 1, wal.last_index + random.choice((2, 2, 3, 6))):
                count += 1
                body = b"%d:%s" % (count, random.randbytes(random.choice((0, 8, 20, 61))))
                batch.append(encode_entry(RaftEntry(index, data=body)) if codec else body)
                known[index] = batch[-1]
            wal.append(batch)
        elif act < 0.87:
            wal.rotate()
        elif act < 0.92:
            wal.truncate_head(random.randint(wal.first_index, wal.last_index + 1))
        elif act < 0.96:
            wal.truncate_tail(random.randint(wal.first_index - 1, wal.last_index))
        else:
            wal.set(b"key", b"%d" % count)
        known = {i: e for i, e in known.items() if wal.first_index <= i <= wal.last_index}
    if random.random() < 0.5:
        wal.close()
    return disk.after_kill(), known


def damage(files: Files, random: Random) -> str:
    """Cut, flip, zero, garble or delete a file, which may be any that holds data."""
    segments = [name for name in files if name.endswith(".wal")]
    name = random.choice([n for n in (META_STORE, MARK) if n in files] + 3 * segments)
    data = bytearray(files[name])
    at = random.randrange(max(1, min(len(data), len(data.rstrip(b"\0")) + 8)))
    way = random.choice(("cut", "flip", "flip", "flip", "zero", "garble", "delete", "empty"))
    stop = min(len(data), at + random.choice((1, 8, 30, 500)))
    if way == "flip" and data:
        data[at] ^= 1 << random.randrange(8)
    elif way in ("zero", "garble"):
        data[at:stop] = bytes(stop - at) if way == "zero" else random.randbytes(stop - at)
    elif way in ("cut", "empty"):
        del data[at if way == "cut" else 0 :]
    files[name] = bytes(data)
    if way == "delete":
        del files[name]
    return f"{way} {name} at {at}"


def some_case(seed: int) -> Case:
    random = Random(seed)
    disk, known = some_log(random)
    files = disk.files()
    last_base = max(int(name[:20]) for name in files if name.endswith(".wal"))
    is_marked = random.random() < 0.7
    if not is_marked:
        for name in (MARK, REMEMBERED):
            files.pop(name, None)
    what = [damage(files, random)]
    if random.random() < 0.3 and any(name.endswith(".wal") for name in files):
        what.append(damage(files, random))
    is_marked = is_marked and not any(MARK in one for one in what)
    return Case(files, known, is_marked, what, last_base)


def check_case(seed: int) -> None:
    case = some_case(seed)
    is_recorded = not any(META_STORE in one for one in case.what)
    if not case.files.keys() - {"LOCK", REMEMBERED, "holdfast.reserve"}:
        return  # nothing of the log is left
    for keep in KEEPS:
        note = f"seed {seed}: {case.what}, keep {keep}"
        disk = disk_of(case.files)
        plan = check_plan(case.files, keep)
        apply_repair(disk, plan)
        found = entries_of(disk)
        if is_recorded or len(case.what) == 1:  # else truncated entries may come back
            assert all(case.known.get(i, e) == e for i, e in found.items()), note
        if is_recorded:
            assert found.keys() <= case.known.keys(), note
        missing = case.known.keys() - found.keys()
        if not case.is_marked:  # the end of the active segment may be torn, for all one can know
            missing = {index for index in missing if index < case.last_base}
        lost = {i for first, last in plan.lost for i in range(first, last + 1)}
        assert not missing - lost or plan.unknown, note
        assert not lost & found.keys(), note
        if is_recorded and case.is_marked:
            assert lost <= case.known.keys(), note
        with RaftWal(disk) as wal:
            entry = encode_entry(RaftEntry(wal.last_index + 1))
            wal.append([entry if wal.codec == RAFT_CODEC else b"new"])


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_what_a_plan_promises_is_what_is_there(start: int) -> None:
    for seed in range(start, start + 20):
        check_case(seed)


def test_a_planted_bug_is_found_by_random_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that holds the last entry is cut off with it."""

    def stop_of(self: Piece, last: int) -> int:
        return max((stop for index, stop in self.stops if index < last), default=0)

    monkeypatch.setattr(Piece, "stop_of", stop_of)
    with pytest.raises((AssertionError, HoldfastError)):
        for seed in range(200):
            check_case(seed)
