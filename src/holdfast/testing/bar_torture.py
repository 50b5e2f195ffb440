"""Writers of bars in a real directory, really killed; the next owner finds every round, once."""

import sys
from pathlib import Path

from holdfast.bars import BarStore, open_bars
from holdfast.errors import HoldfastError
from holdfast.testing.bar_writer import BARS, SYMBOLS, TICKS
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds


class BarKillRounds(KillRounds):
    """Start a writer, kill it, replay what it left; again and again on one root."""

    life_s = 1.0, 2.0  # what they import takes a while

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        super().__init__(directory, format="bars", seed=seed)

    def start(self, *command: str) -> None:
        life = f"{self.seed}{self.kills:04d}"
        writer = sys.executable, "-m", "holdfast.testing.bar_writer", str(self.path)
        super().start(*(command or writer), "--life", life)

    def check(self) -> None:
        """Take over as the next owner would, and compare all bars and ticks."""
        promises = self.promises
        try:
            with open_bars(self.path) as store:
                last = self._last_round(store)
        except HoldfastError as error:
            raise BrokenPromiseError("hidden", f"{type(error).__name__}: {error}") from error
        promises.hold(last, "round")
        promises.acknowledged = promises.in_flight = last

    def _last_round(self, store: BarStore) -> int:
        if store.damage:
            raise BrokenPromiseError("hidden", str(store.damage[0]))
        if not store.symbols("1Min", TICKS):
            return 0
        ticks: list[int] = store.query("A", "1Min", TICKS)["Price"].to_pylist()
        rounds = list(range(1, len(ticks) + 1))
        bars = store.query(SYMBOLS, "1Min", BARS)["Close"].to_pylist()
        if ticks != rounds or bars != len(SYMBOLS) * rounds:
            raise BrokenPromiseError("lost", f"{len(ticks)} ticks, {len(bars)} bars do not agree")
        return len(ticks)
