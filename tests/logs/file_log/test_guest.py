from contextlib import suppress

import pytest

from holdfast.disk import OsDisk, OsFile
from holdfast.errors import ChangedError, CorruptError, HoldfastError, OutOfRangeError
from holdfast.logs.file_log import FileEntry, FileLog, FileLogGuest
from holdfast.logs.file_log.tasks import check_segment, scan_segment
from holdfast.logs.log import Damage, Described, Inspectable
from holdfast.logs.retention import Retention
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject


def owner(disk: SimDisk) -> FileLog:
    return FileLogSubject().open(disk)


def test_follows_appends_rolls_rollbacks_and_snapshots() -> None:
    disk = SimDisk()
    with owner(disk) as log, FileLogGuest(disk) as guest:
        assert (guest.first_index, guest.refresh()) == (1, 0)
        for number in range(1, 30):
            log.append([b"%d" % number])
            assert guest.refresh() == number
            assert guest.read(number) == b"%d" % number
        log.truncate_tail(17)
        assert guest.refresh() == 17
        log.append([b"other"])
        assert (guest.refresh(), guest.read(18)) == (18, b"other")
        log.create_snapshot(9, b"nine")
        log.compact(Retention(before=10))
        assert (guest.refresh(), guest.first_index) == (18, 10)
        assert (guest.snapshot.index, guest.read_snapshot(1, 2)) == (9, b"in")
        with pytest.raises(OutOfRangeError):
            guest.read(9)
        log.create_snapshot(12, b"twelve")
        with pytest.raises(HoldfastError, match="refresh"):
            guest.read_snapshot()
        log.install_snapshot(50, 3, b"")
        assert (guest.refresh(), guest.first_index, guest.last_term) == (50, 51, 3)


def test_a_file_removed_and_made_again_is_not_mistaken() -> None:
    disk = SimDisk()
    with owner(disk) as log, FileLogGuest(disk) as guest:
        log.append([b"a%d" % number for number in range(9)])
        assert guest.refresh() == 9
        log.truncate_tail(3)
        log.append([b"b%d" % number for number in range(6)])
        assert guest.refresh() == 9
        assert [guest.read(i) for i in (3, 4, 9)] == [b"a2", b"b0", b"b5"]


def a_guest_sees_all_or_nothing_of_a_rollback() -> None:
    disk = SimDisk()
    log = owner(disk)
    log.append([b"%d" % number for number in range(10)])
    seen = set()

    def look() -> None:
        disk.posix.bystander = None
        with FileLogGuest(disk) as guest:
            assert guest.damage == ()
            seen.add(guest.last_index)
            assert [guest.read(i) for i in range(1, guest.last_index + 1)]
        disk.posix.bystander = look

    disk.posix.bystander = look
    log.truncate_tail(2)
    disk.posix.bystander = None
    log.close()
    assert seen == {2, 10}


def test_a_guest_sees_all_or_nothing_of_a_rollback() -> None:
    a_guest_sees_all_or_nothing_of_a_rollback()


def test_tells_what_it_is_made_of() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"x"] * 6)
        log.create_snapshot(4, b"four")
        log.state.update({"currentTerm": 7, "votedFor": "id1", "peers": [["id1", "tcp://a"]]})
    with FileLogGuest(disk) as guest:
        assert isinstance(guest, Inspectable)
        assert isinstance(guest, Described)
        one, two = guest.segments()
        assert (one.state, one.first_index, one.last_index) == ("covered", 5, 4)
        assert (two.state, two.first_index, two.last_index) == ("active", 5, 6)
        assert two.created_ms == 1_700_000_000_000
        facts = guest.facts()
        assert facts["capacity"] == "4 entries per file"
        assert facts["snapshot"].startswith(
            "entry 4, term 1, 4 bytes, made 2023-11-14T22:13:20.000Z"
        )
        assert (facts["state currentTerm"], facts["state peers"]) == ("7", "id1 at tcp://a")
        assert guest.read_state()["votedFor"] == "id1"
        assert guest.check_whole() == []
        with pytest.raises(FileNotFoundError):
            guest.check("other.rlog")


def test_entries_come_apart_into_columns() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append_checkpoint(3)
        log.append_config(b"c" * 12, b"peers", term=3)
        (batch,) = log.scan()
        columns = log.decode_columns(batch)
        assert columns is not None
        assert columns.to_pylist() == [
            {
                "index": 1,
                "term": 3,
                "type": "checkpoint",
                "request_id": bytes(12),
                "data": b"\xc0",
            },
            {"index": 2, "term": 3, "type": "config", "request_id": b"c" * 12, "data": b"peers"},
        ]


def test_files_are_scanned_and_checked_one_by_one() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        for number in range(1, 31):
            log.append([b"%d" % number])
        log.create_snapshot(5, b"")
    with FileLogGuest(disk) as guest:
        whole = [row for batch in guest.scan() for row in batch.to_pylist()]
        segments = guest.segments()
    rows = []
    for segment in segments:
        batches = scan_segment(disk, segment, segment.first_index, segment.last_index + 1)
        rows += [row for batch in batches for row in batch.to_pylist()]
        assert check_segment(disk, segment) is None
    assert rows == whole
    assert rows[0]["index"] == 6


