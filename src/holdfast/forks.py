"""What happens to open stores in a forked child.

A fork copies descriptors, locks and the parent's idea of a store, but no thread.  So a child closes
its copies of what could write, gets new locks, and is refused by every store that it has copied.
`os.register_at_fork` covers os.fork and multiprocessing; for a fork that a C library makes, owners
also compare the process id before they write.
"""

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Protocol


class Inherited(Protocol):
    """What a forked child must not use as if it were its own."""

    def disown(self) -> None:
        """Give up ownership in a forked child, before anything else runs there."""
        ...


_inherited: "weakref.WeakSet[Inherited]" = weakref.WeakSet()
_holding = threading.RLock()


def disown_in_children(one: Inherited) -> None:
    """Have forked children disown this, from now on until it is garbage."""
    _inherited.add(one)


def no_fork() -> AbstractContextManager[bool]:
    """Hold back forks, so that children know of everything that is opened meanwhile."""
    return _holding


def _disown_all() -> None:
    global _holding
    _holding = threading.RLock()  # the parent's is held by the thread that forked
    for one in list(_inherited):
        one.disown()


if hasattr(os, "register_at_fork"):  # else this system has no forks
    os.register_at_fork(
        before=lambda: _holding.acquire(),
        after_in_parent=lambda: _holding.release(),
        after_in_child=_disown_all,
    )
