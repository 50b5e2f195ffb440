"""A simulation of a kv store with all its users: writers that fence each other, readers, snapshots,
compactors, garbage collectors and bulk loads, on a network that fails.

    report = Simulation(7).run()             BrokenPromiseError, or what happened and how often
    Simulation(7, "two-phase").run()         the same on a store that ignores conditions

The seed decides everything: the same seed is the same run, call by call (`report.digest`).  The
promises and their checks are in kv_ledger.py (what is read) and kv_watch.py (what is stored); the
roles are in kv_roles.py.

Faults: those of sim_bucket.py; processes that are killed at any call; processes that are frozen
at any call, before or after it took effect, and continue a second or hours later, some with
clocks that stood still meanwhile (`pauses`); clocks that are wrong by up to an hour each way; hours
and days that pass at once.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from holdfast.bucket import Bucket, Patience, RetryingBucket
from holdfast.errors import CorruptError, HoldfastError
from holdfast.kv.gc import GcOptions
from holdfast.kv.plans import CompactionOptions
from holdfast.testing.actors import Killed, Process, Scheduler, SimulationReport
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kv_ledger import KvLedger, Write
from holdfast.testing.kv_roles import (
    Kept,
    Role,
    State,
    collector,
    compactor,
    historian,
    loader,
    reader,
    recoverer,
)
from holdfast.testing.kv_watch import WatchedBucket, WatchedRetrying, WatchedTwoPhase
from holdfast.testing.kv_writing import judge_at_last, writer
from holdfast.testing.sim_bucket import Call, Faults, SimBucket
from holdfast.testing.sim_records import SimRecords

Mode = Literal["native", "two-phase"]
MODES: tuple[Mode, ...] = ("native", "two-phase")

ROLES: dict[str, Role] = {
    "writer": writer,
    "reader": reader,
    "historian": historian,
    "compactor": compactor,
    "collector": collector,
    "loader": loader,
    "recoverer": recoverer,
}

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_BEFORE_CREATES = 4  # times as often: a process that wakes up then acts on old knowledge
# Everything so small that a few rows fill several SSTs, tasks and runs.
_TINY = CompactionOptions(
    wal_count=2, wal_size_max=2000, unit_count=3, sst_size=300, task_size=600, block_size=128
)
_STORM = Faults(refused=0.1, unsent=0.02, lost_answer=0.05, late=0.02, slow=0.03)


@dataclass(frozen=True, slots=True)
class Knobs:
    """The parameters of one simulation.  Rates are per call."""

    steps: int = 900
    faults: Faults = _STORM
    freezes: float = 0.01
    freeze_max_ms: float = 10 * _MINUTE_MS
    pauses: bool = False  # the clocks of a frozen process stand still
    sleepers: str = ""  # only processes whose names begin like this are frozen
    kills: float = 0.002
    leaps: float = 0.001
    skew_ms: int = _HOUR_MS
    gc_min_age_ms: int = 10_000
    snapshot_ttl_ms: int = _MINUTE_MS
    other_age_ms: int = _HOUR_MS
    fence_age_ms: int = 30 * 24 * _HOUR_MS
    parallel_max: int = 3
    ordered_acks: bool = True
    patience_ms: int = _MINUTE_MS
    writers: int = 3
    peace_ms: int = 30_000  # the most between two writers' lives
    roles: tuple[str, ...] = tuple(name for name in ROLES if name != "writer")  # once each

    @classmethod
    def drawn(cls, random: Random) -> "Knobs":
        """Draw the parameters from a seed: some have good networks and bad clocks, some the
        opposite.
        """
        storm = random.choice([0.0, 0.5, 1.0, 1.0])
        faults = Faults(0.1 * storm, 0.02 * storm, 0.05 * storm, 0.02 * storm, 0.03)
        return cls(
            steps=random.choice([500, 1000, 2000]),
            faults=faults,
            freezes=random.choice([0.0, 0.005, 0.02]),
            freeze_max_ms=random.choice([5_000, 2 * _MINUTE_MS, 4 * _HOUR_MS]),
            kills=random.choice([0.0, 0.002, 0.01]),
            leaps=random.choice([0.0, 0.001, 0.004]),
            skew_ms=random.choice([0, 1000, _HOUR_MS]),
            gc_min_age_ms=random.choice([0, 0, 1000, 20_000]),
            snapshot_ttl_ms=random.choice([5_000, _MINUTE_MS]),
            other_age_ms=random.choice([0, _MINUTE_MS]),
            parallel_max=random.choice([1, 2, 4]),
            ordered_acks=random.random() < 0.75,
            patience_ms=random.choice([300, 10_000, _MINUTE_MS]),
            writers=random.choice([1, 2, 3]),
            peace_ms=random.choice([2_000, 30_000, 300_000]),
            pauses=random.random() < 0.5,
        )


class Simulation:
    """One simulation, for one run."""

    def __init__(self, seed: int, mode: Mode = "native", knobs: Knobs | None = None) -> None:
        self.seed, self.mode = seed, mode
        self.random = Random(f"{mode} {seed}")
        self._is_chosen = knobs is not None
        self.knobs = knobs or Knobs.drawn(self.random)
        self.scheduler = Scheduler(
            self.random,
            tick_ms=self.random.choice([2.0, 20.0, 200.0]),
            sticky=self.random.choice([0.1, 0.5, 0.8]),
        )
        self.ledger = KvLedger(ordered_acks=self.knobs.ordered_acks)
        self.events = self.scheduler.fired
        self.epochs: set[int] = set()
        self.kept: list[Kept] = []
        self.contents: dict[int, State] = {}  # of manifests that were read, which never change
        self.loads: dict[int, Write] = {}  # by batch
        self.batch = 1
        self.is_calm = False  # from then on nothing fails, so that all roles can end
        store_skew_ms = self._skew()
        native = mode == "native"
        self.store = SimBucket(Random(f"store {seed}"), self.knobs.faults, enforces=native)
        self.truth = self.store.truth = WatchedBucket(
            clock=lambda: int(self.scheduler.ms) + store_skew_ms,
            report=self.broken,
            events=self.events,
            unique_ids=not native,
        )
        self.records = SimRecords(Random(f"records {seed}"), self.knobs.faults)
        for line in (self.store.line, self.records.line):
            line.before_each, line.after_each, line.pause = self._before, self._after, self._pause

    def run(self) -> SimulationReport:
        """Run all lives, and check the store at the end."""
        for number, name in enumerate(("writer",) * self.knobs.writers + self.knobs.roles):
            if name != "recoverer" or self.mode == "two-phase":
                self._live(f"{name}-{number}", ROLES[name], life=1)
        with _Listening(self):
            try:
                self.scheduler.run()
                self._calm_down()
                self._live("judge", judge_at_last, life=0)
                self.scheduler.run()
            except Exception as error:
                self._explain(error)
        return SimulationReport(
            self.seed,
            self.scheduler.steps,
            self.ledger.acknowledged,
            self.events["judged"],
            self.scheduler.digest,
            dict(sorted((self.events + self.store.fired + self.records.fired).items())),
            self.mode,
        )

    # For roles

    @property
    def is_over(self) -> bool:
        """Return whether the roles should end."""
        return self.is_calm or self.scheduler.steps >= self.knobs.steps

    def bucket(self, process: Process) -> Bucket:
        """Return the bucket of one process."""
        patience = Patience(
            budget_ms=self.knobs.patience_ms,
            monotonic=lambda: self.scheduler.ms / 1000,
            sleep=lambda seconds: self.scheduler.sleep(seconds * 1000),
            dice=self.random.random,
        )
        bucket: WatchedRetrying | WatchedTwoPhase = WatchedRetrying(self.store, patience)
        if self.mode == "two-phase":
            plain, new_id = RetryingBucket(self.store, patience), self.scheduler.new_id
            bucket = WatchedTwoPhase(plain, self.records, patience=patience, new_id=new_id)
        bucket.truth, bucket.events = self.truth, self.events
        return bucket

    @property
    def compaction(self) -> CompactionOptions:
        return replace(_TINY, wal_count=self.random.choice([1, 2, 4]))

    @property
    def gc(self) -> GcOptions:
        # Two clocks may be wrong in opposite ways; and expiry is in whole seconds.
        knobs = self.knobs
        return GcOptions(2 * knobs.skew_ms, knobs.other_age_ms, knobs.fence_age_ms)

    def broken(self, kind: str, what: str) -> None:
        """End the simulation: a promise was broken."""
        self.scheduler.fail(BrokenPromiseError(kind, what))

    # What happens at a call

    def _before(self, call: Call) -> None:
        self.scheduler.step(f"{call.verb} {' '.join(call.names)}")
        self._strike("before", call)

    def _after(self, call: Call) -> None:
        self._strike("after", call)

    def _pause(self, call: Call) -> None:
        self.scheduler.sleep(self.random.random() ** 4 * 60_000)

    def _strike(self, when: str, call: Call) -> None:
        me = self.scheduler.current
        if self.is_calm or me is None:
            return
        knobs, drawn = self.knobs, self.random.random()
        creates = when == "before" and call.verb in ("put_if_absent", "insert")
        freezes = knobs.freezes * (_BEFORE_CREATES if creates else 1)
        if not me.process.name.startswith(knobs.sleepers):
            freezes = 0.0
        if drawn < freezes:
            self.events[f"frozen {when} {call.verb}"] += 1
            self.events["frozen"] += 1
            delay_ms = self.random.random() ** 2 * knobs.freeze_max_ms
            self.scheduler.freeze(me.process, delay_ms, pause=knobs.pauses)
            self.scheduler.sleep(0)
        elif drawn < freezes + knobs.kills:
            self.events["killed"] += 1
            self.scheduler.kill(me.process)
            raise Killed
        elif drawn < freezes + knobs.kills + knobs.leaps:
            self.events["time leapt"] += 1
            self.scheduler.ms += self.random.choice([_MINUTE_MS, 5 * _HOUR_MS, 30 * _HOUR_MS])

    # Lives

    def _live(self, name: str, role: Role, life: int) -> None:
        """Run a role in a process; when it ends, start another, until the simulation is over."""
        process = Process(f"{name}.{life}", 0 if self.is_calm else self._skew())

        def play() -> None:
            try:
                role(self, process)
            finally:
                if life and not self.is_over and self.scheduler.failure is None:
                    self._live(name, role, life + 1)

        self.scheduler.spawn(process, "", play, main=True)

    def _skew(self) -> int:
        return int((2 * self.random.random() - 1) * self.knobs.skew_ms)

    def _calm_down(self) -> None:
        self.is_calm = True
        for line in (self.store.line, self.records.line):
            line.faults = Faults()
            line.settle()

    def _explain(self, error: Exception) -> None:
        """Raise the error with all that is needed to repeat the run."""
        broken = error
        if not isinstance(error, BrokenPromiseError):
            broken = BrokenPromiseError("broken", f"{type(error).__name__}: {error}")
        known = f"{self.seed}, {self.mode!r}" + (f", {self.knobs}" if self._is_chosen else "")
        broken.add_note(f"at step {self.scheduler.steps}; again: Simulation({known}).run()")
        raise broken from (error if broken is not error else None)


class _Listening(logging.Handler):
    """Check log messages of stores, too: some errors must not happen."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        errors = [found for found in record.args or () if isinstance(found, Exception)]
        for error in errors:
            if isinstance(error, CorruptError) or not isinstance(error, HoldfastError):
                self._simulation.broken("broken", f"in the log: {type(error).__name__}: {error}")

    def __enter__(self) -> None:
        logger = logging.getLogger("holdfast")
        self._before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        logger = logging.getLogger("holdfast")
        logger.removeHandler(self)
        logger.propagate = self._before[0]
        logger.setLevel(self._before[1])


def count(reports: Iterable[SimulationReport]) -> Counter[str]:
    """Count all events of several simulations."""
    total: Counter[str] = Counter()
    for report in reports:
        total.update(report.events)
    return total
