"""The space of a simulated file system: it can be full, or have a quota.

Blocks of zeros that were never allocated are holes, and take no space.  A write that needs more
blocks than there are is cut short, as Linux does it, and fails if not one byte fits.
"""

import errno
import os
from collections import Counter
from functools import lru_cache

from holdfast.testing.platter import Directory, Inode, all_below, landed
from holdfast.testing.sim_kernel import SimProcess

_BLOCK = 4096
_PLENTY = 2**40


class SimSpace(SimProcess):
    """How much space the files of a kernel take.  Without `space` there is no limit."""

    reserve_size = 0

    def __init__(self, root: Directory | None = None, *, fired: Counter[str] | None = None) -> None:
        super().__init__(root)
        self.fired: Counter[str] = Counter() if fired is None else fired
        self.space: int | None = None  # bytes
        self.has_quota = False  # then no call reports how much of it is left

    def free_bytes(self, fd: int) -> int:
        return _PLENTY if self.space is None or self.has_quota else self._left()

    def fill_up(self) -> None:
        """Have another program use all space that is free."""
        self.space = self._used()

    def take_over_space(self, other: "SimSpace") -> None:
        """Have the file system of another kernel."""
        self.space, self.has_quota = other.space, other.has_quota
        self.reserve_size = other.reserve_size

    def _fitting(self, inode: Inode, offset: int, data: bytes) -> int:
        """Return how many bytes of a write fit on the disk; OSError if none does."""
        if self.space is None:
            return len(data)
        left, had = self._left(), _taken(inode.live, inode.allocated)
        low, high = 0, len(data)
        middle = high
        while low < high:  # the longest part that fits
            if _taken(landed(inode.live, offset, data[:middle]), inode.allocated) - had <= left:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        if data and not low:
            self._refuse_full()
        return low

    def _allocate(self, inode: Inode, size: int) -> None:
        """Take the blocks of the first `size` bytes, and give back those after them."""
        if self.space is not None and size > len(inode.live):
            grown = _blocks(size) - _taken(inode.live, inode.allocated)
            if grown > self._left():
                self._refuse_full()
        inode.allocated = size

    def _refuse_full(self) -> None:
        code = errno.EDQUOT if self.has_quota else errno.ENOSPC
        self.fired["quota" if self.has_quota else "full"] += 1
        raise OSError(code, os.strerror(code))

    def _left(self) -> int:
        return max(0, (self.space or 0) - self._used())

    def _used(self) -> int:
        nodes = {*all_below(self._root)}
        for table in self._tables.values():
            nodes |= {*table.values()}
        return sum(_taken(n.live, n.allocated) for n in nodes if isinstance(n, Inode))


def _blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


@lru_cache(4096)
def _taken(content: bytes, allocated: int) -> int:
    """Return the bytes that a file takes: what was allocated, and blocks that are not zero."""
    taken = _blocks(min(allocated, len(content)))
    for begin in range(taken, len(content), _BLOCK):
        if content[begin : begin + _BLOCK].strip(b"\0"):
            taken += _BLOCK
    return taken
