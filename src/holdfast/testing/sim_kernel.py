"""Processes, descriptors and locks of a simulated kernel.

Every process has a process id and a table of descriptors.  All processes on one kernel see the same
files and the same locks.  No two opens in the kernel get the same number.  So a number that two
processes have is one open file description, which a fork has copied.  A lock belongs to the
description: it is free when the last copy is closed.

A directory may be renamed or removed while it is open: a descriptor follows it.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple, Self

from holdfast.posix import Posix
from holdfast.testing.platter import Directory, Inode, all_below

Node = Inode | Directory


class _Descriptors(dict[int, Node]):
    """The open files of a process.  One that is not open is a bad descriptor."""

    def __missing__(self, fd: int) -> Node:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _Held(NamedTuple):
    """What is locked, and the process that locked it."""

    node: Node
    pid: int


class SimStatus(NamedTuple):
    """See holdfast.posix.Status."""

    st_dev: int
    st_ino: int
    st_nlink: int


class SimProcess(Posix):
    """The calls that only look up names, open directories and lock."""

    def __init__(self, root: Directory | None = None) -> None:
        self.pid = os.getpid()  # of the process that makes the calls
        self.locks_directories = True  # False: a file system that cannot, such as NFS
        self._root = root or Directory()
        self._fds = _Descriptors()
        self._numbers = count(4)  # of descriptors, for all processes
        self._locks: dict[int, _Held] = {}
        self._tables = {self.pid: self._fds}

    def _call(self, kind: str) -> str:
        """Count a call.  A subclass can make it fail."""
        return ""

    # Processes

    def process(self, pid: int) -> Self:
        """Start another process on the same kernel, without descriptors."""
        assert not self._tables.get(pid), f"process {pid} is running"
        other = type(self)(self._root)
        other.pid, other.locks_directories = pid, self.locks_directories
        other._numbers, other._locks, other._tables = self._numbers, self._locks, self._tables
        self._tables[pid] = other._fds
        return other

    def fork(self, pid: int) -> Self:
        """Start a child, with copies of all descriptors.

        The child runs no handlers of holdfast.forks: it is a fork that a C library made.
        """
        child = self.process(pid)
        child._fds.update(self._fds)
        return child

    @contextmanager
    def acting_as(self, child: Self) -> Iterator[None]:
        """Make calls as the child of this process, within the block."""
        own = self.pid, self._fds
        self.pid, self._fds = child.pid, child._fds
        try:
            yield
        finally:
            self.pid, self._fds = own

    def exit(self) -> None:
        """End the process: close all of its descriptors."""
        for fd in list(self._fds):
            self.close(fd)

    @property
    def holds_a_lock(self) -> bool:
        """Return whether this process has a descriptor of a locked file."""
        return any(fd in self._fds for fd in self._locks)

    def process_id(self) -> int:
        return self.pid

    # Descriptors and locks

    def open_directory(self, path: str, at: int | None = None) -> int:
        self._call("open")
        return self._descriptor(self._directory(path, at))

    def close(self, fd: int) -> None:
        self._fds.pop(fd, None)
        if fd in self._locks and not any(fd in table for table in self._tables.values()):
            self._locks.pop(fd, None)  # the collector may close it meanwhile, for a dropped file

    def try_lock(self, fd: int) -> bool:
        self._call("lock")
        node = self._fds[fd]
        if isinstance(node, Directory) and not self.locks_directories:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if any(held.node is node for held in self._locks.values()):
            return False
        self._locks[fd] = _Held(node, self.pid)
        return True

    def collect(self) -> None:
        """Do nothing: a simulated process leaves no garbage."""

    def lock_holder(self, fd: int) -> str:
        node = self._fds[fd]
        return next((str(held.pid) for held in self._locks.values() if held.node is node), "")

    # Names

    def identity(self, path: str | int, at: int | None = None) -> tuple[int, int] | None:
        self._call("stat")
        if isinstance(path, int):
            return 0, id(self._fds[path])
        try:
            directory, name = self._parent(path, at)
        except FileNotFoundError:
            return None
        node = directory.live.get(name) if name else directory
        return None if node is None else (0, id(node))

    def exists(self, path: str, at: int | None = None) -> bool:
        return self.identity(path, at) is not None

    def fstat(self, fd: int) -> SimStatus:
        self._call("stat")
        node = self._fds[fd]
        if isinstance(node, Directory):
            return SimStatus(0, id(node), not node.is_removed)
        return SimStatus(0, id(node), sum(one is node for one in all_below(self._root)))

    def stat(self, name: str, *, dir_fd: int, follow_symlinks: bool) -> SimStatus:
        if (found := self.identity(name, dir_fd)) is None:
            raise _missing(name)
        return SimStatus(*found, 1)

    def _descriptor(self, node: Node) -> int:
        fd = next(self._numbers)
        self._fds[fd] = node
        return fd

    def _file(self, fd: int) -> Inode:
        node = self._fds[fd]
        assert isinstance(node, Inode)
        return node

    def _directory(self, path: str | int, at: int | None = None) -> Directory:
        if isinstance(path, int):
            at, path = path, "."
        node: Node = self._root if at is None else self._fds[at]
        for part in path.split("/"):
            if part and part != ".":
                found = node.live.get(part) if isinstance(node, Directory) else None
                if found is None:
                    raise _missing(path)
                node = found
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str, at: int | None = None) -> tuple[Directory, str]:
        """Return the directory of a name.  A removed directory has no names."""
        above, _, name = path.rpartition("/")
        directory = self._directory(above, at)
        if directory.is_removed:
            raise _missing(path)
        return directory, name


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
