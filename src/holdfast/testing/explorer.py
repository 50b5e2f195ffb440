"""Crashes a log in every way the simulated disk knows, and holds it to what it promised.

The oracle: what was acknowledged, or shown by an earlier recovery or to a guest, is there; after
it comes at most a prefix of the batch in flight (all or nothing of it, where the format can);
nothing is invented; and the log can be read and appended to.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Protocol, TypeAlias

from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.logs.log import Guest, Log
from holdfast.testing.sim_disk import FAILING, Fault, PowerLost, SimDisk

_LOG = logging.getLogger("holdfast")


class BrokenPromiseError(AssertionError):
    """A store has lost, invented or hidden something, or broken another promise.

    `kind` is one of those four words.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


class Subject(Protocol):
    """A kind of log under test."""

    batch_is_atomic: bool  # may a crash leave a part of a batch?

    def open(self, disk: Disk) -> Log: ...

    def open_read_only(self, disk: Disk) -> Guest: ...

    def steps(self) -> "dict[str, Step]":
        """What a life is made of: the common steps and the format's own."""
        ...


@dataclass(slots=True)
class Ledger:
    """What a log has promised so far.  Entry i + 1 is promised[i]."""

    promised: list[bytes] = field(default_factory=list)
    in_flight: list[bytes] = field(default_factory=list)
    first_min: int = 1  # compaction has durably removed what is before
    first_max: int = 1  # ... and was allowed to go this far
    cut_to: int | None = None  # a truncation in flight leaves all, or nothing after this

    def copy(self) -> "Ledger":
        """For one of several futures."""
        bounds = self.first_min, self.first_max, self.cut_to
        return Ledger(list(self.promised), list(self.in_flight), *bounds)

    def hold(self, log: Guest, *, batch_is_atomic: bool) -> None:
        """Compare; what the log shows now it has promised from now on."""
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
        # A log that has begun anew ahead of all its entries has no others in between.
        self.promised += [b""] * (first - 1 - len(self.promised))


class Life:
    """One process's use of a log, from opening it to its death."""

    def __init__(self, subject: Subject, disk: SimDisk, ledger: Ledger, random: Random) -> None:
        self.subject, self.disk, self.ledger, self.random = subject, disk, ledger, random
        self.log: Log

    def begin(self) -> None:
        try:
            self.log = self.subject.open(self.disk)
        except HoldfastError as error:
            if self.disk.posix.fault is not None:
                raise  # it may refuse while the disk fails
            raise BrokenPromiseError("hidden", f"cannot be opened: {error}") from error
        self.hold(self.log)
        # Recovery has cut off what it did not show, and undone nothing else.
        self.ledger.in_flight, self.ledger.cut_to = [], None
        self.ledger.first_min = self.ledger.first_max = self.log.first_index

    def hold(self, log: Guest) -> None:
        self.ledger.hold(log, batch_is_atomic=self.subject.batch_is_atomic)

    def append(self, payloads: list[bytes]) -> None:
        self.ledger.in_flight = list(payloads)
        self.log.append(payloads)
        self.ledger.promised += self.ledger.in_flight
        self.ledger.in_flight = []

    def cut_tail(self, last: int, truncate: Callable[[int], None]) -> None:
        self.ledger.cut_to = last
        truncate(last)
        del self.ledger.promised[last:]
        self.ledger.cut_to = None

    def let_a_guest_watch(self) -> None:
        """From now on a guest looks in now and then, also between a write and its sync."""
        posix = self.disk.posix

        def look() -> None:
            if self.random.random() < 0.25:
                posix.bystander, dies_at, posix.dies_at = None, posix.dies_at, None
                guest = self.subject.open_read_only(self.disk)
                self.hold(guest)
                guest.close()
                posix.bystander, posix.dies_at = look, dies_at

        posix.bystander = look

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
    life.log.close()
    life.begin()


def look_as_guest(life: Life) -> None:
    guest = life.subject.open_read_only(life.disk)
    life.hold(guest)
    guest.close()


