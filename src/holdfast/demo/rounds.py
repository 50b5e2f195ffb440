"""The feed is killed with -9 again and again, and after each kill the books are compared.

On one side what the feed had acknowledged, as read from its pipe; on the other what the log holds
after recovery.  A line of the ledger says what was lost (acknowledged, but not there, or not what
was appended) and invented (there, but never appended).  Entries that were being appended when the
kill came may be there or not: nobody was promised anything.
"""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from holdfast.demo import ticks
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError
from holdfast.logs.log import Log
from holdfast.logs.open import FORMATS
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds, Promises

FORMAT = "shanghai"
WORK_SECONDS = (0.1, 1.0)  # how long a feed may append
KILLS_MIN = 2  # on a machine so slow that the day is over before
EARLY_SHARE = 0.15  # of the feeds are killed while they start
EARLY_SECONDS = (0.02, 0.3)


@dataclass(frozen=True, slots=True)
class Ack:
    at_seconds: float  # since the market opened
    last: int  # all up to this entry are durable
    latency_us: int


@dataclass(frozen=True, slots=True)
class Reckoning:
    """One line of the ledger, written after one kill."""

    kill: int
    at_seconds: float
    acknowledged: int  # in all, when the kill came
    in_flight: int  # besides
    found: int  # entries in the log after recovery
    lost: int
    invented: int
    mended: tuple[str, ...]  # what recovery did

    @property
    def held(self) -> bool:
        return not self.lost and not self.invented


@dataclass(slots=True)
class Heard(Promises):
    """What the feed has said, and when."""

    opened: float = 0.0
    acks: list[Ack] = field(default_factory=list)

    def hear(self, line: str) -> None:
        Promises.hear(self, line)
        word, *numbers = line.split() or [""]
        if word == "ack":
            at_seconds = time.monotonic() - self.opened
            self.acks.append(Ack(at_seconds, int(numbers[0]), int(numbers[1])))


class FeedRounds:
    """One day, written to one log by many short-lived feeds."""

    def __init__(self, directory: Path, seed: int, count: int, seconds: float) -> None:
        self.path, self.seed, self.seconds = directory, seed, seconds
        self.market = ticks.day(seed, count)
        self.heard = Heard()
        self.ledger: list[Reckoning] = []
        self._rounds = KillRounds(directory, format=FORMAT, seed=seed)
        self._rounds.promises = self.heard
        self._random = Random(seed)
        self._opened_ns = 0

    def run(self, on_progress: Callable[[Reckoning], None] = lambda line: None) -> None:
        """Play the day; the last feed may finish it, and is killed then."""
        self._opened_ns = time.monotonic_ns()
        self.heard.opened = self._opened_ns / 1e9
        try:
            while self._elapsed() < self.seconds or len(self.ledger) < KILLS_MIN:
                self._start()
                self._kill(self._life())
                on_progress(self._reckon())
            if self.heard.acknowledged < len(self.market):
                self._start()
                while self.heard.acknowledged < len(self.market) and self._rounds.hear(1):
                    pass
                self._kill(0)
                on_progress(self._reckon())
        finally:
            self._rounds.stop()

    def arrived(self, points: int = 200) -> tuple[tuple[float, int], ...]:
        """How many ticks the market had sent, at some moments of its day."""
        moments = np.linspace(0, self.seconds, points + 1)
        counts = np.searchsorted(ticks.arrivals(self.market, self.seconds), moments, "right")
        return tuple(zip(moments.tolist(), counts.tolist(), strict=True))

    def _life(self) -> float:
        """How long from now, most often after the first word: starting takes its own time."""
        if self._random.random() < EARLY_SHARE:
            return self._random.uniform(*EARLY_SECONDS)
        self._rounds.hear(1)
        return self._random.uniform(*WORK_SECONDS)

    def _elapsed(self) -> float:
        return (time.monotonic_ns() - self._opened_ns) / 1e9

    def _start(self) -> None:
        self._rounds.start(
            *(sys.executable, "-m", "holdfast.demo.feed", str(self.path), "--format", FORMAT),
            *("--seed", str(self.seed), "--count", str(len(self.market))),
            *("--seconds", str(self.seconds), "--opened-ns", str(self._opened_ns)),
        )

    def _kill(self, after_seconds: float) -> None:
        try:
            self._rounds.kill(after_seconds)
        except BrokenPromiseError as error:
            raise HoldfastError(f"the feed failed, see above: {error}") from error

    def _reckon(self) -> Reckoning:
        """Recover as the next owner would, and compare every entry that is new since last time."""
        heard, at_seconds = self.heard, self._elapsed()
        checked = self.ledger[-1].found if self.ledger else 0
        with closing(FORMATS[FORMAT].open(OsDisk(self.path))) as log:
            found = log.last_index
            altered = self._altered(log, checked + 1)
            mended = tuple(getattr(log, "mended", ()))
        line = Reckoning(
            kill=self._rounds.kills,
            at_seconds=at_seconds,
            acknowledged=heard.acknowledged,
            in_flight=heard.in_flight - heard.acknowledged,
            found=found,
            lost=max(0, heard.acknowledged - found) + altered,
            invented=max(0, found - heard.in_flight),
            mended=mended,
        )
        self.ledger.append(line)
        heard.acknowledged = heard.in_flight = found  # it is durable now, and the next one knows
        return line

    def _altered(self, log: Log, start: int) -> int:
        """How many entries are not the ticks that were appended."""
        altered = 0
        for batch in log.scan(start) if log.last_index >= start else ():
            first = int(batch["index"][0].as_py())
            there = ticks.decode(batch["payload"])
            altered += int(np.sum(there != self.market[first - 1 : first - 1 + len(there)]))
        return altered
