"""One life of a store: a process opens it, uses it and dies; and the promises that must hold.

Each kind of store defines what it promises and the steps of a life: see holdfast.testing.logs and
holdfast.testing.bars.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from random import Random
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from holdfast.errors import DiskFullError, HoldfastError
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
        """Return a copy, for one of several futures."""
        ...

    @property
    def acknowledged(self) -> int:
        """Return how much must be there."""
        ...

    def key(self) -> Hashable:
        """Return everything that the store has promised."""
        ...


Ledger = TypeVar("Ledger", bound=Promises)


class Mortal(ABC, Generic[Ledger]):
    """One process's use of a store, from opening it to its death."""

    curiosity: ClassVar[float]  # the probability that a guest reads at a change

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
        """Return the locks of the store, which a fork renews."""

    @property
    @abstractmethod
    def refusal(self) -> HoldfastError | None:
        """Return why the store cannot be written."""

    @abstractmethod
    def look(self) -> None:
        """Compare what the owner shows with the ledger."""

    @abstractmethod
    def look_as_guest(self) -> None:
        """Compare what a guest sees with the ledger."""

    @abstractmethod
    def settle(self) -> None:
        """Record that nothing is in flight: recovery has cut off what it did not show."""

    @abstractmethod
    def go_on(self) -> None:
        """Write to the store: it must not only be readable."""

    @abstractmethod
    def vanish(self) -> None:
        """End the process, and free its cycles without waiting for the garbage collector."""

    def begin(self) -> None:
        self.is_open = False
        try:
            self.open()
        except HoldfastError as error:
            is_full = self.disk.posix.space is not None and isinstance(error, DiskFullError)
            if is_full or self.disk.posix.fault is not None:
                raise  # it may refuse while the disk fails
            raise BrokenPromiseError("hidden", f"cannot be opened: {error}") from error
        self.is_open = True
        self.look()
        self.settle()

    def let_a_guest_watch(self) -> None:
        """Have a guest read at random changes, also between a write and its sync."""
        posix = self.disk.posix

        def look() -> None:
            if self.random.random() < self.curiosity:
                posix.bystander, dies_at, posix.dies_at = None, posix.dies_at, None
                self.look_as_guest()
                posix.bystander, posix.dies_at = look, dies_at

        posix.bystander = look