STEPS: dict[str, Step] = {
    "append": append_one,
    "batch": append_batch,
    "large": append_large,
    "reopen": reopen,
    "guest": look_as_guest,
}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Every life leaves a log behind, and a line in the journal for each thing that it mended.  To
    look for such garbage less often, and to write no such lines, saves a third."""
    thresholds, level = gc.get_threshold(), _LOG.level
    gc.set_threshold(50_000, *thresholds[1:])
    _LOG.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _LOG.setLevel(level)


class Explorer:
    """Runs lives of one kind of log, and counts what it has seen."""

    def __init__(self, subject: Subject, *, seed: int = 0, images_per_point: int = 6) -> None:
        self.subject, self.seed, self.images_per_point = subject, seed, images_per_point
        self.acknowledged = 0
        self.drawn = 0  # images looked at, those seen before included
        self.fired: Counter[str] = Counter()
        self._seen: set[int] = set()

    @property
    def images(self) -> int:
        """Distinct states of the disk from which a log was recovered and judged."""
        return len(self._seen)

    def sequences(self, length_max: int) -> Iterator[tuple[str, ...]]:
        """Every way to string together up to so many steps."""
        for length in range(length_max + 1):
            yield from product(self.subject.steps(), repeat=length)

    def every_crash_point(self, sequence: Sequence[str], seed: int = 0) -> None:
        """Cut the power, and kill, at each change that this sequence makes to the disk.

        It is lived once: each change is looked at as if it were the last.
        """
        disk = SimDisk()
        life = Life(self.subject, disk, Ledger(), Random(f"{sequence}/{seed}"))

        def crash() -> None:
            random = Random(f"{self.seed}/{sequence}/{disk.posix.operations}/{seed}")
            for _ in range(self.images_per_point):
                self._outlive(life.ledger.copy(), disk.after_power_cut(random), random)
            self._outlive(life.ledger.copy(), disk.copy_after_kill(), random)

        disk.posix.fired, disk.posix.witness = self.fired, crash
        with undisturbed():
            try:
                life.begin()
                for name in sequence:
                    self.subject.steps()[name](life)
            except BrokenPromiseError as error:
                error.add_note(f"in {sequence}, seed {seed}, change {disk.posix.operations}")
                raise
        self.acknowledged += len(life.ledger.promised)

    def lives(self, seed: int, count: int = 5) -> None:
        """Several lives on one disk, each cut short somewhere, often in recovery."""
        with undisturbed():
            self._lives(seed, count)

    def _lives(self, seed: int, count: int) -> None:
        random, disk, ledger = Random(f"{self.seed}/{seed}"), SimDisk(), Ledger()
        disk.posix.fired = self.fired
        steps = list(self.subject.steps().values())
        for number in range(count):
            disk.posix.operations = 0
            disk.posix.dies_at = int(random.random() * random.choice((8, 20, 40)))
            life = Life(self.subject, disk, ledger, random)
            try:
                life.begin()
                if random.random() < 0.3:
                    life.let_a_guest_watch()
                while True:
                    random.choice(steps)(life)
            except PowerLost:
                disk = disk.after_kill() if random.random() < 0.3 else disk.after_power_cut(random)
                self._is_new(disk, ledger)
            except BrokenPromiseError as error:
                error.add_note(f"in life {number} of seed {self.seed}/{seed}")
                raise
        self._judge(disk, ledger, random)
        self.acknowledged += len(ledger.promised)

    def every_fault(self, sequence: Sequence[str], kind: str, *, for_ever: bool) -> None:
        """Let each system call that this sequence makes fail in turn; then lose power too."""
        with undisturbed():
            calls = self._with_fault(sequence, kind, None)[0].posix.trace
            for at in [at for at, call in enumerate(calls) if call in FAILING[kind]]:
                random = Random(f"{self.seed}/{sequence}/{kind}/{at}")
                disk, ledger = self._with_fault(sequence, kind, Fault(kind, at, for_ever))
                self._judge(disk.after_power_cut(random), ledger.copy(), random)
                disk = disk.after_kill()
                self._judge(disk, ledger, random)
                self._judge(disk.after_power_cut(random), ledger, random)  # it was shown: durable

    def _with_fault(
        self, sequence: Sequence[str], kind: str, fault: Fault | None
    ) -> tuple[SimDisk, Ledger]:
        """One life, the same each time until the fault fires."""
        disk, ledger = SimDisk(), Ledger()
        disk.posix.fired = self.fired
        life = Life(self.subject, disk, ledger, Random(f"{self.seed}/{sequence}/{kind}"))
        disk.posix.fault = fault
        try:
            life.begin()
            for name in sequence:
                self.subject.steps()[name](life)
        except (OSError, HoldfastError):
            if fault is None:
                raise
            # It said so: that is all that is asked of it.
        return disk, ledger

    def _outlive(self, ledger: Ledger, disk: SimDisk, random: Random) -> None:
        """Recover; now and then die once more inside recovery and recover from that."""
        if not self._is_new(disk, ledger):
            return
        if random.random() < 0.3:
            disk.posix.operations, disk.posix.dies_at = 0, int(random.random() * 12)
            second = Life(self.subject, disk, ledger, random)
            try:
                second.begin()
                append_one(second)
            except PowerLost:
                pass
            disk = disk.after_power_cut(random) if random.random() < 0.7 else disk.after_kill()
            self._is_new(disk, ledger)
        self._judge(disk, ledger, random)

    def _judge(self, disk: SimDisk, ledger: Ledger, random: Random) -> None:
        life = Life(self.subject, disk, ledger, random)
        life.begin()
        if random.random() < 0.2:  # it must not only be readable but go on
            append_one(life)
            life.hold(life.log)

    def _is_new(self, disk: SimDisk, ledger: Ledger) -> bool:
        """Count an image, once for all the promises it is held to."""
        self.drawn += 1
        bounds = ledger.first_min, ledger.first_max, ledger.cut_to
        promises = (*ledger.promised, None, *ledger.in_flight, *bounds)
        image = hash((frozenset(disk.files().items()), promises))
        if image in self._seen:
            return False
        self._seen.add(image)
        return True
