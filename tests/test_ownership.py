import errno
import os
from pathlib import Path

import pytest

import holdfast
from holdfast import linux as linux_module
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError, LockedError, NotOwnerError, UnsupportedError
from holdfast.ownership import Ownership
from holdfast.posix import Posix

STORES = ["log raft-wal", "log shanghai", "log file-log", "bars"]


class NoDirectoryLocks(Posix):
    """A file system that cannot lock a directory, as NFS."""

    def try_lock(self, fd: int) -> bool:
        if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return super().try_lock(fd)


def test_the_directory_itself_is_locked(tmp_path: Path) -> None:
    lock = OsDisk(tmp_path).lock()
    (tmp_path / "LOCK").unlink()
    with pytest.raises(LockedError, match=rf"owned by process ({os.getpid()}|unknown)"):
        OsDisk(tmp_path).lock()
    lock.check()
    lock.release()
    OsDisk(tmp_path).lock().release()


def test_an_owner_of_version_0_1_0_is_respected(tmp_path: Path) -> None:
    """It locks the file LOCK and nothing else."""
    posix = Posix()
    old = posix.open(f"{tmp_path}/LOCK", os.O_CREAT | os.O_RDWR)
    assert posix.try_lock(old)
    posix.pwrite(old, b"4711                ", 0, sync=False)
    with pytest.raises(LockedError, match="owned by process 4711;"):
        OsDisk(tmp_path).lock()
    posix.close(old)
    OsDisk(tmp_path).lock().release()


@pytest.mark.parametrize("replaced", [False, True])
def test_where_directories_cannot_be_locked_a_lost_lock_is_noticed(
    tmp_path: Path, replaced: bool
) -> None:
    lock = OsDisk(tmp_path, posix=NoDirectoryLocks()).lock()
    lock.check()
    with pytest.raises(LockedError):
        OsDisk(tmp_path, posix=NoDirectoryLocks()).lock()
    (tmp_path / "LOCK").rename(tmp_path / "taken")
    if replaced:
        (tmp_path / "LOCK").write_bytes(b"")
    with pytest.raises(NotOwnerError, match="removed or replaced"):
        lock.check()
    assert not lock.is_ours
    (tmp_path / "taken").rename(tmp_path / "LOCK")  # too late: another may have been in
    with pytest.raises(NotOwnerError):
        lock.check()


def test_a_lock_that_is_replaced_while_it_is_taken_is_taken_again(tmp_path: Path) -> None:
    class Hostile(NoDirectoryLocks):
        times = 3

        def try_lock(self, fd: int) -> bool:
            locked = super().try_lock(fd)
            if self.times:
                self.times -= 1
                (tmp_path / "LOCK").unlink()
            return locked

    lock = OsDisk(tmp_path, posix=Hostile()).lock()
    lock.check()
    with pytest.raises(LockedError):
        OsDisk(tmp_path, posix=NoDirectoryLocks()).lock()
    Hostile.times = 10**6
    lock.release()
    with pytest.raises(HoldfastError, match="again and again"):
        OsDisk(tmp_path, posix=Hostile()).lock()


def test_the_file_of_another_program_is_checked_by_its_inode(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("theirs", b"1")
    lock = disk.lock("theirs")
    lock.check()
    disk.create("theirs", b"2", replace=True)
    with pytest.raises(NotOwnerError, match="theirs was removed or replaced"):
        lock.check()


def test_a_removed_directory_has_no_owner(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path / "store")
    lock = disk.lock()
    (tmp_path / "store" / "LOCK").unlink()
    (tmp_path / "store").rmdir()
    with pytest.raises(NotOwnerError, match="was removed"):
        lock.check()
    for name in ("x", "d/x"):
        with pytest.raises(FileNotFoundError):
            disk.create(name, b"")
    with pytest.raises(FileNotFoundError):
        disk.make("x")
    assert not (tmp_path / "store").exists()


def test_an_abandoned_owner_does_not_keep_its_lock(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    circle: list[object] = [disk.lock()]
    circle.append(circle)
    del circle
    disk.lock().release()


@pytest.mark.parametrize("name", STORES)
def test_a_second_close_frees_a_lock_that_ctrl_c_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, _, format = name.partition(" ")
    options = {"format": format} if format else {}
    store = getattr(holdfast, f"create_{kind}")(tmp_path / "store", **options)

    def interrupt(self: Ownership) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Ownership, "release", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    getattr(holdfast, f"open_{kind}")(tmp_path / "store").close()


def test_a_fifo_does_not_block_the_opener(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "LOCK")
    os.mkfifo(tmp_path / "x")
    disk = OsDisk(tmp_path)
    for attempt in (disk.lock, lambda: disk.open("x"), lambda: disk.open("x", writable=True)):
        with pytest.raises(UnsupportedError, match=r"is a FIFO, not a regular file; move it away"):
            attempt()


@pytest.mark.parametrize("has_openat2", [True, False])
def test_names_stay_beneath_the_directory_with_and_without_openat2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_openat2: bool
) -> None:
    if not has_openat2:
        monkeypatch.setattr(linux_module, "_openat2", lambda: None)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"secret")
    disk = OsDisk(tmp_path / "root")
    disk.create("a/b/c", b"mine")
    (tmp_path / "root" / "a" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "a" / "file").symlink_to(tmp_path / "outside" / "x")
    assert disk.open("a/b/c").read_at(0, 9) == b"mine"
    for name in ("a/link/x", "a/file"):
        with pytest.raises(OSError, match="link"):
            disk.open(name)
    with pytest.raises(OSError, match="link"):
        disk.make("a/link/deep/y")
    with pytest.raises(FileNotFoundError):
        disk.open("a/none/c")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["x"]
