"""Kill the writer of a log again and again, and compare the log with what was acknowledged.

A line of the ledger counts what is lost (acknowledged, but missing or altered) and invented (in the
log, but never appended).  Entries in flight when the kill came may be there or not.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

import holdfast
from holdfast.demo import market
from holdfast.demo.writer import SEGMENT_SIZE_MAX
from holdfast.errors import HoldfastError
from holdfast.testing import BrokenPromiseError
from holdfast.testing.kills import KillRounds, Promises

KILLS_MIN = 2
WORK_SECONDS = (0.1, 1.0)  # how long a writer may append
EARLY_SHARE = 0.15  # of the writers are killed while they start
EARLY_SECONDS = (0.02, 0.3)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger, written after one kill."""

    TITLES = ("kill", "at", "acknowledged", "in flight", "found", "lost", "invented")

    kill: int
    at_seconds: float
    acknowledged: int  # in total, when the kill came
    in_flight: int  # beyond those
    found: int  # entries in the log after recovery
    lost: int
    invented: int


@dataclass(slots=True)
class Heard(Promises):
    """What the writers have said so far, and how long each append took."""

    latencies_us: list[int] = field(default_factory=list)

    def hear(self, line: str) -> None:
        Promises.hear(self, line)
        if line.startswith("ack"):
            self.latencies_us.append(int(line.split()[2]))


class Ledger(KillRounds):
    """What the writers of one log have acknowledged, and what the log holds."""

    def __init__(self, path: Path, seed: int, count: int, seconds: float) -> None:
        super().__init__(path, format="raft-wal", seed=seed)
        self.promises = self.heard = Heard()
        self.seconds, self.ticks = seconds, market.day(seed, count)
        self.lines: list[Line] = []

    def run(self, on_line: Callable[[Line], None] = lambda line: None) -> None:
        """Start a writer, kill it, recover and compare, until the whole day is durable.

        HoldfastError: a writer failed by itself.
        """
        holdfast.create_log(
            self.path, format=self.format, segment_size_max=SEGMENT_SIZE_MAX
        ).close()
        random, opened = Random(self.seed), time.monotonic()
        day = (self.path, self.seed, len(self.ticks), self.seconds, opened)
        try:
            while (
                time.monotonic() - opened < self.seconds
                or len(self.lines) < KILLS_MIN
                or self.heard.acknowledged < len(self.ticks)
            ):
                early = random.random() < EARLY_SHARE
                self.start(sys.executable, "-m", "holdfast.demo.writer", "log", *map(str, day))
                if not early:
                    self.hear(1)
                time.sleep(random.uniform(*(EARLY_SECONDS if early else WORK_SECONDS)))
                self.kill()
                on_line(self.compare(time.monotonic() - opened))
        except BrokenPromiseError as error:
            raise HoldfastError(f"{error}, see above") from error
        finally:
            self.stop()

    def compare(self, at_seconds: float = 0) -> Line:
        """Recover the log as the next owner would, and compare what is new since the last time."""
        heard = self.heard
        checked = self.lines[-1].found if self.lines else 0
        with holdfast.open_log(self.path) as log:
            found, altered = log.last_index, 0
            for batch in log.scan(checked + 1) if found > checked else ():
                entries = market.decode(batch["payload"])
                first = batch["index"][0].as_py() - 1
                altered += int(np.sum(entries != self.ticks[first : first + len(entries)]))
        line = Line(
            kill=len(self.lines) + 1,
            at_seconds=at_seconds,
            acknowledged=heard.acknowledged,
            in_flight=heard.in_flight - heard.acknowledged,
            found=found,
            lost=max(0, heard.acknowledged - found) + altered,
            invented=max(0, found - heard.in_flight),
        )
        self.lines.append(line)
        heard.acknowledged = heard.in_flight = (
            found  # durable now, and the next writer goes on here
        )
        return line
