"""Readers beside a rollback: they return the old bytes or ChangedError, never a mixture.

A rollback changes files in place, and new entries of the same length leave the slots as they were.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from holdfast.disk import OsDisk, OsFile
from holdfast.errors import ChangedError
from holdfast.formats.rlog_entry import FileEntry
from holdfast.logs.file_log import FileLog, FileLogReader, view
from holdfast.logs.log import Damage
from holdfast.logs.retention import Retention
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject

Read = Callable[[FileLogReader, int], bytes]


def old(number: int) -> bytes:
    return b"old %d" % number


def new(number: int) -> bytes:
    return b"new %d" % number


def filled(disk: SimDisk, count: int = 14, *, ids: bool = True) -> FileLog:
    log = FileLogSubject().open(disk)
    append(log, [old(number) for number in range(10, 10 + count)], ids=ids)
    return log


def append(log: FileLog, payloads: list[bytes], *, ids: bool = True) -> None:
    if ids:
        log.append(payloads)
    else:
        log.append_entries([FileEntry(1, payload) for payload in payloads])


def replaced(log: FileLog, first: int, *, ids: bool = True) -> None:
    """Replace the entries from `first` on by others of the same length."""
    last = log.last_index
    log.truncate_tail(first - 1)
    append(log, [new(number) for number in range(9 + first, 10 + last)], ids=ids)


def read(guest: FileLogReader, index: int) -> bytes:
    return guest.read(index)


def scan(guest: FileLogReader, index: int) -> bytes:
    damage: list[Damage] = []
    (batch,) = guest.scan(index, index + 1, on_damage=damage.append)
    assert damage == []
    return bytes(batch.column("payload")[0].as_py())


def get_entry(guest: FileLogReader, index: int) -> bytes:
    return bytes(guest.get_entry(index).data)


WAYS: list[Read] = [read, scan, get_entry]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", [2, 6, 13])
def test_a_guest_that_is_not_refreshed_shows_no_new_entry(way: Read, first: int, ids: bool) -> None:
    """In sealed files and in the active one; files that it has read before, and others."""
    for loaded in ((), (1, first, 14), range(1, 15)):
        disk = SimDisk()
        with filled(disk, ids=ids) as log, FileLogReader(disk) as guest:
            for index in loaded:
                assert way(guest, index) == old(index + 9)
            replaced(log, first, ids=ids)
            for index in range(1, 15):
                shown = b""
                with suppress(ChangedError):
                    shown = way(guest, index)
                assert shown in (b"", old(index + 9)), (index, loaded)
                assert shown or not ids or index >= first - 3, "a file that was not touched"
            guest.refresh()
            assert way(guest, first) == new(first + 9)


def test_a_shorter_log_of_the_same_slots_is_noticed() -> None:
    """The header of the last known entry is still in its place; its slot is clear."""
    disk = SimDisk()
    with filled(disk) as log, FileLogReader(disk) as guest:
        assert guest.read(12) == old(21)
        log.truncate_tail(11)
        log.append([new(21)])
        with pytest.raises(ChangedError, match="refresh, and read again"):
            guest.read(12)
        assert (guest.refresh(), guest.read(12)) == (12, new(21))


@contextmanager
def pages_of_two_writes(disk: SimDisk, between: Callable[[], None]) -> Iterator[None]:
    """Let the next read of entries return its first half from before `between`."""
    posix, pread, is_done = disk.posix, disk.posix.pread, False

    def torn(fd: int, size: int, offset: int) -> bytes:
        nonlocal is_done
        data = pread(fd, size, offset)
        if b"old" not in data or is_done:
            return data
        is_done = True
        between()
        return data[: len(data) // 2] + pread(fd, size, offset)[len(data) // 2 :]

    posix.pread = torn  # type: ignore[method-assign]
    yield
    posix.pread = pread  # type: ignore[method-assign]
    assert is_done


def scan_all(log: FileLogReader | FileLog) -> list[bytes]:
    found: list[bytes] = []
    with suppress(ChangedError):
        for batch in log.scan():
            found += batch.column("payload").to_pylist()
    return found


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("first", [1, 2, 6, 13])
def test_one_read_that_a_rollback_overtakes_is_not_returned(first: int, ids: bool) -> None:
    """The kernel copies page by page: a read may see an old page and, after it, a new one."""
    disk = SimDisk()
    with filled(disk, ids=ids) as log, FileLogReader(disk) as guest:
        with pages_of_two_writes(disk, lambda: replaced(log, first, ids=ids)):
            shown = scan_all(guest)
        assert shown == [old(number) for number in range(10, 10 + len(shown))]


def test_the_copy_alone_does_not_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the bug: compare the header in the copy with the file, as was done before."""

    def holds(self: view.Segment, file: OsFile, witness: view.Witness) -> bool:
        offset = 24 + 4 * witness.slot
        return bool(file.read_at(offset, 4) == witness.end)

    monkeypatch.setattr(view.Segment, "_holds", holds)
    with pytest.raises(AssertionError):
        test_one_read_that_a_rollback_overtakes_is_not_returned(2, True)
    with pytest.raises(AssertionError):
        test_a_guest_that_is_not_refreshed_shows_no_new_entry(read, 2, True)


