"""One owner: it locks a directory, and checks before each write that it is still the owner.

An owner holds two locks.  One is on the directory itself, through a descriptor that follows it when
it is moved.  The other is on the file LOCK in it, which names the process.  `check` is called
before every write.  It raises NotOwnerError

- in a forked child, which has copies of its parent's descriptors and state;
- when the directory was removed;
- where a file system cannot lock directories: when LOCK is not the file that was locked;
- for the lock of another program: when that file was replaced.

A child closes its copies of all descriptors that can write, and never unlocks: a lock of flock(2)
belongs to all copies, and is free when the last of them is closed.
"""

import errno
import os
from contextlib import ExitStack

from holdfast.errors import (
    DiskFullError,
    HoldfastError,
    LockedError,
    NotOwnerError,
    UnsupportedError,
)
from holdfast.forks import disown_in_children, no_fork
from holdfast.posix import FULL, Descriptor, Posix

LOCK = "LOCK"
_FIELD_SIZE = 20  # of the pid, and of the number for readers after it
_TRIES = 100  # to lock the file that has the name LOCK, not one that had it before
_CANNOT_LOCK = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class Ownership:
    """A directory, or a file of another program, that this process holds until it is released."""

    def __init__(
        self,
        posix: Posix,
        path: str,
        name: str,
        lock: Descriptor,
        directory: Descriptor,
        *,
        is_locked: bool,
    ) -> None:
        """`is_locked` is true if the lock of `directory` keeps others out, also if `name` is
        removed.
        """
        self._posix, self._path, self._name = posix, path, name
        self._lock, self._directory, self._is_locked = lock, directory, is_locked
        self._identity = posix.identity(lock.fd)
        self._process_id, self._fstat, self._stat = posix.process_id, posix.fstat, posix.stat
        self._pid = posix.process_id()
        self._lost: str | None = None  # why this process is no longer the owner
        disown_in_children(self)

    def check(self) -> None:
        """Raise NotOwnerError if this process does not own the store, or no longer does.

        It runs before every commit, often with cold caches: two system calls, and as few frames.
        """
        if self._process_id() != self._pid:
            self.refuse_fork()
        if self._lost is None:
            if self._is_locked:
                if self._fstat(self._directory.fd).st_nlink:
                    return
                self._lost = f"the directory {self._path} was removed"
            else:
                try:
                    at = self._directory.fd
                    found = self._stat(self._name, dir_fd=at, follow_symlinks=False)
                    if (found.st_dev, found.st_ino) == self._identity:
                        return
                except FileNotFoundError:
                    pass
                why = "was removed or replaced; the store may have another owner"
                self._lost = f"{self._path}/{self._name} {why}"
        raise NotOwnerError(f"{self._lost}; close the store and open it again")

    def refuse_fork(self) -> None:
        """Raise NotOwnerError in a fork of the owner's process."""
        if self._process_id() != self._pid:
            raise NotOwnerError(
                f"{self._path} is owned by process {self._pid}, and this is a fork of it; "
                "open the store read-only here, or write in the process that opened it"
            )

    def note(self, number: int) -> None:
        """Write a number for readers beside the owner's pid.  It need not survive a power cut."""
        field, done, fd = memoryview(_field(number)), 0, self._lock.fd
        try:
            while done < len(field):  # a write may be short
                done += self._posix.pwrite(fd, field[done:], _FIELD_SIZE + done, sync=False)
        except OSError as error:
            if error.errno not in FULL:
                raise
            why = f"{error.strerror}: free some space and reopen; what was acknowledged is safe"
            raise DiskFullError(error.errno, why, f"{self._path}/{LOCK}") from error

    @property
    def is_ours(self) -> bool:
        """Return whether this process may write, as far as is known: `check` without the error."""
        try:
            self.check()
        except (NotOwnerError, OSError):
            return False
        return True

    def release(self) -> None:
        """Close the descriptors.  This frees the locks, unless a process has copies of them."""
        self._lost = self._lost or f"{self._path} was released"
        self._lock.close()
        self._directory.close()

    def disown(self) -> None:
        """See holdfast.forks."""
        self.release()


def own(posix: Posix, path: str, root: int) -> Ownership:
    """Own the directory that is open as `root`; LockedError names another owner."""
    with no_fork(), ExitStack() as opened:
        directory = Descriptor(posix, posix.open_directory(".", root))
        opened.callback(directory.close)
        is_locked = _lock_directory(posix, directory.fd)
        if is_locked is False:
            raise _locked(path, posix.lock_holder(directory.fd) or _signature(posix, root))
        lock = _lock_name(posix, path, directory.fd)
        opened.callback(lock.close)
        sign(posix, lock.fd)
        owner = Ownership(posix, path, LOCK, lock, directory, is_locked=bool(is_locked))
        opened.pop_all()
        return owner


def own_file(posix: Posix, path: str, root: int, name: str) -> Ownership:
    """Lock an existing file, as the program does that it belongs to; it is not changed."""
    with no_fork(), ExitStack() as opened:
        directory = Descriptor(posix, posix.open_directory(".", root))
        opened.callback(directory.close)
        lock = Descriptor(posix, posix.open(name, os.O_RDWR, directory.fd))
        opened.callback(lock.close)
        if not posix.try_lock(lock.fd):
            raise _locked(path, posix.lock_holder(lock.fd))
        owner = Ownership(posix, path, name, lock, directory, is_locked=False)
        opened.pop_all()
        return owner


def sign(posix: Posix, lock: int) -> None:
    """Write our pid, for the error message of a second owner."""
    pid = _field(posix.process_id())
    try:
        posix.pwrite(lock, memoryview(pid), 0, sync=False)
    except OSError as error:
        if (
            error.errno not in FULL
        ):  # the lock holds without it, and a store must open on a full disk
            raise


def _field(number: int) -> bytes:
    return f"{number:<{_FIELD_SIZE}}".encode()


def _lock_directory(posix: Posix, directory: int) -> bool | None:
    """Lock a directory; None if the file system cannot, as over NFS."""
    try:
        return posix.try_lock(directory)
    except OSError as error:
        if error.errno in _CANNOT_LOCK:
            return None
        raise


def _lock_name(posix: Posix, path: str, directory: int) -> Descriptor:
    """Lock the file that has the name LOCK: version 0.1.0 locks nothing else."""
    for _ in range(_TRIES):
        with ExitStack() as opened:
            lock = Descriptor(posix, posix.open(LOCK, os.O_CREAT | os.O_RDWR, directory))
            opened.callback(lock.close)
            if not posix.try_lock(lock.fd):
                raise _locked(path, _signed(posix, lock.fd))
            if posix.identity(LOCK, directory) == posix.identity(lock.fd):
                opened.pop_all()
                return lock
        # Removed or replaced between two calls: the locked file has no name.
    raise HoldfastError(
        f"{path}/{LOCK} is removed again and again; find the program that does it, and stop it"
    )


def _locked(path: str, holder: str) -> LockedError:
    error = LockedError(
        f"{path} is owned by process {holder or 'unknown'}; stop it, or open the store read-only"
    )
    error.holder = holder
    return error


def _signature(posix: Posix, root: int) -> str:
    try:
        lock = Descriptor(posix, posix.open(LOCK, os.O_RDONLY, root))
    except (OSError, UnsupportedError):  # removed: the directory is still locked
        return ""
    return _signed(posix, lock.fd)


def _signed(posix: Posix, lock: int) -> str:
    return posix.pread(lock, _FIELD_SIZE, 0).decode("ascii", "replace").strip()
