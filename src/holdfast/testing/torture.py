"""Both proofs at once: simulated crashes on one core, real processes on another.

Real writers are killed, and copies of what they leave are damaged; between them, owners are forked,
moved, robbed of their lock and run out of space.  A run proves something only if killed writers had
acknowledged something: `TortureReport.is_conclusive`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from holdfast.errors import HoldfastError
from holdfast.testing.bar_torture import BarKillRounds
from holdfast.testing.bars import BarExplorer
from holdfast.testing.damages import CLOSED, KILLED, OUTCOMES, Damages
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.kills import LIMIT_S, KillRounds
from holdfast.testing.kv_torture import KvKillRounds, KvSimulations
from holdfast.testing.logs import Explorer, Subject
from holdfast.testing.meddler import WAYS
from holdfast.testing.owners.rounds import OwnerRounds
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject

LOGS: dict[str, Callable[[], Subject]] = {
    "shanghai": ShanghaiSubject,
    "raft-wal": RaftWalSubject,
    "file-log": FileLogSubject,
}
STORES = ("kv", "bars")
KINDS = ("lost", "invented", "hidden", "broken")
FAULTS = ("eio", "enospc", "short write", "sync eio")
_KILLS_PER_LIFE = 3  # of an owner, which takes longer


@dataclass(slots=True)
class TortureReport:
    """The ledger.  Broken promises are counted by kind; zeros are what is hoped for."""

    format: str
    seed: int
    seconds: float
    images: int = 0  # distinct simulated disks from which a log was recovered
    images_drawn: int = 0  # ... of so many; what was seen before is not judged again
    steps: int = 0  # calls of a simulated object store
    judged: int = 0  # ... after which so many states of a store were compared
    simulated_acknowledged: int = 0
    kills: int = 0
    acknowledged: int = 0  # by writers that were then killed
    silent: int = 0  # writers that acknowledged nothing in LIMIT_S seconds
    lives: dict[str, int] = field(default_factory=dict)  # scenarios of owners that held
    impossible: tuple[str, ...] = ()  # scenarios that this machine does not permit
    damages: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    broken_simulated: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    broken_killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    faults: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.failures

    @property
    def is_conclusive(self) -> bool:
        """Whether something was judged, in the simulation and for real."""
        return bool(self.images or self.judged) and self.acknowledged > 0


class DiskCrashes:
    """Simulated crashes of one kind of log, or of bars."""

    def __init__(self, format: str, seed: int) -> None:
        self._explorer: Explorer | BarExplorer
        if format == "bars":
            self._explorer = BarExplorer(seed=seed, images_per_point=22)
        else:
            self._explorer = Explorer(LOGS[format](), seed=seed, images_per_point=22)
        self._random = Random(f"crashes {seed}")

    def slices(self) -> Iterator[Callable[[], None]]:
        """Sequences, lives, faults, and what other processes do."""
        explorer, random = self._explorer, self._random
        sequences = list(explorer.sequences(3))
        random.shuffle(sequences)
        for number in count():
            sequence = sequences[number % len(sequences)]
            yield partial(explorer.every_crash_point, sequence, number // len(sequences))
            for life in range(4):
                yield partial(explorer.lives, 4 * number + life, meddled=life == 3)
            if number % 8 == 0:
                kind, always = random.choice(FAULTS), random.random() < 0.5
                yield partial(explorer.every_fault, sequence, kind, always=always)
            if number % 16 == 4:
                kind, locks_directories = random.choice(WAYS)
                meddling = partial(explorer.every_meddling, sequence, kind)
                yield partial(meddling, locks_directories=locks_directories)

    def count(self, report: TortureReport) -> None:
        explorer = self._explorer
        report.images, report.images_drawn = explorer.images, explorer.drawn
        report.simulated_acknowledged = explorer.acknowledged
        report.faults = dict(sorted(explorer.fired.items()))


def kill_rounds(format: str, path: Path, seed: int) -> KillRounds:
    """Return the rounds of real kills of one kind of store, in a directory."""
    if format in STORES:
        return (KvKillRounds if format == "kv" else BarKillRounds)(path, seed=seed)
    return KillRounds(path, format=format, seed=seed)


class Torture:
    """Crash one kind of store for a while.  The seed decides what is simulated, and the order."""

    def __init__(self, format: str, directory: Path, seed: int) -> None:
        if format not in (*LOGS, *STORES):
            raise ValueError(f"no format {format!r}; there are {', '.join((*LOGS, *STORES))}")
        self._format, self._directory, self._seed = format, directory, seed
        self._crashes = KvSimulations(seed) if format == "kv" else DiskCrashes(format, seed)
        self._random = Random(seed)
        self._report = TortureReport(format, seed, 0.0)
        self._owners = OwnerRounds(format, directory, turn=seed)
        self._fresh_store()

    def run(self, seconds: float, on_progress: Callable[[TortureReport], None]) -> TortureReport:
        """Run for so long, and until the last writer has acknowledged something."""
        self._started = time.monotonic()
        self._stop, self._show = self._started + seconds, on_progress
        self._slices = self._crashes.slices()
        try:
            while time.monotonic() < self._stop:
                self._live_and_kill()
                if self._report.kills % _KILLS_PER_LIFE == 1 and time.monotonic() < self._stop:
                    self._owners.start()
                    self._simulate_while(lambda: self._owners.is_running)
                    self._try(self._owners.judge, real=True)
        finally:
            self._rounds.stop()
            self._owners.stop()
        return self._count()

    def _live_and_kill(self) -> None:
        rounds = self._rounds
        rounds.start()
        limit = time.monotonic() + LIMIT_S
        self._simulate_while(
            lambda: not (rounds.acknowledges(0) or rounds.has_ended) and time.monotonic() < limit
        )
        if not rounds.acknowledges(0) and not rounds.has_ended:
            self._report.silent += 1
            rounds.stop()
            return
        until = min(self._stop, time.monotonic() + rounds.life_s * self._random.random())
        self._simulate_while(lambda: time.monotonic() < until)
        self._try(self._kill, real=True)

    def _simulate_while(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            if time.monotonic() < self._stop:
                self._try(next(self._slices))
            else:
                time.sleep(0.01)  # the time is over: only what is real is waited for
            self._show(self._count())

    def _kill(self) -> None:
        self._rounds.kill()
        self._report.kills += 1
        self._report.acknowledged += self._rounds.acknowledged
        self._damages.one(KILLED)
        self._rounds.check()
        self._damages.one(CLOSED)

    def _try(self, step: Callable[[], None], *, real: bool = False) -> None:
        try:
            step()
        except (BrokenPromiseError, HoldfastError) as error:
            broken = self._report.broken_killed if real else self._report.broken_simulated
            broken[getattr(error, "kind", "hidden")] += 1  # a store that refuses to go on hides
            notes = " ".join(getattr(error, "__notes__", []))
            self._report.failures.append(f"{error} {notes}".strip())
            if real:
                self._fresh_store()  # the broken one is kept for a look at it

    def _fresh_store(self) -> None:
        path = self._directory / f"store-{len(self._report.failures)}"
        self._rounds = kill_rounds(self._format, path, self._seed)
        self._damages = Damages(self._rounds, self._random, self._report.damages)

    def _count(self) -> TortureReport:
        self._report.seconds = time.monotonic() - self._started
        self._report.lives = dict(self._owners.counts)
        self._report.impossible = self._owners.impossible
        self._crashes.count(self._report)
        return self._report
