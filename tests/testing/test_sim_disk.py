import os
from collections import Counter
from random import Random

import pytest

from holdfast.errors import LockedError, NotOwnerError
from holdfast.testing import Fault, PowerLost, SimDisk


def images(disk: SimDisk, count: int = 400) -> Counter[bytes | None]:
    found = (disk.after_power_cut(Random(seed)).files().get("x") for seed in range(count))
    return Counter(found)


def test_what_is_synced_survives_every_power_cut() -> None:
    disk = SimDisk()
    disk.create("x", b"synced")
    file = disk.open("x", writable=True)
    file.write_at(6, b"!", sync=True)
    assert set(images(disk)) == {b"synced!"}


def test_an_unsynced_write_is_old_new_zero_garbled_or_torn_at_any_byte() -> None:
    disk = SimDisk()
    disk.create("x", b"....")
    disk.open("x", writable=True).write_at(0, b"data")
    found = images(disk, 3000)
    assert {b"....", b"data", b"\0\0\0\0"} <= set(found)
    assert {b"d...", b"da..", b"dat.", b".ata", b"..ta", b"...a"} <= set(found)
    assert len(found) > 500, "garbled ones are all different"
    assert disk.files()["x"] == b"data", "the process itself sees what it wrote"


def test_size_and_bytes_arrive_apart() -> None:
    disk = SimDisk()
    disk.create("x", b"")
    file = disk.open("x", writable=True)
    file.write_at(0, b"ab")
    file.write_at(2, b"cd")
    found = images(disk, 2000)
    assert {b"", b"ab", b"abcd", b"\0\0cd", b"ab\0\0"} <= set(found)


def test_a_synced_write_vouches_only_for_itself() -> None:
    disk = SimDisk()
    disk.create("x", b"......")
    file = disk.open("x", writable=True)
    file.write_at(0, b"ab")
    file.write_at(4, b"ef", sync=True)
    found = images(disk, 500)
    assert all(image is not None and image[4:] == b"ef" for image in found)
    assert len({image[:2] for image in found if image}) > 2


def test_names_are_there_or_not_until_the_directory_is_synced() -> None:
    disk = SimDisk()
    disk.create("x", b"1")
    disk.posix.unlink("/sim/x")
    assert set(images(disk)) == {b"1", None}
    disk.posix.sync_directory("/sim")
    assert set(images(disk)) == {None}


def test_a_rename_is_whole_or_not_at_all() -> None:
    disk = SimDisk()
    disk.create("x", b"old")
    disk.create("y", b"new")
    disk.posix.rename("/sim/y", "/sim/x")
    pairs = set()
    for seed in range(200):
        files = disk.after_power_cut(Random(seed)).files()
        pairs.add((files.get("x"), files.get("y")))
    assert pairs == {(b"old", b"new"), (b"new", None)}


def test_a_directory_whose_name_is_not_synced_takes_its_files_along() -> None:
    disk = SimDisk()
    disk.posix.mkdir("/sim/d")
    inner = SimDisk(disk.posix, "/sim/d")
    inner.create("x", b"1")
    alive = [disk.after_power_cut(Random(seed)).posix.exists("/sim/d") for seed in range(50)]
    assert set(alive) == {True, False}


def test_a_kill_keeps_the_cache_and_frees_the_lock() -> None:
    disk = SimDisk()
    disk.create("x", b"")
    disk.lock()
    disk.open("x", writable=True).write_at(0, b"unsynced")
    disk = disk.after_kill()
    disk.lock().release()
    assert disk.files()["x"] == b"unsynced"
    assert len(images(disk)) > 2, "and may still be lost to a power cut"


def test_the_power_goes_at_the_operation_asked_for() -> None:
    survived = []
    for dies_at in range(8):
        disk = SimDisk()
        disk.posix.dies_at = dies_at
        try:
            disk.create("x", b"whole")
            survived.append(dies_at)
        except PowerLost:
            assert set(images(disk)) <= {None, b"whole"}
    assert survived == [5, 6, 7]  # create, write, sync, rename, directory sync


def test_a_sync_that_failed_once_lies_from_then_on() -> None:
    disk = SimDisk()
    disk.create("x", b"old")
    file = disk.open("x", writable=True)
    file.write_at(0, b"new")
    disk.posix.fault = Fault("sync eio", disk.posix.calls)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.open("x", writable=True).sync()  # says nothing
    assert set(images(disk)) == {b"old"}
    assert disk.posix.fired["sync eio"] == 1


def test_the_same_seed_gives_the_same_image() -> None:
    def run(seed: int) -> dict[str, bytes]:
        disk = SimDisk()
        disk.create("x", bytes(1000))
        disk.open("x", writable=True).write_at(0, b"y" * 900)
        return disk.after_power_cut(Random(seed)).files()

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_bit_can_be_flipped() -> None:
    disk = SimDisk()
    disk.create("x", b"\0\0")
    disk.flip("x", 9)
    assert disk.files()["x"] == b"\0\2"


