"""What a run of the demo found, measured in that run: the report and --json are made from this."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.demo.bars import Bars
from holdfast.demo.history import Moment
from holdfast.demo.rounds import Ack, Reckoning
from holdfast.reports import LogReport


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
    rows: int  # ticks that all bars together count
    bars: int
    bars_differing: int  # wrong, missing or too many
    prices: int
    prices_differing: int


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The kv store, compacted by Spark and then swept."""

    rows_read: int
    rows_written: int
    tasks: int
    compact_seconds: float
    objects_before: int
    objects_after: int
    deleted: int
    sweep_seconds: float
    rows_differing: int  # between what was read before and after
    snapshot: int  # the manifest that was kept from before
    snapshot_differing: int  # rows of it, read when all is done


@dataclass(frozen=True, slots=True)
class Rollup:
    """Longer bars, made of the minutes by Spark."""

    bars: dict[str, int]  # by timeframe
    differing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Scrub:
    """One store, every checksum of it."""

    what: str
    amount: str
    verdict: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Fencing:
    """A writer that was frozen, and what became of it.  Moments are seconds since it started."""

    epoch: int
    successor: int  # the epoch of who took over
    acknowledged: int
    lost: int
    stray: int  # rows that it wrote after another had taken over, and that can be read
    why: str  # what it was told
    latencies_us: tuple[int, ...]  # of its durable puts
    opened_at: float
    frozen_at: float
    taken_at: float
    woken_at: float
    fenced_at: float


@dataclass(frozen=True, slots=True)
class Stores:
    """What took place in the stores that Spark fills."""

    streaming: Streaming
    upkeep: Upkeep
    rollup: Rollup
    fencing: Fencing
    history: tuple[Moment, ...]  # the kv store's manifests

    @property
    def held(self) -> bool:
        wrong = (
            *(self.streaming.bars_differing, self.streaming.prices_differing),
            *(self.upkeep.rows_differing, self.upkeep.snapshot_differing),
            self.rollup.differing,
            *(self.fencing.lost, self.fencing.stray, self.fencing.successor <= self.fencing.epoch),
        )
        return not any(wrong)


@dataclass(frozen=True, slots=True)
class Run:
    """Everything.  `stores` is None where Spark is missing, and `missing` then says what is."""

    seed: int
    seconds: float
    ticks: int
    ledger: tuple[Reckoning, ...]
    acks: tuple[Ack, ...]
    arrived: tuple[tuple[float, int], ...]  # seconds since the opening, ticks until then
    log: LogReport
    scrubs: tuple[Scrub, ...]
    stores: Stores | None
    missing: str | None
    bars: Bars
    total_seconds: float
    facts: dict[str, str]  # versions and the machine

    @property
    def acknowledged(self) -> int:
        return self.ledger[-1].acknowledged

    @property
    def lost(self) -> int:
        landed = self.stores.streaming.rows if self.stores else self.acknowledged
        fenced = self.stores.fencing.lost if self.stores else 0
        missing = max(0, self.acknowledged - landed)
        return sum(line.lost for line in self.ledger) + missing + fenced

    @property
    def invented(self) -> int:
        stray = self.stores.fencing.stray if self.stores else 0
        return sum(line.invented for line in self.ledger) + stray

    @property
    def doubled(self) -> int:
        landed = self.stores.streaming.rows if self.stores else 0
        return max(0, landed - self.ledger[-1].found)

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        wrong = self.lost or self.invented or self.doubled
        clean = all(scrub.verdict == "clean" for scrub in self.scrubs)
        return not wrong and clean and (self.stores is None or self.stores.held)

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
            "scrubs": [asdict(scrub) for scrub in self.scrubs],
            "stores": asdict(self.stores) if self.stores else None,
            "missing": self.missing,
            "total_seconds": self.total_seconds,
            "command": self.command,
            "facts": self.facts,
        }
