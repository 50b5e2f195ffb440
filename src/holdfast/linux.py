"""What only Linux has: the check that this is Linux, and the calls that Python does not offer.

Modules can be imported on every system.  Only opening a store needs Linux.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from functools import cache

from holdfast.errors import UnsupportedError

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_OPENAT2 = 437  # on every architecture
_NO_LINKS_BENEATH = 0x04 | 0x08  # RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH


def check_system() -> None:
    """Raise UnsupportedError unless this is Linux.  Every store is opened after this."""
    if sys.platform != "linux":
        raise UnsupportedError(
            f"holdfast opens stores only on Linux, and this is {sys.platform}; "
            "run it on Linux, or in a container or virtual machine with Linux"
        )


def syncfs(fd: int) -> None:
    """Sync a whole file system; OSError if writes were lost since `fd` was opened."""
    if _syncfs()(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def rename_new(path: str, new: str, at: int | None, new_at: int | None) -> bool:
    """Rename with one call that never replaces; False if there is no such call here.

    FileExistsError if `new` exists.
    """
    call = _renameat2()
    if call is None:
        return False
    here, there = (_AT_FDCWD if fd is None else fd for fd in (at, new_at))
    while call(here, os.fsencode(path), there, os.fsencode(new), _RENAME_NOREPLACE) != 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS):  # not on this file system, or in this kernel
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code), new)
    return True


@cache
def _syncfs() -> Callable[[int], int]:
    release = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    if os.uname().sysname != "Linux" or release < [5, 8]:
        raise UnsupportedError("syncfs reports lost writes only on Linux 5.8 and later")
    function: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    return function


class _How(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _renameat2() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def open_beneath(path: str, flags: int, at: int | None) -> int:
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
    """Do the same on a kernel before 5.6, or one that does not allow that call."""
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
