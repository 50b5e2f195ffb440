"""What a run of the demo measured.  The console, the report and --json show the same sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.demo.ledger import Line


class Promise(NamedTuple):
    """Whether a promise held, and what was measured."""

    held: bool
    text: str


Measured = tuple[dict[str, Any], list[Promise]]  # the figures of an act by name, and its promises


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its figures by name, and the promises that they prove or break.

    `lost`, `invented` and `doubled` are counted over all acts.
    """

    name: str
    title: str
    figures: dict[str, Any]
    promises: Sequence[Promise]


@dataclass(frozen=True, slots=True)
class Run:
    """Everything.  Without Spark, `missing` says why, and its acts are left out."""

    seed: int
    seconds: float
    ledger: Sequence[Line]
    acts: Sequence[Act]
    bars: pa.Table
    missing: str | None
    total_seconds: float
    facts: dict[str, str]  # versions and the machine

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        return all(promise.held for act in self.acts for promise in act.promises)

    @property
    def command(self) -> str:
        """The command that repeats the run: the same ticks, killed after the same times."""
        return f"holdfast demo --seed {self.seed} --seconds {self.seconds:g}"

    @property
    def counts(self) -> dict[str, int]:
        """What was acknowledged, and how much of it all acts together found wrong."""
        wrong = ("lost", "invented", "doubled")
        sums = {name: sum(act.figures.get(name, 0) for act in self.acts) for name in wrong}
        return {"acknowledged": self.ledger[-1].acknowledged, **sums}

    def as_json(self) -> dict[str, Any]:
        """Return everything but the bars and the single acknowledgements."""
        plain = ("held", "seed", "seconds", "missing", "total_seconds", "command", "facts")
        return {
            **{name: getattr(self, name) for name in plain},
            **self.counts,
            "ledger": [asdict(line) for line in self.ledger],
            **{act.name: act.figures for act in self.acts},
        }


def judge_kills(ledger: Sequence[Line], latencies_us: Sequence[int]) -> Measured:
    """Judge the ledger of the kills."""
    sums = {name: sum(getattr(line, name) for line in ledger) for name in ("lost", "invented")}
    p50, p99 = np.percentile(latencies_us or [0], (50, 99)) / 1000
    count, kills, acknowledged = len(latencies_us), len(ledger), ledger[-1].acknowledged
    found = "".join(f", {name} {number:,}" for name, number in sums.items())
    return {"kills": kills, **sums, "appends": count, "p50_ms": p50, "p99_ms": p99}, [
        Promise(
            not any(sums.values()), f"killed {kills} times: acknowledged {acknowledged:,}{found}"
        ),
        Promise(count > 0, f"{count:,} synced appends: p50 {p50:.2f} ms, p99 {p99:.2f} ms"),
    ]
