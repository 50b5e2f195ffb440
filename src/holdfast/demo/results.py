"""What a run of the demo found, measured in that run: the report and --json are made from this."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.demo.bars import Bars
from holdfast.demo.rounds import Ack, Reckoning
from holdfast.reports import LogReport, VerifyReport


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of the stream."""

    number: int
    rows: int
    at_seconds: float  # since the stream began, when it had ended
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A Python worker of Spark's, killed with -9 while it worked."""

    pid: int
    batch: int
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Streaming:
    """What Spark made of the log, and how that compares with what was acknowledged."""

    seconds: float
    batches: tuple[Batch, ...]
    worker_kills: tuple[WorkerKill, ...]
    failed_tasks: int  # which Spark has then run again
    rows: int  # ticks that were landed
    distinct: int  # different ones among them
    bars: int
    bars_expected: int
    bars_differing: int  # wrong, missing or too many

    @property
    def doubled(self) -> int:
        return self.rows - self.distinct


@dataclass(frozen=True, slots=True)
class Run:
    """Everything.  `streaming` is None where Spark is missing, and `missing` then says what is."""

    seed: int
    seconds: float
    ticks: int
    ledger: tuple[Reckoning, ...]
    acks: tuple[Ack, ...]
    arrived: tuple[tuple[float, int], ...]  # seconds since the opening, ticks until then
    log: LogReport
    scrub: VerifyReport
    scrub_seconds: float
    streaming: Streaming | None
    missing: str | None
    bars: Bars
    total_seconds: float
    facts: dict[str, str]  # versions and the machine

    @property
    def acknowledged(self) -> int:
        return self.ledger[-1].acknowledged

    @property
    def lost(self) -> int:
        landed = self.streaming.distinct if self.streaming else self.acknowledged
        return sum(line.lost for line in self.ledger) + max(0, self.acknowledged - landed)

    @property
    def invented(self) -> int:
        landed = self.streaming.distinct if self.streaming else 0
        return sum(line.invented for line in self.ledger) + max(0, landed - self.ledger[-1].found)

    @property
    def doubled(self) -> int:
        return self.streaming.doubled if self.streaming else 0

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        wrong = self.lost or self.invented or self.doubled or self.scrub.verdict != "clean"
        return not wrong and not (self.streaming and self.streaming.bars_differing)

    @property
    def command(self) -> str:
        """What replays it: the same ticks, killed after the same times."""
        return f"holdfast demo --seed {self.seed} --seconds {self.seconds:g}"

    def latency_us(self, percent: float) -> float:
        """How long a durable append took, at most, in so many of a hundred cases."""
        return float(np.percentile([ack.latency_us for ack in self.acks] or [0], percent))

    def as_json(self) -> dict[str, Any]:
        """All but the bars and the single acknowledgements."""
        return {
            **{name: getattr(self, name) for name in ("held", "seed", "seconds", "ticks")},
            **{name: getattr(self, name) for name in ("acknowledged", "lost", "invented")},
            "doubled": self.doubled,
            "kills": len(self.ledger),
            "ledger": [asdict(line) for line in self.ledger],
            "appends": len(self.acks),
            "append_latency_us": {f"p{p:g}": self.latency_us(p) for p in (50, 90, 99, 99.9)},
            "log": {"size": self.log.size, "segments": [asdict(s) for s in self.log.segments]},
            "scrub": {"verdict": self.scrub.verdict, "seconds": self.scrub_seconds},
            "streaming": asdict(self.streaming) if self.streaming else None,
            "missing": self.missing,
            "total_seconds": self.total_seconds,
            "command": self.command,
            "facts": self.facts,
        }
