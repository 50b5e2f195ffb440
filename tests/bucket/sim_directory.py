"""A bucket in a directory of the simulated disk, so that it can lose power too: see sim_disk."""

import errno
import os
from collections import Counter

from holdfast.bucket.directory import BucketPosix, DirectoryBucket, Status
from holdfast.testing.platter import Directory, Inode
from holdfast.testing.sim_disk import ROOT, SimPosix

_STEP_MS = 1000  # between any two changes, so that no two look simultaneous


class SimBucketPosix(SimPosix, BucketPosix):
    """The system calls of DirectoryBucket; time passes with every change that is made."""

    def __init__(self, root: Directory | None = None, *, fired: Counter[str] | None = None) -> None:
        super().__init__(root, fired=fired)
        self._changed_ms: dict[Inode, int] = {}
        if root is None:
            self.mkdir(ROOT)
            self.sync_directory("/")
            self.operations = self.calls = 0

    def now_ms(self) -> int:
        return self.calls * _STEP_MS

    def bucket(self) -> DirectoryBucket:
        """As a process sees it that has just begun."""
        tokens = iter(range(1 << 30))
        return DirectoryBucket(
            f"{ROOT}/bucket",
            posix=self,
            clock=self.now_ms,
            token=lambda: f"{self.calls}.{next(tokens)}",
        )

    def link(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        directory, name = self._parent(path, at)
        self._stamped(directory.live[name])
        super().link(path, new, at, new_at)

    def rename(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        directory, name = self._parent(path, at)
        self._stamped(directory.live[name])
        super().rename(path, new, at, new_at)

    def status(self, file: str | int) -> Status:
        self._call("read")
        if isinstance(file, int):
            inode: Inode | Directory | None = self._fds[file]
        else:
            directory, name = self._parent(file)
            inode = directory.live.get(name)
        if not isinstance(inode, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        changed_ms = self._changed_ms.get(inode, 0)
        return Status(len(inode.live), changed_ms, changed_ms)

    def names(self, path: str) -> tuple[list[str], list[str]]:
        self._call("read")
        nodes = self._directory(path).live.items()
        files = [name for name, node in nodes if isinstance(node, Inode)]
        return files, [name for name, node in nodes if isinstance(node, Directory)]

    def _stamped(self, node: Inode | Directory) -> Inode:
        assert isinstance(node, Inode)
        self._changed_ms[node] = self.now_ms()
        return node
