"""A disk in memory that can lose power, fill up, fail and corrupt bytes.

The fault model.  A sync makes durable what was written to that file before, and nothing else; a
directory sync makes durable the names in that directory.  Until then a power cut leaves every write
old, new, zero, garbled or torn at any byte, piece by piece.  A file's size and its bytes are
independent.  Every created, renamed or removed name is done or not.  A write never harms bytes
outside its range.  A kill keeps all that was written, synced or not: it may yet be lost to a later
power cut.

A call can fail: EIO, ENOSPC, EDQUOT, a short write, or a sync that reports EIO once and then, like
Linux, calls the lost pages clean.  All of it is decided by a seed, and every fault that fires is
counted: a fault that never fired has proved nothing.

The simulation replaces the system calls below OsDisk, so the tested code is the code that ships.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Self

from holdfast.disk import Buffer
from holdfast.testing.faults import CODES
from holdfast.testing.faults import FAILING as FAILING
from holdfast.testing.faults import Fault as Fault
from holdfast.testing.faults import PowerLost as PowerLost
from holdfast.testing.platter import (
    Directory,
    Inode,
    all_below,
    copy_of,
    landed,
    rename,
    suffer,
)
from holdfast.testing.sim_space import SimSpace

FATES = ("new", "new", "old", "zero", "garbled")  # of a piece of a write that was not synced


class SimPosix(SimSpace):
    """The system calls of OsDisk, on inodes and directories in memory."""

    def __init__(self, root: Directory | None = None, *, fired: Counter[str] | None = None) -> None:
        super().__init__(root, fired=fired)
        self.operations = 0  # that change something: where a crash can hit
        self.calls = 0  # of any kind: where a fault can hit
        self.trace: list[str] = []  # ... and of which kind each was
        self.dies_at: int | None = None
        self.fault: Fault | None = None
        self.bystander: Callable[[], None] | None = None  # looks on at every change
        self.witness: Callable[[], None] | None = None  # ... when power could go

    # Calls that change something

    def open(self, path: str, flags: int, at: int | None = None) -> int:
        directory, name = self._parent(path, at)
        node = directory.live.get(name)
        if node is None and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._call("create" if node is None else "open")
        if node is not None and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if node is None:
            node = Inode()
            directory.change({name: node})
            self._operate()
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if flags & os.O_TRUNC and node.live:
            node.write(0, None)
            self._operate()
        return self._descriptor(node)

    def pwrite(self, fd: int, data: Buffer, offset: int, *, sync: bool) -> int:
        inode, content = self._file(fd), bytes(data)
        if self._call("write") == "short write" and len(content) > 1:
            self.fired["short write"] += 1
            content = content[: len(content) // 2]
        content = content[: self._fitting(inode, offset, content)]
        inode.write(offset, content)
        self._operate()
        if sync:
            self._sync(inode, only_last=True)
        return len(content)

    def resize(self, fd: int, size: int) -> None:
        self._call("write")
        self._allocate(self._file(fd), size)
        self._file(fd).write(size, None)
        self._operate()

    def extend(self, fd: int, size: int) -> None:
        self._call("write")
        self._file(fd).write(max(size, len(self._file(fd).live)), None)
        self._operate()

    def fdatasync(self, fd: int) -> None:
        self._sync(self._file(fd))

    def syncfs(self, fd: int) -> None:
        nodes = list(all_below(self._root))
        try:
            self._call("sync")
        except OSError:
            for node in nodes:
                if isinstance(node, Inode):
                    node.forget_pending()
            raise
        self._operate()
        for node in nodes:
            if node.pending:
                node.sync()

    def drop_cache(self, fd: int, offset: int) -> None:
        inode = self._file(fd)
        if not inode.pending:
            inode.live = inode.live[:offset] + inode.durable[offset:]

    def mkdir(self, path: str, at: int | None = None) -> None:
        directory, name = self._parent(path, at)
        self._call("create")
        if name in directory.live:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        directory.change({name: Directory()})
        self._operate()

    def rename(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        source, name = self._parent(path, at)
        target, new_name = self._parent(new, new_at)
        self._call("rename")
        if name not in source.live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        node = source.live[name]
        if isinstance(node, Directory) and new_name in target.live:
            self._remove_directory(target, new_name)
        if source is target:
            source.change({new_name: node, name: None})
        else:
            target.change({new_name: node})
            source.change({name: None})
        self._operate()

    def rename_new(
        self, path: str, new: str, at: int | None = None, new_at: int | None = None
    ) -> None:
        target, name = self._parent(new, new_at)
        if name in target.live:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self.rename(path, new, at, new_at)

    def link(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        source, name = self._parent(path, at)
        target, new_name = self._parent(new, new_at)
        self._call("create")
        if new_name in target.live:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        target.change({new_name: source.live[name]})
        self._operate()

    def unlink(self, path: str, at: int | None = None) -> None:
        directory, name = self._parent(path, at)
        self._call("unlink")
        if name not in directory.live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        directory.change({name: None})
        self._operate()

    def rmdir(self, path: str) -> None:
        directory, name = self._parent(path)
        self._call("unlink")
        self._remove_directory(directory, name)
        directory.change({name: None})
        self._operate()

    def sync_directory(self, directory: str | int) -> None:
        self._call("sync")
        self._operate()
        self._directory(directory).sync()

    # Calls that only look

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._call("read")
        return self._file(fd).live[offset : offset + size]

    def map(self, fd: int) -> memoryview:
        self._call("read")
        return memoryview(self._file(fd).live)

    def size(self, fd: int) -> int:
        return len(self._file(fd).live)

    def allocated(self, fd: int) -> int:
        return len(self._file(fd).live)

    def seek_data(self, fd: int, offset: int) -> int | None:
        return offset if offset < len(self._file(fd).live) else None

    def seek_hole(self, fd: int, offset: int) -> int | None:
        return len(self._file(fd).live)

    def sizes(self, path: str | int) -> dict[str, int]:
        self._call("read")
        nodes = self._directory(path).live.items()
        return {name: len(node.live) for name, node in nodes if type(node) is Inode}

    def directories(self, path: str | int) -> list[str]:
        self._call("read")
        nodes = self._directory(path).live.items()
        return [name for name, node in nodes if isinstance(node, Directory)]

    # Kills and power cuts

    def kill(self) -> None:
        """Kill the process; its writes are still in the page cache, synced or not."""
        self.fired["kill"] += 1
        self.dies_at = self.fault = self.bystander = self.witness = None
        self.exit()

    def after_power_cut(self, random: Random) -> Self:
        """Return the disk after a power cut now: one of many possible images."""
        self.fired["power cut"] += 1
        return self._on(self._image_of(self._root, random, {}))

    def copy_after_kill(self) -> Self:
        """Return a copy as after a kill now, for one of several futures."""
        self.fired["kill"] += 1
        return self._on(copy_of(self._root, {}))

    def _on(self, root: Directory) -> Self:
        """Return a kernel that has just started, on another platter."""
        posix = type(self)(root, fired=self.fired)
        posix.locks_directories = self.locks_directories
        posix.take_over_space(self)
        return posix

    def _image_of(
        self, directory: Directory, random: Random, seen: dict[Inode, Inode]
    ) -> Directory:
        names = directory.durable
        if directory.pending:
            names = dict(names)
            for change in directory.pending:
                kept = random.random() < 0.5
                self.fired["name kept" if kept else "name lost"] += 1
                if kept:
                    rename(names, change)
        live: dict[str, Inode | Directory] = {}
        for name, node in names.items():
            if isinstance(node, Directory):
                live[name] = self._image_of(node, random, seen)
            elif node in seen:
                live[name] = seen[node]
            else:
                content = self._content_of(node, random) if node.pending else node.durable
                live[name] = seen[node] = Inode(content, content, allocated=node.allocated)
        return Directory(live, live)

    def _content_of(self, inode: Inode, random: Random) -> bytes:
        content = inode.durable
        for offset, data in inode.pending:
            if data is None:
                if random.random() < 0.5:
                    content = landed(content, offset, None)
                continue
            cuts = [0, len(data)]
            if random.random() < 0.6:
                cuts += [
                    int(random.random() * (len(data) + 1))
                    for _ in range(1 + int(random.random() * 3))
                ]
                cuts.sort()
                self.fired["torn"] += 1
            for begin, end in pairwise(cuts):
                fate = FATES[int(random.random() * 5)]
                self.fired[fate] += 1
                if fate != "old" and begin < end:
                    piece = suffer(fate, data[begin:end], random)
                    content = landed(content, offset + begin, piece)
        return content

    # Faults

    def _call(self, kind: str) -> str:
        """Count a call; fail it if a fault is due."""
        fault, number = self.fault, self.calls
        self.calls += 1
        self.trace.append(kind)
        if fault is None or not (number == fault.at or (fault.always and number > fault.at)):
            return ""
        fails = kind in FAILING[fault.kind]
        if not fails or fault.kind == "short write":
            return fault.kind if fails else ""
        self.fired[fault.kind] += 1
        code = CODES.get(fault.kind, errno.EIO)
        raise OSError(code, os.strerror(code))

    def _operate(self) -> None:
        """Count a call after its change.  If the power fails here, the caller does not know."""
        if self.bystander is not None:
            self.fired["bystander"] += 1
            self.bystander()
        if self.witness is not None:
            self.witness()
        if self.dies_at is not None and self.operations >= self.dies_at:
            raise PowerLost
        self.operations += 1

    def _sync(self, inode: Inode, *, only_last: bool = False) -> None:
        try:
            self._call("sync")
        except OSError:
            inode.forget_pending()
            raise
        self._operate()
        if only_last:
            inode.sync_last()
        else:
            inode.sync()

    def _remove_directory(self, above: Directory, name: str) -> None:
        """Remove the name of a directory, which must be empty."""
        node = above.live.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        if node.live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
        node.is_removed = True
