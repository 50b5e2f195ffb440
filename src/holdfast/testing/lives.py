"""One life of a store: a process that opens it, uses it and dies, and what it is held to.

What is promised, and what a life is made of, each kind of store says for itself: see
holdfast.testing.logs and holdfast.testing.bars.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from random import Random
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from holdfast.errors import HoldfastError
from holdfast.group_commit import Alone
from holdfast.ownership import LOCK
from holdfast.testing.sim_disk import SimDisk


class BrokenPromiseError(AssertionError):
    """A store has lost, invented or hidden something, or broken another promise.

    `kind` is one of those four words.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


class Promises(Protocol):
    """A ledger: what a store has promised so far."""

    def copy(self) -> Self:
        """For one of several futures."""
        ...

    @property
    def acknowledged(self) -> int:
        """How much is to be there."""
        ...

    def key(self) -> Hashable:
        """All that a store is held to."""
        ...


Ledger = TypeVar("Ledger", bound=Promises)


class Mortal(ABC, Generic[Ledger]):
    """One process's use of a store, from opening it to its death."""

    curiosity: ClassVar[float]  # how likely a guest looks in at a change, if there is one

    def __init__(self, disk: SimDisk, ledger: Ledger, random: Random) -> None:
        self.disk, self.ledger, self.random = disk, ledger, random
        self.lock_files: tuple[str, ...] = (LOCK,)  # that an owner locks besides the directory
        self.is_open = False  # or being closed: there is a store that a fork could use

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def guards(self) -> Sequence[Alone]:
        """What lets one thread at a time into the store: a fork makes these new."""

    @abstractmethod
    def look(self) -> None:
        """Hold what the owner shows to the ledger."""

    @abstractmethod
    def look_as_guest(self) -> None:
        """Hold what a guest sees to the ledger."""

    @abstractmethod
    def settle(self) -> None:
        """Recovery has cut off what it did not show: nothing is in flight any more."""

    @abstractmethod
    def go_on(self) -> None:
        """A store must not only be readable but take what comes next."""

    @abstractmethod
    def vanish(self) -> None:
        """Its process is gone.  The cycles that it leaves need not wait for the collector."""

    def begin(self) -> None:
        self.is_open = False
        try:
            self.open()
        except HoldfastError as error:
            if self.disk.posix.fault is not None:
                raise  # it may refuse while the disk fails
            raise BrokenPromiseError("hidden", f"cannot be opened: {error}") from error
        self.is_open = True
        self.look()
        self.settle()

    def let_a_guest_watch(self) -> None:
        """From now on a guest looks in now and then, also between a write and its sync."""
        posix = self.disk.posix

        def look() -> None:
            if self.random.random() < self.curiosity:
                posix.bystander, dies_at, posix.dies_at = None, posix.dies_at, None
                self.look_as_guest()
                posix.bystander, posix.dies_at = look, dies_at

        posix.bystander = look
