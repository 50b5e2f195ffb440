"""The system calls behind the first door, each as it is, so that a simulation can replace them.

Only holdfast.disk, holdfast.ownership and the simulation call these.  A path may be relative to
the descriptor of a directory, `at`; then no part of it may be a link.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import mmap
import os
import re
import stat
import time
from collections.abc import Callable
from functools import cache
from typing import Protocol

from holdfast.errors import PoisonedError, UnsupportedError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BLOCK = 4096  # what a file system gives at least
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Status(Protocol):
    """What an owner asks about a file: which one it is, and how many names it has."""

    @property
    def st_dev(self) -> int: ...

    @property
    def st_ino(self) -> int: ...

    @property
    def st_nlink(self) -> int: ...


class Posix:
    """One method for each call; a simulation overrides them all."""

    def open(self, path: str, flags: int, at: int | None = None) -> int:
        """Open a regular file.  A FIFO or a device is UnsupportedError, and does not block."""
        fd = _open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, at)
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
        """The device and inode of a name or a descriptor; None if there is no such name."""
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

    def collect(self) -> None:
        """Free what this process has abandoned: an owner that Ctrl-C has ended as it was opened may
        be garbage that holds a lock, as soon as its background thread has ended a step."""
        time.sleep(0.01)
        gc.collect()

    def try_lock(self, fd: int) -> bool:
        """Lock a file or a directory; False if another has it.  OSError where that is not known."""
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

    def exists(self, path: str, at: int | None = None) -> bool:
        try:
            os.stat(path, dir_fd=at, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def sizes(self, path: str | int) -> dict[str, int]:
        """Names and sizes of all in a directory but directories."""
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

    def unlink(self, path: str, at: int | None = None) -> None:
        os.unlink(path, dir_fd=at)

    def sync_directory(self, directory: str | int) -> None:
        if isinstance(directory, int):
            return os.fsync(directory)
        fd = _open(directory, os.O_RDONLY | os.O_DIRECTORY, None)
        try:
            return os.fsync(fd)
        finally:
            os.close(fd)

    def open_directory(self, path: str, at: int | None = None) -> int:
        return _open(path, os.O_RDONLY | os.O_DIRECTORY, at)

    def syncfs(self, fd: int) -> None:
        """Sync the whole file system.  It tells of writes that were lost since `fd` was opened."""
        if _syncfs()(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class Descriptor:
    """An open file or directory, closed with its last reference: also where an error, or Ctrl-C,
    comes between opening it and whoever would close it."""

    def __init__(self, posix: Posix, fd: int) -> None:
        self._posix, self.fd = posix, fd

    def close(self) -> None:
        if self.fd >= 0:
            try:
                self._posix.close(self.fd)
            finally:  # also after Ctrl-C: another file may get this number
                self.fd = -1

    __del__ = close


class OsVolume:
    """See Volume in holdfast.disk.  One call for all files: one by one takes too long."""

    def __init__(self, posix: Posix, fd: int) -> None:
        self._posix, self._directory = posix, Descriptor(posix, fd)

    def sync(self) -> None:
        if self._directory.fd < 0:
            raise PoisonedError("the volume is closed, or its sync has failed; reopen the store")
        try:
            self._posix.syncfs(self._directory.fd)
        except OSError:
            self.close()  # the kernel would not report it a second time
            raise

    def close(self) -> None:
        self._directory.close()


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


class _How(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPENAT2 = 437  # on every architecture
_NO_LINKS_BENEATH = 0x04 | 0x08  # RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH


def _open(path: str, flags: int, at: int | None) -> int:
    """Open a path.  Relative to `at`, no part of it may be a link, nor lead out of there."""
    flags |= os.O_CLOEXEC
    if at is None or "/" not in path:
        return os.open(path, flags if at is None else flags | os.O_NOFOLLOW, 0o600, dir_fd=at)
    mode = 0o600 if flags & os.O_CREAT else 0
    if (call := _openat2()) is None:
        return _open_step_by_step(path, flags, at)
    how = _How(flags, mode, _NO_LINKS_BENEATH)
    while (fd := call(at, os.fsencode(path), how)) < 0:
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):  # EAGAIN: renamed while it was looked up
            raise OSError(code, os.strerror(code), path)
    return fd


def _open_step_by_step(path: str, flags: int, at: int) -> int:
    """The same for a kernel before 5.6, or one that does not allow that call."""
    *parents, name = path.split("/")
    opened: list[int] = []
    try:
        for part in parents:
            if stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            step = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            at = os.open(part, step, dir_fd=at)
            opened.append(at)
        return os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=at)
    finally:
        for fd in opened:
            os.close(fd)


@cache
def _openat2() -> "Callable[[int, bytes, _How], int] | None":
    syscall = ctypes.CDLL(None, use_errno=True).syscall

    def openat2(at: int, path: bytes, how: _How) -> int:
        size = ctypes.sizeof(how)
        answer: int = syscall(_OPENAT2, at, ctypes.c_char_p(path), ctypes.byref(how), size)
        return answer

    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = openat2(root, b".", _How(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0))
    finally:
        os.close(root)
    if fd < 0:
        return None
    os.close(fd)
    return openat2
