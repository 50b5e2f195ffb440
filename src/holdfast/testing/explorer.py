"""Crash a store in every way that the simulated disk supports, and compare it with its promises.

Each kind of store defines what it promises and the steps of a life: see holdfast.testing.logs and
holdfast.testing.bars.  Interference by other processes is in holdfast.testing.meddler.
"""

import gc
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, product
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.errors import HoldfastError
from holdfast.testing.lives import BrokenPromiseError as BrokenPromiseError
from holdfast.testing.lives import Ledger as Ledger
from holdfast.testing.lives import Mortal as Mortal
from holdfast.testing.meddler import Meddler, chances
from holdfast.testing.platter import image_of
from holdfast.testing.sim_disk import FAILING, Fault, PowerLost, SimDisk

_LOG = logging.getLogger("holdfast")
_KNOWN_MAX = 6
_CRASHES_AFTER_MEDDLING = 0.1  # how likely a change after it is tried as the last


Life = TypeVar("Life", bound=Mortal[Any])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Collect garbage less often, and do not log recoveries: every life leaves a store as garbage,
    and log lines.  This saves a third of the time.
    """
    thresholds, level = gc.get_threshold(), _LOG.level
    gc.set_threshold(50_000, *thresholds[1:])
    _LOG.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _LOG.setLevel(level)


class LifeExplorer(ABC, Generic[Life, Ledger]):
    """Runs lives of one kind of store, and counts the images."""

    changes_max: ClassVar[tuple[int, ...]]  # that a life makes before it ends: one of these
    recovery_changes_max: ClassVar[int]  # ... and one that dies again while it recovers
    guests_first: ClassVar[float] = 0.0  # how likely a guest looks before an owner recovers
    ways_out: Sequence[str]  # steps that must work on a full disk: see holdfast.testing.full_disk
    cut_files: str  # a pattern: of these nothing is cut off without a copy
    record_start: bytes = (
        b"?"  # of a record in them that recovery removes, as it is no longer needed
    )

    def __init__(self, *, seed: int = 0, images_per_point: int = 6) -> None:
        self.seed, self.images_per_point = seed, images_per_point
        self.acknowledged = 0
        self.drawn = 0  # images looked at, those seen before included
        self.fired: Counter[str] = Counter()
        self._seen: set[int] = set()

    @abstractmethod
    def steps(self) -> Mapping[str, Callable[[Life], None]]:
        """Return the steps of a life."""

    @abstractmethod
    def new_ledger(self) -> Ledger: ...

    @abstractmethod
    def new_life(self, disk: SimDisk, ledger: Ledger, random: Random) -> Life: ...

    @property
    def images(self) -> int:
        """Return the number of distinct images from which a store was recovered and checked."""
        return len(self._seen)

    def sequences(self, length_max: int) -> Iterator[tuple[str, ...]]:
        """Every way to string together up to so many steps."""
        for length in range(length_max + 1):
            yield from product(self.steps(), repeat=length)

    def every_crash_point(
        self,
        sequence: Sequence[str],
        seed: int = 0,
        first: int = 0,
        *,
        last_step_only: bool = False,
    ) -> None:
        """Cut the power, and kill, at each change that this sequence makes from `first` on.

        The sequence runs once: each change is treated as the last one.  With `last_step_only`,
        changes of earlier steps are left to shorter sequences.
        """
        disk, ledger = SimDisk(), self.new_ledger()
        life = self.new_life(disk, ledger, Random(f"{sequence}/{seed}"))
        left = len(sequence) if last_step_only else 1  # steps, the one at work included

        def crash() -> None:
            if left > 1 or disk.posix.operations < first:
                return
            random = Random(f"{self.seed}/{sequence}/{disk.posix.operations}/{seed}")
            known = 0  # consecutive: where only a name is not durable yet, there are few images
            for _ in range(self.images_per_point):
                is_new = self._outlive(ledger, disk.after_power_cut(random), random)
                known = 0 if is_new else known + 1
                if known == _KNOWN_MAX:
                    break
            self._outlive(ledger, disk.copy_after_kill(), random)

        disk.posix.fired, disk.posix.witness = self.fired, crash
        with undisturbed():
            try:
                life.begin()
                for done, name in enumerate(sequence):
                    left = len(sequence) - done if last_step_only else 1
                    self.steps()[name](life)
            except BrokenPromiseError as error:
                error.add_note(f"in {sequence}, seed {seed}, change {disk.posix.operations}")
                raise
        self.acknowledged += ledger.acknowledged

    def lives(self, seed: int, count: int = 5, *, meddled: bool = False) -> None:
        """Run several lives on one disk, each ended at some point, often in recovery.

        If they are `meddled` with, other processes interfere at random changes.
        """
        with undisturbed():
            self._lives(seed, count, meddled=meddled)

    def _lives(self, seed: int, count: int, *, meddled: bool) -> None:
        random, disk, ledger = Random(f"{self.seed}/{seed}"), SimDisk(), self.new_ledger()
        disk.posix.fired = self.fired
        disk.posix.locks_directories = not meddled or random.random() < 0.7
        steps = list(self.steps().values())
        for number in range(count):
            disk.posix.operations = 0
            disk.posix.dies_at = int(random.random() * random.choice(self.changes_max))
            life = self.new_life(disk, ledger, random)
            meddler = Meddler(self, life, chances(random) if meddled else None)
            try:
                life.begin()
                if not meddled and random.random() < 0.3:
                    life.let_a_guest_watch()
                while True:
                    random.choice(steps)(life)
                    meddler.between_steps()
            except PowerLost:
                meddler.leave()
                disk = disk.after_kill() if random.random() < 0.3 else disk.after_power_cut(random)
                self._is_new(disk, ledger)
            except BrokenPromiseError as error:
                error.add_note(f"in life {number} of seed {self.seed}/{seed}")
                raise
        self._judge(disk, ledger, random, self.guests_first)
        self.acknowledged += ledger.acknowledged

    def every_fault(self, sequence: Sequence[str], kind: str, *, always: bool) -> None:
        """Make each system call of this sequence fail in turn; then cut the power too."""
        with undisturbed():
            calls = self._with_fault(sequence, kind, None)[0].posix.trace
            for at in [at for at, call in enumerate(calls) if call in FAILING[kind]]:
                random = Random(f"{self.seed}/{sequence}/{kind}/{at}")
                disk, ledger = self._with_fault(sequence, kind, Fault(kind, at, always))
                # No guests: they cannot know that the cache shows what a failed sync has lost.
                self._judge(disk.after_power_cut(random), ledger.copy(), random)
                disk = disk.after_kill()
                self._judge(disk, ledger, random)
                self._judge(disk.after_power_cut(random), ledger, random)  # it was shown: durable

    def every_meddling(
        self, sequence: Sequence[str], kind: str, *, locks_directories: bool = True
    ) -> None:
        """Have another process interfere, in turn, at each change and between any two steps.

        `kind` is one of holdfast.testing.meddler.KINDS.  The power may fail at any later change.
        """
        with undisturbed():
            for at in count():
                try:
                    if not self._meddled(sequence, kind, at, locks_directories=locks_directories):
                        return
                except Exception as error:
                    error.add_note(f"in {sequence}, {kind} at {at}, {locks_directories=}")
                    raise

    def _meddled(
        self, sequence: Sequence[str], kind: str, at: int, *, locks_directories: bool
    ) -> bool:
        """Run one life.  False if it ended before turn number `at`."""
        disk, ledger = SimDisk(), self.new_ledger()
        random = Random(f"{self.seed}/{sequence}/{kind}/{at}")
        life = self.new_life(disk, ledger, random)
        turns = count()
        meddler = Meddler(self, life, lambda: kind if next(turns) == at else None)

        def crash() -> None:
            if meddler.has_acted and random.random() < _CRASHES_AFTER_MEDDLING:
                self._outlive(ledger, disk.after_power_cut(random), random)

        disk.posix.fired, disk.posix.locks_directories = self.fired, locks_directories
        disk.posix.witness = crash
        life.begin()
        for name in sequence:
            self.steps()[name](life)
            meddler.between_steps()
        life.look()
        meddler.leave()
        self._judge(disk.after_kill(), ledger, random)
        return next(turns) > at

    def _with_fault(
        self, sequence: Sequence[str], kind: str, fault: Fault | None
    ) -> tuple[SimDisk, Ledger]:
        """Run one life, the same each time until the fault fires."""
        disk, ledger = SimDisk(), self.new_ledger()
        disk.posix.fired, disk.posix.fault = self.fired, fault
        life = self.new_life(disk, ledger, Random(f"{self.seed}/{sequence}/{kind}"))
        try:
            life.begin()
            for name in sequence:
                self.steps()[name](life)
        except (OSError, HoldfastError):
            if fault is None:
                raise
            # It raised an error, as it must.
        return disk, ledger

    def _outlive(self, ledger: Ledger, disk: SimDisk, random: Random) -> bool:
        """Recover; sometimes die once more inside recovery, and recover again.

        False if the same image was recovered before.
        """
        if not self._is_new(disk, ledger):
            return False
        ledger = ledger.copy()  # of one of many futures
        if random.random() < 0.3:
            disk.posix.operations = 0
            disk.posix.dies_at = int(random.random() * self.recovery_changes_max)
            second = self.new_life(disk, ledger, random)
            try:
                second.begin()
                second.go_on()
            except PowerLost:
                pass
            disk = disk.after_power_cut(random) if random.random() < 0.7 else disk.after_kill()
            self._is_new(disk, ledger)
        self._judge(disk, ledger, random, self.guests_first)
        return True

    def _judge(self, disk: SimDisk, ledger: Ledger, random: Random, guests: float = 0.0) -> None:
        life = self.new_life(disk, ledger, random)
        if guests and random.random() < guests:
            life.look_as_guest()  # it sees the same before recovery
        life.begin()
        if random.random() < 0.2:
            life.go_on()
            life.look()
        life.vanish()

    def _is_new(self, disk: SimDisk, ledger: Ledger) -> bool:
        """Count an image, once for each set of promises."""
        self.drawn += 1
        image = hash((image_of(disk.posix._root), ledger.key()))
        if image in self._seen:
            return False
        self._seen.add(image)
        return True
