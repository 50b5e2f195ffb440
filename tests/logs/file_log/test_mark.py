"""The mark of a FileLog: what it covers is never cut off, and nothing goes missing unnoticed."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from random import Random

import pytest

from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats import rlog
from holdfast.formats.mark import FILE_SIZE, Mark, encode_file
from holdfast.formats.rlog_mark import TAIL_SIZE_MAX
from holdfast.logs.file_log import FileLog, FileLogReader
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.intent import INTENT, plan_rollback, write_intent
from holdfast.logs.file_log.repair import apply_repair, plan_repair
from holdfast.logs.log import Damage
from holdfast.logs.mark import MARK, read_mark
from holdfast.logs.opening import format_of
from holdfast.logs.retention import Retention
from holdfast.logs.verify import VerifyReport, verify_log
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.log_contract import contents

NAMES = [f"log/00000/00/00/{index:014x}.rlog" for index in (1, 4, 8, 12)]
FIRST, LAST = NAMES[0], NAMES[-1]
ENTRIES = [b"%d" % number for number in range(1, 15)]  # 1..3, 4..7, 8..11 and 12..14


def opened(disk: SimDisk) -> FileLog:
    return FileLogSubject().open(disk)


def verified(disk: SimDisk) -> VerifyReport:
    return verify_log(disk, pause=lambda ms: None)


def filled(entries: list[bytes]) -> tuple[SimDisk, FileLog]:
    disk = SimDisk()
    log = opened(disk)
    log.append(entries[:-2])
    log.append(entries[-2:])
    return disk, log


@pytest.fixture(params=["closed", "killed"])
def disk(request: pytest.FixtureRequest) -> SimDisk:
    disk, log = filled(ENTRIES)
    if request.param == "killed":
        return disk.after_kill()
    log.close()
    return disk


def patch(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    disk.open(name, writable=True).write_at(offset, data, sync=True)


def shorten(disk: SimDisk, name: str, size: int) -> None:
    disk.create(name, disk.files()[name][:size], replace=True)


def data_of(disk: SimDisk, name: str) -> tuple[int, list[int]]:
    """Return where the entries of a file begin, and where each of them ends."""
    head = rlog.decode_head(lambda offset, size: disk.files()[name][offset : offset + size])
    assert isinstance(head, rlog.Head)
    slots = rlog.decode_slots(disk.files()[name][rlog.TABLE_START : head.header.table_stop])
    return head.data_start, [head.data_start + int(end) for end in slots[: rlog.count_used(slots)]]


def everything(disk: SimDisk) -> dict[str, bytes]:
    return {name: data for name, data in disk.files().items() if name != "LOCK"}


def damage_of(disk: SimDisk) -> list[Damage]:
    """Return the damage, which the owner, readers, verify and repair report alike."""
    before = everything(disk)
    with FileLogReader(disk) as reader:
        found = list(reader.damage)
        list(readable(reader))
    assert [d for s in verified(disk).segments for d in s.damage if not d.torn] == found
    assert list(plan_repair(disk).damage) == found
    assert everything(disk) == before, "a reader has changed something"
    with opened(disk) as log:
        assert list(log.damage) == found
        assert log.recovered == ()
        with pytest.raises(CorruptError):
            log.append([b"no"])
    assert everything(disk) == before, "nothing is cut off"
    return found


def readable(reader: FileLogReader) -> Iterator[int]:
    """Yield the indexes of sound entries; none of them may have changed."""
    for index in range(reader.first_index, reader.last_index + 1):
        try:
            payload = reader.read(index)
        except CorruptError:
            assert any(d.first_index <= index <= d.last_index for d in reader.damage)
        else:
            assert payload == ENTRIES[index - 1]
            yield index


def repaired(disk: SimDisk, kept: tuple[int, int]) -> None:
    plan = plan_repair(disk)
    assert plan.kept == kept
    apply_repair(disk, plan)
    assert verified(disk).verdict == "clean"
    mark = read_mark(disk)
    assert isinstance(mark, Mark)
    assert (mark.first_index, mark.last_index) == kept
    with opened(disk) as log:
        assert (log.damage, log.recovered) == ((), ())
        assert contents(log) == ENTRIES[kept[0] - 1 : kept[1]]
        assert log.append([b"on"]) == kept[1] + 1


def spans(damage: list[Damage]) -> list[tuple[int, int]]:
    return [(one.first_index, one.last_index) for one in damage]


# Files


@pytest.mark.parametrize(
    ("number", "lost", "kept"),
    [(0, (1, 3), (4, 14)), (1, (4, 7), (1, 3)), (2, (8, 11), (1, 7)), (3, (12, 14), (1, 11))],
)
def test_a_missing_file(
    disk: SimDisk, number: int, lost: tuple[int, int], kept: tuple[int, int]
) -> None:
    disk.remove(NAMES[number])
    assert spans(damage_of(disk)) == [lost]
    repaired(disk, kept)


def test_missing_last_files(disk: SimDisk) -> None:
    disk.remove(*NAMES[2:])
    assert spans(damage_of(disk)) == [(8, 14)]
    repaired(disk, (1, 7))


@pytest.mark.parametrize("left", [("snap", MARK), (MARK,), (UNTOUCHED,), (MARK, UNTOUCHED)])
def test_a_log_without_its_files_is_not_a_new_log(disk: SimDisk, left: tuple[str, ...]) -> None:
    for name in disk.files():
        if name not in left and name != "LOCK":
            disk.remove(name)
    assert format_of(disk).name == "file-log"
    found = damage_of(disk)
    assert spans(found) == ([(1, 14)] if MARK in left else [(0, 0)])
    repaired(disk, (1, 0))


@pytest.mark.parametrize("size", [0, 10, 30, 60])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_last_file_that_was_emptied(disk: SimDisk, size: int, zeros: bool) -> None:
    whole = len(disk.files()[LAST])
    data = disk.files()[LAST][:size]
    disk.create(LAST, data.ljust(whole, b"\0") if zeros else data, replace=True)
    assert spans(damage_of(disk)) == [(12, 14)]
    repaired(disk, (1, 11))


def test_an_older_copy_of_a_file() -> None:
    disk, log = filled(ENTRIES[:-1])
    older = disk.files()[LAST]
    log.append(ENTRIES[-1:])
    log.close()
    disk.create(LAST, older, replace=True)
    assert spans(damage_of(disk)) == [(14, 14)]
    repaired(disk, (1, 13))


def test_a_file_of_another_log(disk: SimDisk) -> None:
    other = SimDisk()
    with FileLog(other, capacity=4, segment_size_max=400) as log:  # another clock and host
        log.append(ENTRIES)
    kept = disk.files()
    disk.create(LAST, other.files()[LAST], replace=True)
    assert spans(damage_of(disk)) == [(12, 14)]
    disk.create(LAST, kept[LAST], replace=True)
    assert verified(disk).verdict == "clean"
    disk.create(NAMES[1], other.files()[NAMES[1]], replace=True)
    assert [one.why for one in damage_of(disk)] == [
        "the index files are not those that the log had"
    ]
    repaired(disk, (1, 14))


# The end of the last file


@pytest.mark.parametrize("entries", [1, 2, 3])
@pytest.mark.parametrize("how", ["cut", "zeroed", "slots zeroed"])
def test_an_end_that_was_cut_or_zeroed(disk: SimDisk, how: str, entries: int) -> None:
    start, ends = data_of(disk, LAST)
    end = [start, *ends][-1 - entries]
    if how == "slots zeroed":
        patch(disk, LAST, rlog.TABLE_START + 4 * (3 - entries), bytes(4 * entries))
    elif how == "cut":
        shorten(disk, LAST, end + 3)
    else:
        patch(disk, LAST, end, bytes(len(disk.files()[LAST]) - end))
    if how == "slots zeroed" and entries < 3 and len(disk.files()[LAST]) > ends[-1]:
        # A killed owner left a record of the last two entries: the next one writes them again.
        assert verified(disk).verdict == "torn tail"
        assert plan_repair(disk).kept == (1, 14)
        with opened(disk) as log:
            assert (log.damage, contents(log)) == ((), ENTRIES)
        return
    assert spans(damage_of(disk)) == [(15 - entries, 14)]
    repaired(disk, (1, 14 - entries))


def test_every_flipped_bit_of_the_last_batch_is_damage() -> None:
    clean, log = filled(ENTRIES)
    log.close()
    files = clean.files()
    _, ends = data_of(clean, LAST)
    bits = [*range(8 * ends[0], 8 * ends[-1])]  # of entries 13 and 14
    bits += range(8 * (rlog.TABLE_START + 8), 8 * (rlog.TABLE_START + 12))  # where 14 ends
    for bit in bits:
        disk = SimDisk()
        for name, data in files.items():
            disk.create(name, data)
        disk.flip(LAST, bit)
        with FileLogReader(disk) as reader:
            (found,) = reader.damage
            assert found.last_index == 14
            assert found.first_index in (13, 14)
            assert list(readable(reader))[-1] < found.first_index
        with opened(disk) as log, pytest.raises(CorruptError):
            log.append([b"no"])
        if bit % 64 == 0:
            assert damage_of(disk) == [found]
            repaired(disk, (1, found.first_index - 1))


def test_of_a_large_batch_the_last_megabyte_is_covered() -> None:
    disk = SimDisk()
    with FileLog(disk) as log:
        log.append([b"x" * 700_000, b"y" * 700_000, b"z" * 700_000])
    _, ends = data_of(disk, FIRST)
    patch(disk, FIRST, ends[-1] - TAIL_SIZE_MAX, b"!")
    with FileLogReader(disk) as reader:
        assert spans(list(reader.damage)) == [(2, 3)]
        assert reader.read(1) == b"x" * 700_000


def test_what_lies_beyond_the_mark_is_torn_and_kept() -> None:
    disk, log = filled(ENTRIES)
    log.close()
    end = len(disk.files()[LAST])
    patch(disk, LAST, end, b"half a batch")
    with FileLogReader(disk) as reader:
        assert (reader.damage, reader.last_index) == ((), 14)
    assert verified(disk).verdict == "torn tail"
    assert [d.torn for d in plan_repair(disk).damage] == [True]
    with opened(disk) as log:
        assert "a batch of which a part arrived" in log.recovered[0]
        assert contents(log) == ENTRIES
    assert [d for n, d in disk.files().items() if n.endswith(".cut")] == [b"half a batch"]
    assert verified(disk).verdict == "clean"
    assert len(disk.files()[LAST]) == end


def test_bytes_of_removed_entries_are_not_a_torn_batch() -> None:
    disk, log = filled(ENTRIES)
    log.truncate_tail(12)
    assert verified(disk).verdict == "clean"
    log.close()
    assert verified(disk).verdict == "clean"
    with opened(disk) as log:
        assert log.recovered == ()
        log.append([b"13"])
        assert verified(disk).verdict == "clean"
    log = opened(disk)
    log.truncate_tail(11)
    log.append([b"12"])
    disk = disk.after_kill()
    assert verified(disk).verdict == "clean"
    with opened(disk) as log:
        assert (log.recovered, log.last_index) == ((), 12)


def test_an_unfinished_rollback_is_reported() -> None:
    disk, log = filled(ENTRIES)
    log.close()
    write_intent(disk, plan_rollback(disk, 9, 8, keeps_file=True))
    report = verified(disk)
    assert report.verdict == "torn tail"
    assert "a rollback is not finished" in report.segments[-1].damage[0].why
    assert plan_repair(disk).kept == (1, 8)


def test_an_unfinished_discard_is_reported() -> None:
    verdicts = set[str]()
    for dies_at in range(100):
        disk, log = filled(ENTRIES)
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        with suppress(PowerLost):
            log.install_snapshot(20, 5, b"twenty")
        if disk.posix.operations < dies_at:
            assert verdicts == {"clean", "torn tail"}
            return
        disk = disk.after_kill()
        is_under_way = INTENT in disk.files()
        verdicts.add(verified(disk).verdict)
        assert verified(disk).verdict == ("torn tail" if is_under_way else "clean"), dies_at
        assert all(one.torn for one in plan_repair(disk).damage)
        kept = plan_repair(disk).kept
        with opened(disk) as log:
            assert (log.damage, log.first_index, log.last_index) == ((), *kept)
    raise AssertionError("the discard never ended")


@pytest.mark.parametrize("how", ["flipped", "cut", "last file", "middle file", "mark"])
def test_a_repair_that_crashes_can_be_repeated(how: str) -> None:
    """Whatever it has done, the next one comes to the same end."""
    for dies_at, seed in product(range(60), range(5)):
        disk, log = filled(ENTRIES)
        log.close()
        spoil(disk, how)
        plan = plan_repair(disk)
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        with suppress(PowerLost):
            apply_repair(disk, plan)
        is_done = disk.posix.operations < dies_at
        disk = disk.after_power_cut(Random(seed)) if seed else disk.after_kill()
        apply_repair(disk, plan_repair(disk))
        with opened(disk) as log:
            assert log.damage == ()
            assert contents(log) == ENTRIES[: plan.kept[1]], (how, dies_at)
        assert verified(disk).verdict == "clean"
        if is_done:
            return
    raise AssertionError("the repair never ended")


def spoil(disk: SimDisk, how: str) -> None:
    _, ends = data_of(disk, LAST)
    if how == "flipped":
        disk.flip(LAST, 8 * (ends[-1] - 1))
    elif how == "cut":
        shorten(disk, LAST, ends[-1] - 1)
    else:
        disk.remove({"last file": LAST, "middle file": NAMES[1], "mark": MARK}[how])


# The snapshot


@pytest.mark.parametrize("older", [False, True])
def test_a_snapshot_that_is_missing_or_an_older_one(older: bool) -> None:
    disk, log = filled(ENTRIES)
    log.create_snapshot(2, b"two")
    copy = disk.files()["snap"]
    log.create_snapshot(5, b"five")
    log.close()
    if older:
        disk.create("snap", copy, replace=True)
    else:
        disk.remove("snap")
    (found,) = damage_of(disk)
    assert (found.file, "snapshot of entry 5" in found.why) == ("snap", True)
    apply_repair(disk, plan_repair(disk))
    assert verified(disk).verdict == "clean"
    with opened(disk) as log:
        assert (log.damage, log.last_index) == ((), 14)


def test_entries_that_a_snapshot_covers_are_not_missed() -> None:
    disk, log = filled(ENTRIES)
    log.create_snapshot(9, b"nine")
    log.close()
    disk.remove(*NAMES[:2])  # zmq-raft leaves this to its operator
    with opened(disk) as log:
        assert (log.damage, contents(log)) == ((), ENTRIES[9:])


# The mark itself


def test_a_missing_mark(disk: SimDisk) -> None:
    disk.remove(MARK)
    (found,) = damage_of(disk)
    assert (found.file, "mark missing" in found.why) == (MARK, True)
    repaired(disk, (1, 14))


@pytest.mark.parametrize("data", [b"", bytes(FILE_SIZE), b"?" * FILE_SIZE])
def test_a_damaged_mark(disk: SimDisk, data: bytes) -> None:
    disk.create(MARK, data, replace=True)
    (found,) = damage_of(disk)
    assert (found.file, "mark damaged" in found.why) == (MARK, True)
    repaired(disk, (1, 14))
    assert disk.files()[f"{MARK}.0.cut"] == data


def test_the_mark_of_another_format(disk: SimDisk) -> None:
    disk.create(MARK, encode_file(Mark("shanghai", files=1)), replace=True)
    with pytest.raises(UnsupportedError, match="files of shanghai and file-log logs"):
        verified(disk)
    with FileLogReader(disk) as reader:
        (found,) = reader.damage
    assert (found.file, "the mark of a shanghai log" in found.why) == (MARK, True)
    repaired(disk, (1, 14))


def test_a_log_without_a_mark_gets_one_at_its_first_open() -> None:
    disk, log = filled(ENTRIES)
    log.close()
    disk.remove(MARK, UNTOUCHED)  # as 0.1.0 and zmq-raft leave it
    with FileLogReader(disk) as reader:
        assert (reader.damage, reader.last_index) == ((), 14)
    assert not {MARK, UNTOUCHED} & set(disk.files())
    opened(disk).close()
    mark = read_mark(disk)
    assert isinstance(mark, Mark)
    assert (mark.format, mark.last_index, mark.last.name) == ("file-log", 14, LAST)
    shorten(disk, LAST, len(disk.files()[LAST]) - 1)
    assert spans(damage_of(disk)) == [(14, 14)]


def test_a_damaged_log_keeps_its_mark(disk: SimDisk) -> None:
    mark = disk.files()[MARK]
    disk.remove(LAST)
    for _ in range(3):
        opened(disk).close()
    assert disk.files()[MARK] == mark


def test_the_mark_follows_every_change() -> None:
    disk = SimDisk()

    def check(log: FileLog, *, is_saved: bool) -> None:
        mark = read_mark(disk)
        assert isinstance(mark, Mark)
        assert (mark.first_index, mark.last_index) == (log.first_index, log.last_index)
        assert (
            mark.list_crc
            == log._marks._mark(
                log.reader.view.segments, log.last_index, None, has_spare=False
            ).list_crc
        )
        for seed in range(5):
            cut = read_mark(disk.after_power_cut(Random(seed)))
            assert not is_saved or cut == mark

    with opened(disk) as log:
        check(log, is_saved=True)
        for number in range(1, 10):
            log.append([b"%d" % number])
            check(log, is_saved=number > 3 and log._active.count == 1)
        log._marks.tick()
        check(log, is_saved=True)
        log.append([b"x"] * 9)
        check(log, is_saved=True)
        log.rotate()
        log.append([b"x"])
        check(log, is_saved=True)
        log.truncate_tail(10)
        check(log, is_saved=True)
        log.create_snapshot(7, b"")
        check(log, is_saved=True)
        log.trim(Retention(before=8))
        check(log, is_saved=True)
        log.install_snapshot(9, 7, b"")
        check(log, is_saved=True)
        log.append([b"x"])
        log.close()
        check(opened(disk), is_saved=True)


# Other programs: see also tests/interop/test_zmq_raft.py


def rolled_back(disk: SimDisk) -> None:
    """Roll back to entry 8 as zmq-raft does: it removes our file when it opens the log."""
    disk.remove(UNTOUCHED)
    disk.remove(*NAMES[2:])


def test_a_rollback_of_others_is_not_damage(disk: SimDisk) -> None:
    rolled_back(disk)
    with FileLogReader(disk) as reader:
        assert (reader.damage, reader.last_index) == ((), 7)
    assert verified(disk).verdict == "clean"
    with opened(disk) as log:
        assert (log.damage, contents(log)) == ((), ENTRIES[:7])
        log.append([b"8"])
    disk.remove(NAMES[2])
    assert spans(damage_of(disk)) == [(8, 8)]


@pytest.mark.parametrize("how", ["cut", "zeroed", "flipped"])
def test_damage_below_an_entry_that_others_have_left_is_found(disk: SimDisk, how: str) -> None:
    _, ends = data_of(disk, LAST)
    disk.remove(UNTOUCHED)
    if how == "cut":
        shorten(disk, LAST, ends[1] + 3)
    elif how == "zeroed":
        patch(disk, LAST, ends[1], bytes(len(disk.files()[LAST]) - ends[1]))
    else:
        disk.flip(LAST, 8 * (ends[1] - 1))
    with FileLogReader(disk) as reader:
        assert [d.last_index for d in reader.damage] == [14]
    with opened(disk) as log, pytest.raises(CorruptError):
        log.append([b"no"])
