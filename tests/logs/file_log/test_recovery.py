"""Recovery from our crashes, from those of the original, and from writes of other programs."""

from contextlib import suppress
from random import Random

import numpy as np
import pytest
from isal.isal_zlib import crc32

from holdfast.errors import CorruptError
from holdfast.formats import rlog, rlog_commit, snapshot_file
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log import FileLog, FileLogReader
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.intent import INTENT, plan_rollback, write_intent
from holdfast.logs.mark import MARK
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.log_contract import contents

FIRST = "log/00000/00/00/00000000000001.rlog"
SECOND = "log/00000/00/00/00000000000004.rlog"
META = Meta("2024-01-02T03:04:05.678Z", "host")


def opened(disk: SimDisk) -> FileLog:
    return FileLogSubject().open(disk)


def filled(count: int = 3) -> SimDisk:
    disk = SimDisk()
    with opened(disk) as log:
        log.append([b"%d" % number for number in range(1, count + 1)])
    return disk


def unmarked(disk: SimDisk) -> SimDisk:
    """As the original, which keeps no mark, leaves it."""
    disk.remove(MARK, UNTOUCHED)
    return disk


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


def patch(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    disk.open(name, writable=True).write_at(offset, data, sync=True)


def cuts(disk: SimDisk) -> list[bytes]:
    return [data for name, data in disk.files().items() if name.endswith(".cut")]


@pytest.mark.parametrize("size", [0, 10, 24, 30, 36, 60, 92])
def test_a_file_that_was_never_finished_is_removed(size: int) -> None:
    disk = filled()
    whole = rlog.encode_file(rlog.Header(4, 4), META)
    disk.create(SECOND, whole[:size])
    with FileLogReader(disk) as guest:
        assert (guest.damage, guest.last_index) == ((), 3)
    with opened(disk) as log:
        assert ("never finished" in log.recovered[0], len(cuts(disk))) == (True, bool(size))
        assert log.append([b"4"]) == 4
        assert contents(log) == numbers(4)


def test_a_first_file_that_was_never_finished_is_created_again() -> None:
    disk = SimDisk()
    opened(disk).close()
    disk.create(FIRST, b"RLOG\x1c", replace=True)
    with opened(disk) as log:
        assert log.append([b"1"]) == 1


def test_an_invalid_head_is_damage_if_there_are_entries() -> None:
    disk = filled()
    patch(disk, FIRST, 0, b"rlog")
    with opened(disk) as log:
        assert [d.file for d in log.damage] == [FIRST]
        with pytest.raises(CorruptError):
            log.append([b"no"])


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_an_offset_past_the_data_is_cut_and_kept(kept: int) -> None:
    """The original syncs entries and offsets at once, so a crash may leave it."""
    disk = unmarked(filled())
    data = disk.files()[FIRST]
    start = data.index(b"ITMZ") + 8
    disk.create(FIRST, data[: start + 21 * kept + 5], replace=True)
    with FileLogReader(disk) as guest:
        torn = guest.check(FIRST)
        assert torn is not None
        assert (torn.torn, guest.last_index) == (True, kept)
    with opened(disk) as log:
        assert "never arrived" in log.recovered[0]
        assert log.append([b"next"]) == kept + 1
        assert contents(log) == [*numbers(kept), b"next"]
    assert sorted(map(len, cuts(disk))) == sorted([4 * (3 - kept), 5])


def test_an_offset_to_zeros_is_cut() -> None:
    disk = unmarked(filled())
    start = disk.files()[FIRST].index(b"ITMZ") + 8
    patch(disk, FIRST, start + 21, bytes(42))
    with opened(disk) as log:
        assert "not an entry" in log.recovered[0]
        assert contents(log) == numbers(1)


def test_a_snapshot_ahead_of_the_log_replaces_it() -> None:
    """The original crashed before it moved the log aside."""
    disk = filled()
    head = snapshot_file.encode_head(100, 7, 4, META)
    disk.remove(UNTOUCHED)
    disk.create("snap", head + b"data", replace=True)
    with FileLogReader(disk) as guest:
        assert (guest.first_index, guest.last_index, guest.last_term) == (101, 100, 7)
    with opened(disk) as log:
        assert "moved to log-" in log.recovered[0]
        assert (log.first_index, log.append([b"on"])) == (101, 101)
        assert log.facts()["capacity"] == "4 entries per file"
    assert [name for name in disk.files() if name.startswith("log-") and name.endswith(".rlog")]


def test_a_snapshot_that_contradicts_the_log_is_damage() -> None:
    disk = filled()
    disk.remove(UNTOUCHED)
    disk.create("snap", snapshot_file.encode_head(2, 9, 0, META), replace=True)
    with opened(disk) as log:
        assert "it is of term 9, but entry 2 of term 1" in log.damage[0].why


def test_a_log_without_its_snapshot_file() -> None:
    disk = filled(6)
    disk.remove("snap")
    with opened(disk) as log:
        assert contents(log) == numbers(6)
        log.create_snapshot(4, b"")
    disk.remove("snap", FIRST)
    with FileLogReader(disk) as guest:
        found = [(d.file, d.first_index, d.last_index) for d in guest.damage]
        assert found == [("snap", 0, 0)]  # it covered the entries of that file


def test_a_killed_owner_leaves_a_record_and_the_next_one_removes_it() -> None:
    disk = SimDisk()
    log = opened(disk)
    log.append([b"1", b"2"])
    size = len(disk.files()[FIRST])
    with opened(disk.after_kill()) as log:
        assert (contents(log), log.recovered) == (numbers(2), ())
        assert len(disk.files()[FIRST]) == size - rlog_commit.record_size(2)


def torn() -> SimDisk:
    """Return a log with a durable batch whose slots were never written."""
    disk = SimDisk()
    log = opened(disk)
    log.append([b"1"])
    log.append([b"2", b"3"])
    patch(disk, FIRST, rlog.TABLE_START + 4, b"\x07\0\0\0\0\0\0\0")
    return disk.after_kill()


def test_torn_slots_are_written_again() -> None:
    disk = torn()
    with FileLogReader(disk) as guest:
        assert guest.last_index == 1
    with opened(disk) as log:
        assert contents(log) == numbers(3)
        assert log.recovered[0].endswith("wrote the slots of entries 2..3 again")


def test_a_record_is_void_once_others_have_written() -> None:
    disk = torn()
    disk.remove(UNTOUCHED)
    start = disk.files()[FIRST].index(b"ITMZ") + 8
    patch(disk, FIRST, start + 21, b"r" * 12 + b"\0\1" + bytes(6) + b"!")  # as the original would
    patch(disk, FIRST, rlog.TABLE_START + 4, (42).to_bytes(4, "little"))
    with opened(disk) as log:
        assert (log.damage, contents(log)) == ((), [b"1", b"!"])


def test_a_rollback_is_abandoned_if_others_have_written() -> None:
    disk = unmarked(filled())
    write_intent(disk, plan_rollback(disk, 2, 1, keeps_file=True))
    start = disk.files()[FIRST].index(b"ITMZ") + 8
    patch(disk, FIRST, start + 21, b"r" * 12 + b"\0\1" + bytes(6) + b"!")
    with opened(disk) as log:
        assert "abandoned" in log.recovered[0]
        assert contents(log) == [b"1", b"!", b"3"]
    assert INTENT not in disk.files()


def test_an_unreadable_intent_is_damage() -> None:
    disk = filled()
    disk.create(INTENT, b'{"crc32": 1, "intent": {"kind": "rollback"}}')
    with opened(disk) as log:
        assert [d.file for d in log.damage] == [INTENT]
        assert contents(log) == numbers(3)


def test_the_original_order_loses_nothing_that_was_acknowledged() -> None:
    """Unacknowledged entries are damage, or missing, or complete."""
    for seed in range(300):
        random, disk = Random(seed), SimDisk()
        log = FileLog(disk, capacity=8, sync_mode="original")
        log.append([b"1", b"2"])
        disk.posix.operations, disk.posix.dies_at = 0, random.randrange(3)
        with pytest.raises(BaseException, match=r"^$"):
            log.append([b"3", b"4", b"5"])
        after = FileLog(disk.after_power_cut(random), capacity=8)
        assert after.damage or [after.read(1), after.read(2)] == numbers(2)
        assert after.read(1) == b"1"


def test_hostile_heads_are_refused_in_bounded_memory() -> None:
    random = Random(3)
    for _ in range(300):
        disk = filled(6)
        name = random.choice([FIRST, SECOND, "snap"])
        data = bytearray(disk.files()[name])
        for _ in range(random.randint(1, 4)):
            data[random.randrange(min(len(data), 110))] = random.choice(
                (0, 255, random.randrange(256))
            )
        disk.create(name, bytes(data), replace=True)
        try:
            with FileLogReader(disk) as guest:
                found_damage: list[object] = []
                list(guest.scan(on_damage=found_damage.append))
                for segment in guest.segments():
                    guest.check(segment.name)
        except Exception as error:
            assert type(error).__module__ == "holdfast.errors", repr(error)


def test_dirty_slots_do_not_show_with_a_batch_that_is_written_again() -> None:
    """A torn rollback of the original leaves slots after the first that is zero."""
    for dies_at in range(12):
        for seed in range(8):
            disk = filled()
            disk.remove(UNTOUCHED)
            patch(disk, FIRST, rlog.TABLE_START + 4, bytes(4))  # of entry 2; that of 3 stays
            log = opened(disk)
            assert log.last_index == 1
            disk.posix.operations, disk.posix.dies_at = 0, dies_at
            with suppress(PowerLost):
                log.append([b"x"])
            image = disk.after_kill() if seed == 0 else disk.after_power_cut(Random(seed))
            with opened(image) as log:
                assert contents(log) in ([b"1"], [b"1", b"x"]), (dies_at, seed)
                log.append([b"y"])
                assert contents(log)[-1] == b"y"


def test_a_record_whose_entries_did_not_arrive_is_removed() -> None:
    """Otherwise a later torn append could complete them."""
    disk = filled(1)
    with opened(disk) as log:
        stop, size = log._active.stop, disk.list("log/00000/00/00")[FIRST.rpartition("/")[2]]
    ends = np.array([stop + 30], np.uint32)
    record = rlog_commit.encode_commit(1, stop, crc32(b"never arrived".ljust(30)), ends)
    patch(disk, FIRST, size, bytes(30) + record)
    with opened(disk) as log:
        assert contents(log) == numbers(1)
        assert disk.open(FIRST).size() == size
    assert cuts(disk) == [bytes(30) + record]
