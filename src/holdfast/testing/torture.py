"""Both proofs at once: simulated crashes on one core, real kills on another."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from holdfast.testing.explorer import BrokenPromiseError, Explorer, Subject
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.kills import KillRounds
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject

SUBJECTS: dict[str, Callable[[], Subject]] = {
    "shanghai": ShanghaiSubject,
    "raft-wal": RaftWalSubject,
    "file-log": FileLogSubject,
}
KINDS = ("lost", "invented", "hidden")
FAULTS = ("eio", "enospc", "short write", "sync eio")


@dataclass(slots=True)
class TortureReport:
    """The ledger.  Broken promises are counted by kind; zeros are what is hoped for."""

    format: str
    seed: int
    seconds: float
    images: int = 0  # distinct simulated disks from which the log was recovered
    images_drawn: int = 0  # ... of so many; what was seen before is not judged again
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


class Torture:
    """Crash one kind of log for a while.  The seed decides what is simulated, and in what order."""

    def __init__(self, format: str, directory: Path, seed: int) -> None:
        if format not in SUBJECTS:
            raise ValueError(f"no log format {format!r}; there are {', '.join(SUBJECTS)}")
        self._format, self._directory, self._seed = format, directory, seed
        self._explorer = Explorer(SUBJECTS[format](), seed=seed, images_per_point=22)
        self._random = Random(seed)
        self._report = TortureReport(format, seed, 0.0)
        self._fresh_log()

    def run(self, seconds: float, on_progress: Callable[[TortureReport], None]) -> TortureReport:
        started = time.monotonic()
        simulation = self._simulation()
        try:
            while (spent := time.monotonic() - started) < seconds:
                self._rounds.start()
                until = time.monotonic() + min(seconds - spent, 0.2 + 0.6 * self._random.random())
                while time.monotonic() < until:
                    self._try(next(simulation))
                    on_progress(self._count(started))
                self._try(self._kill)
                on_progress(self._count(started))
        finally:
            self._rounds.stop()
        return self._count(started)

    def _simulation(self) -> Iterator[Callable[[], None]]:
        """Small slices of work, without end: sequences, lives, faults."""
        explorer, random = self._explorer, self._random
        sequences = list(explorer.sequences(3))
        random.shuffle(sequences)
        for number in count():
            sequence = sequences[number % len(sequences)]
            yield partial(explorer.every_crash_point, sequence, number // len(sequences))
            for life in range(4):
                yield partial(explorer.lives, 4 * number + life)
            if number % 8 == 0:
                kind, for_ever = random.choice(FAULTS), random.random() < 0.5
                yield partial(explorer.every_fault, sequence, kind, for_ever=for_ever)

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
                self._fresh_log()  # the broken one is kept for a look at it

    def _fresh_log(self) -> None:
        path = self._directory / f"log-{len(self._report.failures)}"
        self._rounds = KillRounds(path, format=self._format, seed=self._seed)

    def _count(self, started: float) -> TortureReport:
        report, explorer = self._report, self._explorer
        report.seconds = time.monotonic() - started
        report.images, report.images_drawn = explorer.images, explorer.drawn
        report.simulated_acknowledged = explorer.acknowledged
        report.faults = dict(sorted(explorer.fired.items()))
        return report
