"""Logs for the explorer: what they promise, and the steps of a life.

The oracle: every entry that was acknowledged, or shown by an earlier recovery or to a guest, is
there.  After it comes at most a prefix of the batch in flight (all or nothing, if the format can).
No entry is invented, and the log can be read and appended to.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeAlias

from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.group_commit import Alone
from holdfast.handle import Handle
from holdfast.logs.log import Log, LogReader
from holdfast.logs.mark import MarkFile
from holdfast.testing.explorer import BrokenPromiseError, LifeExplorer, Mortal
from holdfast.testing.sim_disk import SimDisk


class Subject(Protocol):
    """A kind of log under test."""

    batch_is_atomic: bool  # may a crash leave a part of a batch?

    def open(self, disk: Disk) -> Log: ...

    def open_reader(self, disk: Disk) -> LogReader: ...

    def steps(self) -> "dict[str, Step]":
        """Return the steps of a life: the common ones and those of the format."""
        ...


@dataclass(slots=True)
class Ledger:
    """What a log has promised so far.  Entry i + 1 is promised[i]."""

    promised: list[bytes] = field(default_factory=list)
    in_flight: list[bytes] = field(default_factory=list)
    first_min: int = 1  # trim has durably removed what is before
    first_max: int = 1  # ... and was allowed to go this far
    cut_to: int | None = None  # a truncation in flight leaves all, or nothing after this

    def copy(self) -> "Ledger":
        """Return a copy, for one of several futures."""
        bounds = self.first_min, self.first_max, self.cut_to
        return Ledger(list(self.promised), list(self.in_flight), *bounds)

    @property
    def acknowledged(self) -> int:
        return len(self.promised)

    def key(self) -> Hashable:
        bounds = self.first_min, self.first_max, self.cut_to
        return (*self.promised, None, *self.in_flight, *bounds)

    def hold(self, log: LogReader, *, batch_is_atomic: bool) -> None:
        """Compare the log with the ledger; entries that it shows count as promised from now on."""
        first, last = log.first_index, log.last_index
        if not self.first_min <= first <= self.first_max:
            kind = "lost" if first > self.first_max else "invented"
            raise BrokenPromiseError(
                kind, f"begins at {first}, not {self.first_min}..{self.first_max}"
            )
        if self.cut_to is not None and last == self.cut_to:
            del self.promised[last:]
            self.cut_to = None
        if last < len(self.promised):
            raise BrokenPromiseError("lost", f"{last} of {len(self.promised)} entries are there")
        try:
            found = [log.read(index) for index in range(first, last + 1)]
        except HoldfastError as error:
            raise BrokenPromiseError("hidden", str(error)) from error
        kept = self.promised[first - 1 :]
        if found[: len(kept)] != kept:
            raise BrokenPromiseError("lost", "an entry is not what was acknowledged")
        extra = found[len(kept) :]
        if extra != self.in_flight[: len(extra)]:
            raise BrokenPromiseError("invented", f"{extra!r} after what was acknowledged")
        if batch_is_atomic and extra and extra != self.in_flight:
            raise BrokenPromiseError(
                "invented", f"{len(extra)} of a batch of {len(self.in_flight)}"
            )
        self.promised += extra
        del self.in_flight[: len(extra)]
        # A log that starts again after all its entries has no others in between.
        self.promised += [b""] * (first - 1 - len(self.promised))


class NoTicker:
    """A ticker that never ticks by itself: a life says when a second has passed."""

    def __init__(self, interval_ms: float, step: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Life(Mortal[Ledger]):
    """One process's use of a log, from opening it to its death."""

    curiosity = 0.25

    def __init__(self, subject: Subject, disk: SimDisk, ledger: Ledger, random: Random) -> None:
        super().__init__(disk, ledger, random)
        self.subject = subject
        self.lock_files = getattr(subject, "lock_files", self.lock_files)
        self.log: Log

    def open(self) -> None:
        self.log = self.subject.open(self.disk)

    def close(self) -> None:
        self.log.close()

    def guards(self) -> Sequence[Alone]:
        commits = vars(self.log)["_commits"]
        assert isinstance(commits, Alone)
        return (commits,)

    @property
    def refusal(self) -> HoldfastError | None:
        handle = vars(self.log)["_handle"]
        assert isinstance(handle, Handle)
        return handle.refusal

    def look(self) -> None:
        self.hold(self.log)

    def look_as_guest(self) -> None:
        guest = self.subject.open_reader(self.disk)
        self.hold(guest)
        guest.close()

    def settle(self) -> None:
        # Recovery has cut off what it did not show, and undone nothing else.
        self.ledger.in_flight, self.ledger.cut_to = [], None
        self.ledger.first_min = self.ledger.first_max = self.log.first_index

    def go_on(self) -> None:
        append_one(self)

    def vanish(self) -> None:
        vars(self.log).clear()

    def hold(self, log: LogReader) -> None:
        self.ledger.hold(log, batch_is_atomic=self.subject.batch_is_atomic)

    def append(self, payloads: list[bytes]) -> None:
        self.ledger.in_flight = list(payloads)
        self.log.append(payloads)
        self.ledger.promised += self.ledger.in_flight
        self.ledger.in_flight = []
        mark = vars(self.log).get("_mark")
        if isinstance(mark, MarkFile) and self.random.random() < 0.2:
            mark.tick()  # a second has passed

    def cut_tail(self, last: int, truncate: Callable[[int], None]) -> None:
        self.ledger.cut_to = last
        truncate(last)
        del self.ledger.promised[last:]
        self.ledger.cut_to = None

    def payload(self, size: int) -> bytes:
        return self.random.randbytes(size)


Step: TypeAlias = Callable[[Life], None]


def append_one(life: Life) -> None:
    life.append([life.payload(3)])


def append_batch(life: Life) -> None:
    life.append([life.payload(size) for size in (1, 20, 5)])


def append_large(life: Life) -> None:
    life.append([life.payload(150)])


def reopen(life: Life) -> None:
    life.close()
    life.begin()


STEPS: dict[str, Step] = {
    "append": append_one,
    "batch": append_batch,
    "large": append_large,
    "reopen": reopen,
    "guest": Life.look_as_guest,
}


class Explorer(LifeExplorer[Life, Ledger]):
    """Runs lives of one kind of log, and counts the images."""

    changes_max = 8, 20, 40
    recovery_changes_max = 12

    def __init__(self, subject: Subject, *, seed: int = 0, images_per_point: int = 6) -> None:
        super().__init__(seed=seed, images_per_point=images_per_point)
        self.subject = subject
        # A format of another package need not have these: they are for holdfast.testing.full_disk.
        self.ways_out = getattr(subject, "ways_out", ())
        self.cut_files = getattr(subject, "cut_files", "")
        self.record_start = getattr(subject, "record_start", self.record_start)

    def steps(self) -> dict[str, Step]:
        return self.subject.steps()

    def new_ledger(self) -> Ledger:
        return Ledger()

    def new_life(self, disk: SimDisk, ledger: Ledger, random: Random) -> Life:
        return Life(self.subject, disk, ledger, random)
