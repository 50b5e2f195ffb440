from contextlib import suppress

import pytest

from holdfast.disk import Disk, OsDisk, OsFile
from holdfast.errors import ChangedError, CorruptError, HoldfastError, OutOfRangeError
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.logs.file_log import FileEntry, FileLog, FileLogReader, reader
from holdfast.logs.file_log.reader import check_segment, scan_segment
from holdfast.logs.log import Damage, Described
from holdfast.logs.mark import read_mark
from holdfast.logs.retention import Retention
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject


def owner(disk: SimDisk) -> FileLog:
    return FileLogSubject().open(disk)


def test_follows_appends_rolls_rollbacks_and_snapshots() -> None:
    disk = SimDisk()
    with owner(disk) as log, FileLogReader(disk) as guest:
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
        log.trim(Retention(before=10))
        assert (guest.refresh(), guest.first_index) == (18, 10)
        assert (guest.snapshot.index, guest.read_snapshot(1, 2)) == (9, b"in")
        with pytest.raises(OutOfRangeError):
            guest.read(9)
        log.create_snapshot(12, b"twelve")
        with pytest.raises(HoldfastError, match="refresh"):
            guest.read_snapshot()
        log.install_snapshot(50, 3, b"")
        assert (guest.refresh(), guest.first_index, guest.last_term) == (50, 51, 3)


def test_a_file_that_was_removed_and_created_again_is_noticed() -> None:
    disk = SimDisk()
    with owner(disk) as log, FileLogReader(disk) as guest:
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
        with FileLogReader(disk) as guest:
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


def test_shows_its_segments_and_facts() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"x"] * 6)
        log.create_snapshot(4, b"four")
        log.state.update({"currentTerm": 7, "votedFor": "id1", "peers": [["id1", "tcp://a"]]})
    with FileLogReader(disk) as guest:
        assert isinstance(guest, Described)
        one, two = guest.segments()
        assert (one.state, one.first_index, one.last_index) == ("covered", 5, 4)
        assert (two.state, two.first_index, two.last_index) == ("active", 5, 6)
        assert two.created_ms == 1_700_000_000_000
        facts = guest.facts()
        assert facts["capacity"] == "4 entries per file"
        assert facts["snapshot"].startswith(
            "entry 4, term 1, 4 bytes, created 2023-11-14T22:13:20.000Z"
        )
        assert (facts["state currentTerm"], facts["state peers"]) == ("7", "id1 at tcp://a")
        assert guest.read_state()["votedFor"] == "id1"
        assert guest.check_whole() == []
        with pytest.raises(FileNotFoundError):
            guest.check("other.rlog")


def test_entries_are_decoded_into_columns() -> None:
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
    with FileLogReader(disk) as guest:
        whole = [row for batch in guest.scan() for row in batch.to_pylist()]
        segments = guest.segments()
    rows = []
    for segment in segments:
        batches = scan_segment(disk, segment, segment.first_index, segment.last_index + 1)
        rows += [row for batch in batches for row in batch.to_pylist()]
        assert check_segment(disk, segment) is None
    assert rows == whole
    assert rows[0]["index"] == 6


def test_damage_is_reported_and_sound_entries_are_read() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"%d" % number for number in range(1, 12)])
    name = "log/00000/00/00/00000000000004.rlog"
    bad = bytearray(disk.files()[name])
    start = bad.index(b"ITMZ") + 8
    bad[start + 21 + 12] = 9  # the type of entry 5
    disk.create(name, bytes(bad), replace=True)
    lost: list[Damage] = []
    with FileLogReader(disk) as guest:
        assert guest.damage == ()
        rows = [r["index"] for b in guest.scan(on_damage=lost.append) for r in b.to_pylist()]
        assert rows == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        assert [(d.first_index, d.last_index, d.why) for d in lost] == [(5, 5, "not an entry")]
        with pytest.raises(CorruptError, match="entry 5"):
            guest.read(5)
        with pytest.raises(CorruptError, match="entry 5"):
            list(guest.scan())
        damage = guest.check(name)
        assert damage is not None
        assert (damage.first_index, damage.last_index) == (5, 5)


def test_a_check_finds_terms_that_decrease() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append_entries([FileEntry(5, b"five"), FileEntry(6, b"six")])
        log.append([b"x"] * 4)
    name = "log/00000/00/00/00000000000004.rlog"
    data = bytearray(disk.files()[name])
    data[data.index(b"ITMZ") + 8 + 13] = 2  # the term of entry 4
    disk.create(name, bytes(data), replace=True)
    with FileLogReader(disk) as guest:
        assert [d.why for d in guest.check_whole()] == [
            "its term 2 is before 6, that of the file before"
        ]


