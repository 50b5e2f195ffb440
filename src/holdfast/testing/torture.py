"""Both proofs at once: simulated crashes on one core, real kills on another."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from holdfast.testing.bar_torture import BarKillRounds
from holdfast.testing.bars import BarExplorer
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.kills import KillRounds
from holdfast.testing.kv_torture import KvKillRounds, KvSimulations
from holdfast.testing.logs import Explorer, Subject
from holdfast.testing.meddler import WAYS
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
    broken_simulated: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    broken_killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    faults: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.failures


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
                kind, for_ever = random.choice(FAULTS), random.random() < 0.5
                yield partial(explorer.every_fault, sequence, kind, for_ever=for_ever)
            if number % 16 == 4:
                kind, locks_directories = random.choice(WAYS)
                meddling = partial(explorer.every_meddling, sequence, kind)
                yield partial(meddling, locks_directories=locks_directories)

    def count(self, report: TortureReport) -> None:
        explorer = self._explorer
        report.images, report.images_drawn = explorer.images, explorer.drawn
        report.simulated_acknowledged = explorer.acknowledged
        report.faults = dict(sorted(explorer.fired.items()))


class Torture:
    """Crash one kind of store for a while.  The seed decides what is simulated, and the order."""

    def __init__(self, format: str, directory: Path, seed: int) -> None:
        if format not in (*LOGS, *STORES):
            raise ValueError(f"no format {format!r}; there are {', '.join((*LOGS, *STORES))}")
        self._format, self._directory, self._seed = format, directory, seed
        self._crashes = KvSimulations(seed) if format == "kv" else DiskCrashes(format, seed)
        self._random = Random(seed)
        self._report = TortureReport(format, seed, 0.0)
        self._fresh_store()

    def run(self, seconds: float, on_progress: Callable[[TortureReport], None]) -> TortureReport:
        started = time.monotonic()
        slices = self._crashes.slices()
        try:
            while (spent := time.monotonic() - started) < seconds:
                self._rounds.start()
                least_s, most_s = self._rounds.life_s
                life_s = least_s + (most_s - least_s) * self._random.random()
                until = time.monotonic() + min(seconds - spent, life_s)
                while time.monotonic() < until:
                    self._try(next(slices))
                    on_progress(self._count(started))
                self._try(self._kill)
                on_progress(self._count(started))
        finally:
            self._rounds.stop()
        return self._count(started)

    def _kill(self) -> None:
        before = self._rounds.promises.acknowledged
        self._rounds.kill()
        self._report.kills += 1
        self._report.acknowledged += self._rounds.promises.acknowledged - before
        self._rounds.check()

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BrokenPromiseError as error:
            killed = step == self._kill
            broken = self._report.broken_killed if killed else self._report.broken_simulated
            broken[error.kind] += 1
            notes = " ".join(getattr(error, "__notes__", []))
            self._report.failures.append(f"{error} {notes}".strip())
            if killed:
                self._fresh_store()  # the broken one is kept for a look at it

    def _fresh_store(self) -> None:
        number = len(self._report.failures)
        if self._format in STORES:
            rounds = KvKillRounds if self._format == "kv" else BarKillRounds
            path = self._directory / f"store-{number}"
            self._rounds: KillRounds = rounds(path, seed=self._seed)
        else:
            path = self._directory / f"log-{number}"
            self._rounds = KillRounds(path, format=self._format, seed=self._seed)

    def _count(self, started: float) -> TortureReport:
        self._report.seconds = time.monotonic() - started
        self._crashes.count(self._report)
        return self._report