def test_a_trim_does_not_disturb_the_entries_that_stay() -> None:
    disk = SimDisk()
    with filled(disk) as log, FileLogReader(disk) as guest:
        assert guest.read(8) == old(17)
        log.create_snapshot(7, b"")
        log.trim(Retention(before=8))
        assert [guest.read(index) for index in (8, 11, 14)] == [old(17), old(20), old(23)]


# Threads of the owner


@pytest.mark.parametrize("first", [1, 2, 6, 13])
def test_batches_of_the_owner_stay_as_they_were(first: int) -> None:
    disk = SimDisk()
    with filled(disk) as log:
        batches = list(log.scan())
        replaced(log, first)
        payloads = [each for batch in batches for each in batch.column("payload").to_pylist()]
        assert payloads == [old(number) for number in range(10, 24)]


@pytest.mark.parametrize("change", ["rollback", "discard", "trim"])
@pytest.mark.parametrize("first", [1, 2, 6, 13])
def test_a_scan_of_the_owner_returns_old_bytes_or_an_error(first: int, change: str) -> None:
    """Another thread changes the log, before or in the middle of each read."""

    def do(log: FileLog) -> None:
        if change == "rollback":
            replaced(log, first)
        elif change == "discard":
            log.install_snapshot(first, 9, b"")
            log.append([new(number) for number in range(10, 24)])
        else:
            log.create_snapshot(first, b"")
            log.trim(Retention(before=first))

    for taken in range(4):
        disk = SimDisk()
        with filled(disk) as log:
            found, batches = list[bytes](), log.scan()
            with suppress(ChangedError):
                for _ in range(taken):
                    found += next(batches).column("payload").to_pylist()
                do(log)
                for batch in batches:
                    found += batch.column("payload").to_pylist()
            assert found == [old(number) for number in range(10, 10 + len(found))]
    disk = SimDisk()
    with filled(disk) as log:
        with pages_of_two_writes(disk, lambda: do(log)):
            shown = scan_all(log)
        assert shown == [old(number) for number in range(10, 10 + len(shown))]


def test_a_scan_of_the_owner_maps_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    with filled(disk) as log:

        def refuse(file: OsFile) -> memoryview:
            raise AssertionError("a file that a rollback changes in place is mapped")

        monkeypatch.setattr(OsFile, "map", refuse)
        assert len(scan_all(log)) == 14
        assert log.read(1) == old(10)


def test_without_revocation_the_owner_mixes_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view.Segment, "revoke", lambda self, index: None)
    with pytest.raises(AssertionError):
        test_a_scan_of_the_owner_returns_old_bytes_or_an_error(2, "rollback")


def test_an_owner_whose_file_is_missing_still_reports_damage(tmp_path: str) -> None:
    with FileLog(OsDisk(tmp_path), capacity=4) as log:
        log.append([b"x"] * 9)
        log.disk.remove("log/00000/00/00/00000000000004.rlog")
        with pytest.raises(Exception, match="the file is missing"):
            log.read(5)
