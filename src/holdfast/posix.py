"""The system calls behind the first door, each as it is, so that a simulation can replace them.

Nobody but holdfast.disk and its simulation calls these: what they promise is told there.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
from collections.abc import Callable
from functools import cache

from holdfast.errors import PoisonedError, UnsupportedError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BLOCK = 4096  # what a file system gives at least


class Posix:
    """One method for each call; a simulation overrides them all."""

    def open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o600)
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def map(self, fd: int) -> memoryview:
        if os.fstat(fd).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))

    def pwrite(
        self, fd: int, data: bytes | bytearray | memoryview, offset: int, *, sync: bool
    ) -> int:
        """One call, and one hand-over of the interpreter, for a write and its sync."""
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

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def seek_data(self, fd: int, offset: int) -> int | None:
        """Where, from `offset` on, the next bytes are that may not be zeros."""
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
        low, high = behind, stop  # the last data are at or behind low, and before high
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
        page = offset // mmap.PAGESIZE * mmap.PAGESIZE  # of a page in part nothing is dropped
        os.posix_fadvise(fd, page, 0, os.POSIX_FADV_DONTNEED)

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock_holder(self, fd: int) -> str:
        """The process that has the file locked, as far as the kernel tells; else nothing."""
        device, inode = (status := os.fstat(fd)).st_dev, status.st_ino
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        try:
            with open("/proc/locks", encoding="ascii") as locks:
                held = [line.split() for line in locks]
        except OSError:  # not on this system; the lock is as good
            return ""
        pids = [words[-4] for words in held if words[-3] == place and "->" not in words]
        return pids[0] if pids and pids[0] != "0" else ""

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def sizes(self, path: str) -> dict[str, int]:
        found = {}
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed by the owner meanwhile
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def link(self, path: str, new: str) -> None:
        os.link(path, new, follow_symlinks=False)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)

    def rename(self, path: str, new: str) -> None:
        os.rename(path, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def syncfs(self, fd: int) -> None:
        """Sync the whole file system.  It tells of writes that were lost since `fd` was opened."""
        if _syncfs()(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class OsVolume:
    """See Volume in holdfast.disk.  One call for all files: one by one takes too long."""

    def __init__(self, posix: Posix, fd: int) -> None:
        self._posix, self._fd = posix, fd

    def sync(self) -> None:
        if self._fd < 0:
            raise PoisonedError("the volume is closed, or its sync has failed; reopen the store")
        try:
            self._posix.syncfs(self._fd)
        except OSError:
            self.close()  # the kernel would not tell it a second time
            raise

    def close(self) -> None:
        if self._fd >= 0:
            self._posix.close(self._fd)
            self._fd = -1


class OsLock:
    """Held until released, or until the process dies."""

    def __init__(self, posix: Posix, fd: int) -> None:
        self._posix, self._fd = posix, fd

    def sign(self) -> None:
        """Leave our pid for the error message of whoever comes second."""
        pid = f"{os.getpid():<20}".encode()
        try:
            self._posix.pwrite(self._fd, memoryview(pid), 0, sync=False)
        except OSError as error:
            if error.errno not in FULL:  # the lock holds unsigned too, and a full disk must open
                raise

    def release(self) -> None:
        if self._fd >= 0:
            self._posix.close(self._fd)
            self._fd = -1


def _seek(fd: int, offset: int, whence: int) -> int | None:
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole, up to the end
            return None
        raise


@cache
def _syncfs() -> Callable[[int], int]:
    release = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    if os.uname().sysname != "Linux" or release < [5, 8]:
        raise UnsupportedError("syncfs tells of lost writes only on Linux 5.8 and later")
    function: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    return function