def test_a_missing_file_is_damage() -> None:
    disk = SimDisk()
    with owner(disk) as log:
        log.append([b"%d" % number for number in range(1, 14)])
    disk.remove("log/00000/00/00/00000000000004.rlog")
    with FileLogReader(disk) as guest:
        assert [(d.first_index, d.last_index) for d in guest.damage] == [(4, 7)]
        assert guest.read(3) == b"3"
        assert guest.read(8) == b"8"
        with pytest.raises(CorruptError, match="missing"):
            guest.read(5)
        lost: list[Damage] = []
        rows = [r["index"] for b in guest.scan(on_damage=lost.append) for r in b.to_pylist()]
        assert rows == [1, 2, 3, *range(8, 14)]
        assert [(d.first_index, d.last_index) for d in lost] == [(4, 7)]


def test_an_owner_beside_it_is_not_disturbed(tmp_path: pytest.TempPathFactory) -> None:
    disk = OsDisk(str(tmp_path))
    with FileLog(disk) as log, FileLogReader(disk) as guest:
        log.append([b"x" * 1000] * 100)
        assert guest.refresh() == 100
        assert log.append([b"y"]) == 101
        assert (guest.refresh(), guest.read(101)) == (101, b"y")


# Beside an owner that rolls back and appends again, at the same places of the same files


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
    with filled(disk) as log, FileLogReader(disk) as guest:
        batches = list(guest.scan())
        replaced(log, 2)
        payloads = [each for batch in batches for each in batch.column("payload").to_pylist()]
        assert payloads == [b"old %d" % number for number in range(10, 60)]


def read_beside(index: int, number: int) -> tuple[bytes, int]:
    """Read an entry while the owner replaces it, after `number` reads of the disk, by one of the
    same length.  Return what was shown, if anything, and the number of reads."""
    disk = SimDisk()
    with filled(disk) as log, FileLogReader(disk) as guest:
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


@pytest.mark.parametrize("index", [7, 50])  # in a sealed file, and in the active one
def test_a_guest_notices_a_rollback_during_a_read(index: int) -> None:
    _, reads = read_beside(index, 100)
    shown = [read_beside(index, number)[0] for number in range(1, reads + 1)]
    assert b"" in shown
    assert set(shown) <= {b"", b"old %d" % (index + 9), b"new %d" % (index + 9)}


def open_beside(number: int) -> int:
    """Open a log while its owner removes most of it, after `number` reads of the disk."""
    disk = SimDisk()
    with filled(disk) as log:
        posix, pread, reads = disk.posix, disk.posix.pread, 0

        def beside(fd: int, size: int, offset: int) -> bytes:
            nonlocal reads
            data, reads = pread(fd, size, offset), reads + 1
            if reads == number:
                log.truncate_tail(5)
                if number % 2:
                    log.append([b"new"])
                if number % 3 == 0:
                    log.install_snapshot(3, 9, b"")
            return data

        posix.pread = beside  # type: ignore[method-assign]
        with FileLogReader(disk) as guest:
            posix.pread = pread  # type: ignore[method-assign]
            assert guest.damage == (), number
            assert guest.last_index in (3, 5, 6, 50)
    return reads


def open_beside_all() -> None:
    for number in range(1, open_beside(10**6) + 1):
        open_beside(number)


def test_a_guest_that_opens_beside_a_rollback_sees_no_damage() -> None:
    open_beside_all()


def damage_beside_rollbacks(monkeypatch: pytest.MonkeyPatch) -> tuple[Damage, ...]:
    """Open a log whose owner rolls it back between the look at the mark and that at the files."""
    disk, looks = SimDisk(), 0
    with filled(disk) as log:

        def read_and_roll_back(disk: Disk) -> Mark | Flaw | None:
            nonlocal looks
            looks += 1
            if 1 < looks <= 4:
                log.append([b"new"] * 45)
            mark = read_mark(disk)
            if looks <= 4:
                log.truncate_tail(5)
            return mark

        monkeypatch.setattr(reader, "read_mark", read_and_roll_back)
        with FileLogReader(disk) as guest:
            return guest.damage


def test_a_guest_looks_again_if_the_mark_was_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert damage_beside_rollbacks(monkeypatch) == ()


def test_a_guest_that_does_not_look_again_sees_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the test before would prove nothing."""
    monkeypatch.setattr(reader, "was_lowered", lambda disk, since: False)
    assert [(d.first_index, d.last_index) for d in damage_beside_rollbacks(monkeypatch)] == [
        (6, 50)
    ]


def test_a_guest_maps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback changes files in place, and an owner cuts the last one."""
    disk = SimDisk()
    with filled(disk) as log:
        log.state.update({"currentTerm": 7, "votedFor": "a"})

        def refuse(file: OsFile) -> memoryview:
            raise AssertionError("a file that another process may write to is mapped")

        monkeypatch.setattr(OsFile, "map", refuse)
        with FileLogReader(disk) as guest:
            assert [guest.read(index) for index in (1, 50)] == [b"old 10", b"old 59"]
            for batch in guest.scan():
                assert guest.decode_columns(batch) is not None
            assert guest.check_whole() == []
            assert guest.facts()
            for segment in guest.segments():
                assert check_segment(disk, segment) is None
                assert list(scan_segment(disk, segment, segment.first_index, segment.last_index))