def test_processes_share_files_and_not_descriptors() -> None:
    disk = SimDisk()
    disk.create("x", b"one")
    fd = disk.posix.open("/sim/x", os.O_RDWR)
    other = disk.posix.process(77)
    assert SimDisk(other).files()["x"] == b"one"
    assert other.process_id() == 77 != disk.posix.process_id()
    with pytest.raises(OSError, match="Bad file descriptor"):
        other.pread(fd, 1, 0)


def test_a_second_process_is_refused_until_the_first_has_ended() -> None:
    disk = SimDisk()
    first = disk.lock()
    second = SimDisk(disk.posix.process(77))
    with pytest.raises(LockedError, match=f"owned by process {disk.posix.pid}"):
        second.lock()
    disk.posix.exit()
    lock = second.lock()
    with pytest.raises(LockedError, match="owned by process 77"):
        SimDisk(disk.posix).lock()
    first.release()
    lock.release()


def test_a_kill_leaves_the_locks_of_other_processes() -> None:
    disk = SimDisk()
    lock = SimDisk(disk.posix.process(77)).lock()
    with pytest.raises(LockedError):
        disk.after_kill().lock()
    lock.release()


def test_a_lock_that_a_fork_has_copied_is_free_when_the_last_copy_is_closed() -> None:
    for first_to_close in ("parent", "child"):
        disk = SimDisk()
        lock = disk.lock()
        child = disk.posix.fork(77)
        third = SimDisk(disk.posix.process(78))
        for who in ("parent", "child") if first_to_close == "parent" else ("child", "parent"):
            with pytest.raises(LockedError):
                third.lock()
            if who == "parent":
                lock.release()
            else:
                child.exit()
        third.lock()


def test_a_fork_uses_copies_of_the_descriptors() -> None:
    disk = SimDisk()
    disk.create("x", b"one")
    lock, fd = disk.lock(), disk.posix.open("/sim/x", os.O_RDWR)
    child = disk.posix.fork(77)
    with disk.posix.acting_as(child):
        assert disk.posix.pread(fd, 3, 0) == b"one"
        with pytest.raises(NotOwnerError, match="fork"):
            lock.check()
        disk.posix.close(fd)
    lock.check()
    assert disk.posix.pread(fd, 3, 0) == b"one", "the parent's copy is open"


def test_a_descriptor_follows_a_directory_that_is_renamed() -> None:
    disk = SimDisk()
    disk.create("x", b"one")
    lock = disk.lock()
    disk.posix.process(77).rename("/sim", "/sim.moved")
    lock.check()
    disk.create("y", b"two")
    assert disk.list() == {"x": 3, "y": 3}
    assert not disk.posix.exists("/sim")
    assert SimDisk(disk.posix, "/sim.moved").files()["y"] == b"two"
    places = {disk.after_power_cut(Random(seed)).path for seed in range(20)}
    assert places == {"/sim", "/sim.moved"}, "until its name is synced"


def test_a_directory_is_not_renamed_over_one_that_has_files() -> None:
    disk = SimDisk()
    disk.create("x", b"one")
    disk.posix.mkdir("/empty")
    disk.posix.rename("/empty", "/other")
    with pytest.raises(OSError, match="not empty"):
        disk.posix.rename("/other", "/sim")
    disk.posix.rename("/sim", "/other")
    with pytest.raises(FileNotFoundError):
        disk.posix.rename("/sim", "/again")


def test_nothing_is_made_in_a_directory_that_was_removed() -> None:
    disk = SimDisk()
    lock = disk.lock()
    other = disk.posix.process(77)
    with pytest.raises(OSError, match="not empty"):
        other.rmdir("/sim")
    other.unlink("/sim/LOCK")
    lock.check()
    other.rmdir("/sim")
    with pytest.raises(NotOwnerError, match="removed"):
        lock.check()
    with pytest.raises(FileNotFoundError):
        disk.create("x", b"one")
    other.mkdir("/sim")
    with pytest.raises(FileNotFoundError):
        disk.create("x", b"one")
    assert SimDisk(other).files() == {}


def test_a_lock_that_is_removed_is_noticed_where_directories_cannot_be_locked() -> None:
    disk = SimDisk()
    disk.posix.locks_directories = False
    lock = disk.lock()
    other = disk.posix.process(77)
    other.rename("/sim", "/sim.moved")
    lock.check()
    other.unlink("/sim.moved/LOCK")
    SimDisk(other, "/sim.moved").lock()
    with pytest.raises(NotOwnerError, match="LOCK was removed or replaced"):
        lock.check()


@pytest.mark.parametrize("kind", ["open", "lock", "stat"])
def test_a_lookup_can_fail(kind: str) -> None:
    rehearsal, disk = SimDisk(), SimDisk()
    rehearsal.lock()
    disk.posix.fault = Fault("eio", rehearsal.posix.trace.index(kind))
    with pytest.raises(OSError, match="Input/output"):
        disk.lock()
    disk.posix.fault = None
    disk.lock()
