"""Interference by other processes while an owner works, and what must hold then.

It happens at any change of the owner (in an append, a rotation, a trim, a recovery or a close) and
between any two steps:

- fork: a child has copies of all descriptors, and uses the same store.  It is refused with
  NotOwnerError, and its calls, close included, change nothing.
- root moved: the directory of the store gets another name.  The owner continues in it; nothing is
  created under the old name, where another process may create its own store.
- lock removed: the lock files are removed or replaced.  A second owner is still refused.  Where a
  file system cannot lock directories, it is admitted; then the first is refused from its next write
  on, and changes nothing.
- second owner: it is refused, and has changed nothing.  When the first is closed or killed, it is
  admitted, and finds everything that was promised.

Between the check that an owner makes before it writes and the write itself it cannot notice that
a lock file was removed.  So where only that file is locked, this is done between steps.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, LockedError, NotOwnerError
from holdfast.group_commit import Alone
from holdfast.ownership import LOCK
from holdfast.testing.lives import BrokenPromiseError, Mortal
from holdfast.testing.platter import Inode, image_of
from holdfast.testing.sim_disk import MOVED, ROOT, SimDisk, SimPosix

if TYPE_CHECKING:
    from holdfast.testing.explorer import LifeExplorer

KINDS = ("fork", "root moved", "lock removed", "second owner")
# Each kind, with and without locks of directories if that makes a difference.
WAYS = (*((kind, True) for kind in KINDS), *((kind, False) for kind in KINDS[2:]))
_CHILD, _SECOND, _MOVER, _NEIGHBOUR = 9_000_001, 9_000_002, 9_000_003, 9_000_004  # process ids
_CHANCE = 0.12
_NOT_FOR_FORKS = ("reopen", "guest")  # a child may read, and a guest syncs what it reads

Turn = Callable[[], str | None]


def chances(random: Random) -> Turn:
    """Return a function that sometimes returns a random kind."""
    return lambda: random.choice(KINDS) if random.random() < _CHANCE else None


class Meddler:
    """Interferes with one life whenever `turn` returns a kind; without `turn`, never."""

    def __init__(
        self, explorer: "LifeExplorer[Any, Any]", life: Mortal[Any], turn: Turn | None
    ) -> None:
        self._explorer, self._life, self._turn = explorer, life, turn
        self._posix, self._random = life.disk.posix, life.random
        self._left: str | None = None  # the name that the directory had before it was moved
        self._neighbour: Mortal[Any] | None = None  # a store of another process at ROOT
        self.has_acted = False
        if turn is not None:
            self._posix.bystander = self._at_change

    def between_steps(self) -> None:
        """Interfere between two steps of the owner."""
        kind = self._turn() if self._turn is not None else None
        if kind == "fork" and self._random.random() < 0.5:
            self._fork_closes()
        elif kind == "fork":
            with self._unwatched():
                self._fork_is_refused(NotOwnerError)
        elif kind == "root moved":
            self._move()
        elif kind == "lock removed":
            self._lock_is_lost()
        elif kind == "second owner":
            self._second_owner_takes_over()

    def leave(self) -> None:
        """End the life: nothing was created under the old name, and a neighbour has its own."""
        self._look_at_the_old_name()
        if self._neighbour is not None:
            self._neighbour.look()
            self._neighbour.go_on()
            self._neighbour.disk.posix.exit()

    def _at_change(self) -> None:
        if self._left is not None:
            self._look_at_the_old_name()
        kind = self._turn() if self._turn is not None else None
        if kind is None:
            return
        with self._unwatched():
            if kind == "fork" and self._life.is_open:
                self._fork_is_refused(HoldfastError)  # closed already, perhaps
            elif kind == "root moved":
                self._move()
            elif kind == "second owner":
                self._second_owner_is_refused()
            elif kind == "lock removed" and self._posix.locks_directories:
                self._remove_lock()
                self._second_owner_is_refused()
                self._acted("lock removed")

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Make changes that do not count as the owner's."""
        posix = self._posix
        hooks = posix.bystander, posix.witness, posix.dies_at
        posix.bystander = posix.witness = posix.dies_at = None
        try:
            yield
        finally:
            posix.bystander, posix.witness, posix.dies_at = hooks

    def _acted(self, kind: str) -> None:
        self.has_acted = True
        self._posix.fired[kind] += 1

    # Forks

    def _fork_is_refused(self, error: type[HoldfastError]) -> None:
        steps = [
            step for name, step in self._explorer.steps().items() if name not in _NOT_FOR_FORKS
        ]
        child = self._posix.fork(_CHILD)
        with self._posix.acting_as(child), _made_new(self._life.guards()):
            self._is_harmless("a fork", self._random.choice(steps))
            self._is_refused("a fork", error)
        child.exit()
        self._acted("fork")

    def _fork_closes(self) -> None:
        """Close the store in the child.  Here it is the only copy, so the parent dies."""
        with self._unwatched():
            child, before = self._posix.fork(_CHILD), self._posix.operations
            with self._posix.acting_as(child), suppress(NotOwnerError):
                self._life.close()
            self._expect_no_change("the close of a fork", before)
            if not self._posix.holds_a_lock:
                raise BrokenPromiseError("broken", "a fork has freed its parent's lock")
            child.exit()
            self._acted("fork")
        self._owner_dies()
        self._life.begin()

    def _is_harmless(self, who: str, step: Callable[[Any], None]) -> None:
        """Check that a step is refused, or changes nothing."""
        before = self._posix.operations
        with suppress(HoldfastError):
            step(self._shadow())
        self._expect_no_change(who, before)

    def _is_refused(self, who: str, error: type[HoldfastError]) -> None:
        before = self._posix.operations
        try:
            self._shadow().go_on()
        except error:
            self._expect_no_change(who, before)
        except (HoldfastError, OSError) as other:
            raise BrokenPromiseError("broken", f"{who} is not refused: {other!r}") from other
        else:
            raise BrokenPromiseError("broken", f"{who} may write")

    def _shadow(self) -> Mortal[Any]:
        """Return the same store, without promises."""
        shadow = copy(self._life)
        shadow.ledger = self._life.ledger.copy()
        return shadow

    def _expect_no_change(self, who: str, before: int, posix: SimPosix | None = None) -> None:
        changes = (posix or self._posix).operations - before
        if changes:
            raise BrokenPromiseError("broken", f"{who} has made {changes} changes")

    # A directory that moves

    def _place(self) -> str:
        return MOVED if self._posix.exists(MOVED) else ROOT

    def _move(self) -> None:
        here = self._place()
        there = ROOT if here == MOVED else MOVED
        if self._posix.exists(there):  # a neighbour's
            return
        mover = self._posix.process(_MOVER)
        mover.rename(here, there)
        self._left = here
        if self._random.random() < 0.5:
            mover.sync_directory("/")
            if here == ROOT and self._random.random() < 0.5:
                self._begin_next_door()
        self._acted("root moved")

    def _begin_next_door(self) -> None:
        disk = SimDisk(self._posix.process(_NEIGHBOUR), ROOT)
        random = Random(self._random.random())
        neighbour = self._explorer.new_life(disk, self._explorer.new_ledger(), random)
        neighbour.begin()
        neighbour.go_on()
        self._neighbour, self._image = neighbour, image_of(self._posix._directory(ROOT))

    def _look_at_the_old_name(self) -> None:
        if self._neighbour is not None:
            if image_of(self._posix._directory(ROOT)) != self._image:
                raise BrokenPromiseError(
                    "broken", "an owner writes to the previous place of its directory"
                )
        elif self._left is not None and self._posix.exists(self._left):
            raise BrokenPromiseError("broken", f"an owner has created {self._left} again")

    # Locks that are removed, and second owners

    def _remove_lock(self) -> None:
        other, path = self._posix.process(_MOVER), f"{self._place()}/{LOCK}"
        if other.exists(path):
            other.unlink(path)
        if self._random.random() < 0.5:
            other.close(other.open(path, os.O_CREAT | os.O_RDWR))

    def _replace_files(self, names: tuple[str, ...]) -> None:
        """Replace each file by a copy, as a restore of a backup does."""
        other, place = self._posix.process(_MOVER), self._place()
        for name in names:
            node = self._posix._directory(place).live[name]
            assert isinstance(node, Inode)
            fd = other.open(f"{place}/{name}.copy", os.O_CREAT | os.O_RDWR)
            other.pwrite(fd, node.live, 0, sync=True)
            other.close(fd)
            other.rename(f"{place}/{name}.copy", f"{place}/{name}")
        other.sync_directory(place)

    def _rival(self, ledger: Any) -> Mortal[Any]:
        disk = SimDisk(self._posix.process(_SECOND), self._place())
        rival: Mortal[Any] = self._explorer.new_life(disk, ledger, self._random)
        return rival

    def _second_owner_is_refused(self) -> None:
        if not self._posix.holds_a_lock:  # the first has only started to open: either may succeed
            return
        rival = self._rival(self._life.ledger.copy())
        posix = rival.disk.posix
        try:
            rival.open()
        except LockedError:
            self._expect_no_change("a second owner that was refused", 0, posix)
        else:
            raise BrokenPromiseError("broken", "there is a second owner")
        posix.exit()
        self._acted("second owner")

    def _second_owner_takes_over(self) -> None:
        if self._random.random() < 0.5:
            self._life.close()
        else:
            self._owner_dies()
        rival = self._rival(self._life.ledger)
        rival.begin()
        self._end(rival)
        self._acted("second owner")
        self._life.begin()

    def _lock_is_lost(self) -> None:
        """Check that the owner notices before its next write, unless its lock of the directory
        holds.
        """
        others = tuple(name for name in self._life.lock_files if name != LOCK)
        self._remove_lock()
        self._replace_files(others)
        is_lost = bool(others) or not self._posix.locks_directories
        self._acted("lock removed")
        rival = None
        if self._posix.locks_directories:
            self._second_owner_is_refused()
        else:
            rival = self._rival(self._life.ledger)
            rival.begin()
            rival.go_on()
        if not is_lost:
            return
        with self._unwatched():
            before = self._posix.operations
            self._is_refused("an owner that lost its lock", NotOwnerError)
            self._life.close()
            self._expect_no_change("the close of an owner that lost its lock", before)
        if rival is not None:
            rival.look()
            self._end(rival)
        self._life.begin()

    def _end(self, rival: Mortal[Any]) -> None:
        rival.go_on()
        if self._random.random() < 0.5:
            rival.close()
        rival.disk.posix.exit()

    def _owner_dies(self) -> None:
        self._posix.exit()
        self._life.vanish()
        self._life.disk.forget_process()


@contextmanager
def _made_new(guards: Sequence[Alone]) -> Iterator[None]:
    """Renew the locks, as in a forked child; restore those of the parent afterwards."""
    kept = [dict(vars(guard)) for guard in guards]
    for guard in guards:
        guard.disown()
    try:
        yield
    finally:
        for guard, values in zip(guards, kept, strict=True):
            vars(guard).update(values)
