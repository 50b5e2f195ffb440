"""Both proofs of a kv store: simulations of all who use one, and writers that are really killed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.kv import Db
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds
from holdfast.testing.kv_simulation import MODES, Mode, Simulation
from holdfast.testing.kv_writer import COUNTER, round_key, round_value

if TYPE_CHECKING:
    from holdfast.testing.torture import TortureReport

FAULTS = ("refused", "unsent", "lost answer", "late", "slow", "frozen", "killed", "time leapt")
_SEEDS = 10**6  # of simulations, for each seed of a torture


class KvSimulations:
    """One simulation after the other, in both ways to create objects."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._steps = self._acknowledged = self._judged = 0
        self._fired: Counter[str] = Counter()

    def slices(self) -> Iterator[Callable[[], None]]:
        for number in count():
            for mode in MODES:
                yield partial(self._simulate, _SEEDS * self._seed + number, mode)

    def count(self, report: "TortureReport") -> None:
        report.steps, report.judged = self._steps, self._judged
        report.simulated_acknowledged = self._acknowledged
        report.faults = dict(self._fired)

    def _simulate(self, seed: int, mode: Mode) -> None:
        report = Simulation(seed, mode).run()
        self._steps += report.steps
        self._acknowledged += report.acknowledged
        self._judged += report.judged
        self._fired.update({name: report.events.get(name, 0) for name in FAULTS})


class KvKillRounds(KillRounds):
    """Writers of a store in a real directory, killed in turn; the next owner finds all there."""

    life_s = 1.5, 3.0  # what they import takes a while

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        super().__init__(directory, format="kv", seed=seed)

    def start(self, *command: str) -> None:
        life, parallel = f"{self.seed}{self.kills:04d}", 1 + self.kills % 3
        super().start(
            *(command or (sys.executable, "-m", "holdfast.testing.kv_writer", str(self.path))),
            *("--life", life, "--parallel", str(parallel)),
        )

    def check(self) -> None:
        """Take over as the next owner would, and compare every round that is new."""
        promises, first = self.promises, self._checked + 1
        try:
            with Db.open(str(self.path), flush_ms=None, watch_ms=None, maintain=False) as db:
                last = int(db.get(COUNTER) or 0)
                rounds = dict(db.items(start=round_key(first), prefix=b"round/"))
        except HoldfastError as error:
            raise BrokenPromiseError("hidden", f"{type(error).__name__}: {error}") from error
        promises.hold(last, "round")
        if rounds != {round_key(number): round_value(number) for number in range(first, last + 1)}:
            raise BrokenPromiseError("lost", f"rounds {first} to {last} are not what was written")
        self._checked = promises.acknowledged = promises.in_flight = last
