"""Contenders side by side in one run: interleaved, shuffled, and compared by medians.

Absolute times depend on the machine and its neighbours; ratios within one run hardly do.
"""

import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.growth import Curve

RESULTS = Path(__file__).parent / "results"
Clock = Callable[[], float]


@dataclass
class Measure:
    """One question, the answers of all contenders, and what was hoped for."""

    name: str
    unit: str  # of the median
    medians: dict[str, float]
    spreads: dict[str, float]  # half the distance between the quartiles, over the median
    ours: str = "holdfast"
    higher_is_better: bool = False
    aims: dict[str, float] = field(default_factory=dict)  # our ratio to a contender, at least

    def ratio(self, other: str) -> float:
        """How many times better we are than `other`."""
        ours, theirs = self.medians[self.ours], self.medians[other]
        return ours / theirs if self.higher_is_better else theirs / ours


def race(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    clock: Clock = time.perf_counter,
    per: float = 1.0,
    warm_up: int = 1,
) -> tuple[dict[str, float], dict[str, float]]:
    """Call all of them `rounds` times, in a new order each time; medians and spreads."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for number in range(-warm_up, rounds):
        random.shuffle(order)
        for name in order:
            started = clock()
            contenders[name]()
            if number >= 0:
                times[name].append((clock() - started) / per)
    medians = {name: statistics.median(found) for name, found in times.items()}
    spreads = {}
    for name, found in times.items():
        low, _, high = statistics.quantiles(found, n=4) if len(found) > 1 else (0.0, 0.0, 0.0)
        spreads[name] = (high - low) / 2 / medians[name] if medians[name] else 0.0
    return medians, spreads


def machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
        "cpu": f"{os.cpu_count()} × {cpu}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def save(part: str, command: str, about: dict[str, str], found: Sequence[Measure | Curve]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{part}.json"
    document = {
        "part": part,
        "command": command,
        "machine": about,
        "measures": [asdict(each) for each in found if isinstance(each, Measure)],
        "curves": [asdict(each) for each in found if isinstance(each, Curve)],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def load(path: Path) -> tuple[dict[str, str], str, list[Measure], list[Curve]]:
    document = json.loads(path.read_text())
    measures = [Measure(**measure) for measure in document["measures"]]
    curves = [Curve(**curve) for curve in document.get("curves", ())]
    return document["machine"], document["command"], measures, curves
