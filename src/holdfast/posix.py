"""The system calls of the first door, one method each, so that a simulation can replace them.

Only holdfast.disk, holdfast.ownership and the simulation call these.  A path may be relative to
the descriptor of a directory, `at`; then no part of it may be a link.
"""

import contextlib
import errno
import gc
import mmap
import os
import stat
import time
from collections.abc import Callable
from typing import Protocol

from holdfast import linux
from holdfast.errors import UnsupportedError
from holdfast.linux import open_beneath

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CANNOT_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_BLOCK = 4096  # what a file system gives at least
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Status(Protocol):
    """What an owner needs to know of a file: its identity, and how many names it has."""

    @property
    def st_dev(self) -> int: ...

    @property
    def st_ino(self) -> int: ...

    @property
    def st_nlink(self) -> int: ...


class Posix:
    """One method for each call; a simulation overrides them all."""

    reserve_size = 256 * 2**10  # see holdfast.reserve

    def open(self, path: str, flags: int, at: int | None = None) -> int:
        """Open a regular file.  A FIFO or a device is UnsupportedError, and does not block."""
        fd = open_beneath(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, at)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
            raise UnsupportedError(
                f"{path} is {kind}, not a regular file; move it away, or restore the file"
            )
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o600)
        return fd

    # No frame of Python's own, so that Ctrl-C comes before or after the call, and not in between.
    close: Callable[[int], None] = staticmethod(os.close)

    # Called before every commit, so with no frame either.
    process_id: Callable[[], int] = staticmethod(os.getpid)
    fstat: Callable[[int], "Status"] = staticmethod(os.fstat)
    stat: Callable[..., "Status"] = staticmethod(os.stat)

    def identity(self, path: str | int, at: int | None = None) -> tuple[int, int] | None:
        """Return the device and inode of a name or a descriptor; None if there is no such name."""
        try:
            follow = isinstance(path, int)
            status = os.stat(path, dir_fd=at, follow_symlinks=follow)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def map(self, fd: int) -> memoryview:
        if os.fstat(fd).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))

    def pwrite(
        self, fd: int, data: bytes | bytearray | memoryview, offset: int, *, sync: bool
    ) -> int:
        """Write, and sync if asked, with one system call."""
        if not sync:
            return os.pwrite(fd, data, offset)
        return os.pwritev(fd, [data], offset, os.RWF_DSYNC)

    def resize(self, fd: int, size: int) -> None:
        grown_from = os.fstat(fd).st_size
        if size > grown_from:
            os.posix_fallocate(fd, grown_from, size - grown_from)
        else:
            os.ftruncate(fd, size)

    def extend(self, fd: int, size: int) -> None:
        """Grow a file by a hole: bytes that read as zeros and take no space."""
        os.ftruncate(fd, max(size, os.fstat(fd).st_size))

    def free_bytes(self, fd: int) -> int:
        """Return how many bytes this process could still write where the file is."""
        found = os.fstatvfs(fd)
        return found.f_bavail * found.f_frsize

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def seek_data(self, fd: int, offset: int) -> int | None:
        """Return where, from `offset` on, the next bytes are that may not be zeros."""
        return _seek(fd, offset, os.SEEK_DATA)

    def seek_hole(self, fd: int, offset: int) -> int | None:
        return _seek(fd, offset, os.SEEK_HOLE)

    def extents(self, fd: int, start: int, stop: int) -> list[tuple[int, int]]:
        found = []
        while start < stop:
            begin = self.seek_data(fd, start)
            if begin is None or begin >= stop:
                break
            start = self.seek_hole(fd, begin) or stop
            found.append((begin, min(start, stop)))
        return found

    def last_extent(self, fd: int, start: int, stop: int) -> tuple[int, int] | None:
        low = self.seek_data(fd, start)
        if low is None or low >= stop:
            return None
        end = self.seek_hole(fd, low) or stop
        behind = self.seek_data(fd, end) if end < stop else None
        if behind is None or behind >= stop:
            return low, min(end, stop)
        low, high = behind, stop  # the last data are at or after low, and before high
        while high - low > _BLOCK:
            middle = (low + high) // 2
            found = self.seek_data(fd, middle)
            if found is None or found >= stop:
                high = middle
            else:
                low = found
        low = max(start, low // _BLOCK * _BLOCK)  # it may be anywhere in its block
        return low, min(stop, max(high, low + _BLOCK))

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def drop_cache(self, fd: int, offset: int) -> None:
        page = offset // mmap.PAGESIZE * mmap.PAGESIZE  # a partial page is not dropped
        os.posix_fadvise(fd, page, 0, os.POSIX_FADV_DONTNEED)

    def collect(self) -> None:
        """Collect garbage: an owner that Ctrl-C interrupted while it was opened may be garbage that
        still holds a lock, until its background thread has ended a step.
        """
        time.sleep(0.01)
        gc.collect()

    def try_lock(self, fd: int) -> bool:
        """Lock a file or a directory; False if another process has the lock.  OSError if that is
        unknown.
        """
        import fcntl  # which other systems do not have

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def allocated(self, fd: int) -> int:
        """Return the bytes that a file takes on the disk."""
        return os.fstat(fd).st_blocks * 512

    def lock_holder(self, fd: int) -> str:
        """Return the process that has the file locked, if the kernel reports it; else ""."""
        device, inode = (status := os.fstat(fd)).st_dev, status.st_ino
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        try:
            with open("/proc/locks", encoding="ascii") as locks:
                held = [line.split() for line in locks]
        except OSError:  # not on this system; the lock works without it
            return ""
        pids = [words[-4] for words in held if words[-3] == place and "->" not in words]
        return pids[0] if pids and pids[0] != "0" else ""

    def exists(self, path: str, at: int | None = None) -> bool:
        try:
            os.stat(path, dir_fd=at, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def sizes(self, path: str | int) -> dict[str, int]:
        """Return names and sizes of everything in a directory except directories."""
        found = {}
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed by the owner meanwhile
                    if not entry.is_dir(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def directories(self, path: str | int) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def link(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        os.link(path, new, src_dir_fd=at, dst_dir_fd=new_at, follow_symlinks=False)

    def mkdir(self, path: str, at: int | None = None) -> None:
        os.mkdir(path, 0o700, dir_fd=at)
        os.chmod(path, 0o700, dir_fd=at)

    def rename(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        os.rename(path, new, src_dir_fd=at, dst_dir_fd=new_at)

    def rename_new(
        self, path: str, new: str, at: int | None = None, new_at: int | None = None
    ) -> None:
        """Rename, or raise FileExistsError if `new` exists: no other process can come between.

        Where a file system cannot, a file is linked.  One that cannot link either, and directories
        there, are renamed after a look.
        """
        if linux.rename_new(path, new, at, new_at):
            return
        try:
            self.link(path, new, at, new_at)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            if self.exists(new, new_at):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
            self.rename(path, new, at, new_at)
        else:
            self.unlink(path, at)

    def unlink(self, path: str, at: int | None = None) -> None:
        os.unlink(path, dir_fd=at)

    def sync_directory(self, directory: str | int) -> None:
        if isinstance(directory, int):
            return os.fsync(directory)
        fd = open_beneath(directory, os.O_RDONLY | os.O_DIRECTORY, None)
        try:
            return os.fsync(fd)
        finally:
            os.close(fd)

    def open_directory(self, path: str, at: int | None = None) -> int:
        return open_beneath(path, os.O_RDONLY | os.O_DIRECTORY, at)

    def syncfs(self, fd: int) -> None:
        """Sync the whole file system.  It reports writes that were lost since `fd` was opened."""
        linux.syncfs(fd)


class MeteredPosix(Posix):
    """The same calls; `on_read` gets the number of bytes of each read."""

    def __init__(self, on_read: Callable[[int], None]) -> None:
        self._on_read = on_read

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = super().pread(fd, size, offset)
        self._on_read(len(data))
        return data

    def map(self, fd: int) -> memoryview:
        data = super().map(fd)
        self._on_read(len(data))
        return data


class Descriptor:
    """An open file or directory, closed with its last reference, also if an error or Ctrl-C
    prevents a call of `close`.
    """

    def __init__(self, posix: Posix, fd: int) -> None:
        self._posix, self.fd = posix, fd

    def close(self) -> None:
        if self.fd >= 0:
            try:
                self._posix.close(self.fd)
            finally:  # also after Ctrl-C: another file may get this number
                self.fd = -1

    __del__ = close


def _seek(fd: int, offset: int, whence: int) -> int | None:
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole, up to the end
            return None
        raise