def test_damage_is_told_and_what_is_sound_is_read() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"%d" % number for number in range(1, 12)])
    name = "log/00000/00/00/00000000000004.rlog"
    bad = bytearray(disk.files()[name])
    start = bad.index(b"ITMZ") + 8
    bad[start + 21 + 12] = 9  # the type of entry 5
    disk.create(name, bytes(bad), replace=True)
    told: list[Damage] = []
    with FileLogGuest(disk) as guest:
        assert guest.damage == ()
        rows = [r["index"] for b in guest.scan(on_damage=told.append) for r in b.to_pylist()]
        assert rows == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        assert [(d.first_index, d.last_index, d.why) for d in told] == [(5, 5, "not an entry")]
        with pytest.raises(CorruptError, match="entry 5"):
            guest.read(5)
        with pytest.raises(CorruptError, match="entry 5"):
            list(guest.scan())
        damage = guest.check(name)
        assert damage is not None
        assert (damage.first_index, damage.last_index) == (5, 5)


def test_terms_that_go_back_are_found_by_a_check() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append_entries([FileEntry(5, b"five"), FileEntry(6, b"six")])
        log.append([b"x"] * 4)
    name = "log/00000/00/00/00000000000004.rlog"
    data = bytearray(disk.files()[name])
    data[data.index(b"ITMZ") + 8 + 13] = 2  # the term of entry 4
    disk.create(name, bytes(data), replace=True)
    with FileLogGuest(disk) as guest:
        assert [d.why for d in guest.check_whole()] == [
            "its term 2 is before 6, that of the file before"
        ]


def test_a_missing_file_is_damage() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"%d" % number for number in range(1, 14)])
    disk.remove("log/00000/00/00/00000000000004.rlog")
    with FileLogGuest(disk) as guest:
        assert [(d.first_index, d.last_index) for d in guest.damage] == [(4, 7)]
        assert guest.read(3) == b"3"
        assert guest.read(8) == b"8"
        with pytest.raises(CorruptError, match="missing"):
            guest.read(5)
        told: list[Damage] = []
        rows = [r["index"] for b in guest.scan(on_damage=told.append) for r in b.to_pylist()]
        assert rows == [1, 2, 3, *range(8, 14)]
        assert [(d.first_index, d.last_index) for d in told] == [(4, 7)]


def test_an_owner_beside_it_is_not_disturbed(tmp_path: pytest.TempPathFactory) -> None:
    disk = OsDisk(str(tmp_path))
    with FileLog(disk) as log, FileLogGuest(disk) as guest:
        log.append([b"x" * 1000] * 100)
        assert guest.refresh() == 100
        assert log.append([b"y"]) == 101
        assert (guest.refresh(), guest.read(101)) == (101, b"y")


# Beside an owner who rolls back and appends again, in the same places of the same files


def filled(disk: SimDisk, generation: bytes = b"old") -> FileLog:
    log = owner(disk)
    log.append([b"%b %d" % (generation, number) for number in range(10, 60)])
    return log


def replaced(log: FileLog, last: int) -> None:
    count = log.last_index - last
    log.truncate_tail(last)
    log.append([b"new %d" % number for number in range(10 + last, 10 + last + count)])


def test_a_rollback_does_not_change_what_a_guest_has_read() -> None:
    disk = SimDisk()
    with filled(disk) as log, FileLogGuest(disk) as guest:
        batches = list(guest.scan())
        replaced(log, 2)
        payloads = [each for batch in batches for each in batch.column("payload").to_pylist()]
        assert payloads == [b"old %d" % number for number in range(10, 60)]


def read_beside(index: int, number: int) -> tuple[bytes, int]:
    """Read an entry; after that many reads of the disk the owner replaces it by one of the same
    length.  Return what was shown, if anything, and how many reads there were."""
    disk = SimDisk()
    with filled(disk) as log, FileLogGuest(disk) as guest:
        posix, pread, reads = disk.posix, disk.posix.pread, 0

        def beside(fd: int, size: int, offset: int) -> bytes:
            nonlocal reads
            data, reads = pread(fd, size, offset), reads + 1
            if reads == number:
                replaced(log, index - 1)
            return data

        posix.pread = beside  # type: ignore[method-assign]
        shown = b""
        with suppress(ChangedError):
            shown = guest.read(index)
        posix.pread = pread  # type: ignore[method-assign]
        guest.refresh()
        assert guest.read(index) == (b"new %d" if reads >= number else b"old %d") % (index + 9)
        return shown, reads


@pytest.mark.parametrize("index", [7, 50])  # in a full file, and in the last
def test_a_guest_is_told_of_a_rollback_in_the_midst_of_a_read(index: int) -> None:
    _, reads = read_beside(index, 100)
    shown = [read_beside(index, number)[0] for number in range(1, reads + 1)]
    assert b"" in shown
    assert set(shown) <= {b"", b"old %d" % (index + 9), b"new %d" % (index + 9)}


def test_a_guest_maps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback changes files in place, and an owner cuts the last one."""
    disk = SimDisk()
    with filled(disk) as log:
        log.state.update({"currentTerm": 7, "votedFor": "a"})

        def refuse(file: OsFile) -> memoryview:
            raise AssertionError("a file that another process may write to is mapped")

        monkeypatch.setattr(OsFile, "map", refuse)
        with FileLogGuest(disk) as guest:
            assert [guest.read(index) for index in (1, 50)] == [b"old 10", b"old 59"]
            for batch in guest.scan():
                assert guest.decode_columns(batch) is not None
            assert guest.check_whole() == []
            assert guest.facts()
            for segment in guest.segments():
                assert check_segment(disk, segment) is None
                assert list(scan_segment(disk, segment, segment.first_index, segment.last_index))
