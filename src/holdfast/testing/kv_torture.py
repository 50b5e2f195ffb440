"""Both tests of a kv store: simulations with all roles, and real writers that are killed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.doors import open_kv, read_kv
from holdfast.kv import Kv
from holdfast.testing.kills import KillRounds, Rows, refuse_damage
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
    """Kill real writers of a store in a real directory; the next writer must find every round."""

    what = "round"

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        super().__init__(directory, format="kv", seed=seed)

    def start(self, *command: str) -> None:
        life, parallel = f"{self.seed}{self.kills:04d}", 1 + self.kills % 3
        super().start(
            *(command or (sys.executable, "-m", "holdfast.testing.kv_writer", str(self.path))),
            *("--life", life, "--parallel", str(parallel)),
        )

    def contents(self, path: Path, *, owner: bool, first: int = 1) -> tuple[int, Rows]:
        with _open(path) if owner else read_kv(str(path)) as store:
            refuse_damage(store, owner=owner)
            rows = dict(store.items(start=round_key(first), prefix=b"round/"))
            return int(store.get(COUNTER) or 0), {**rows}

    def rows(self, first: int, last: int) -> Rows:
        return {round_key(number): round_value(number) for number in range(first, last + 1)}


def _open(path: Path) -> Kv:
    return open_kv(str(path), create=True, flush_ms=None, watch_ms=None, maintain=False)
