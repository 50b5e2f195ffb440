"""Kill real writers of bars in a real directory; the next owner must find every round, once."""

import sys
from pathlib import Path

from holdfast.doors import open_bars, read_bars
from holdfast.testing.bar_writer import BARS, SYMBOLS, TICKS
from holdfast.testing.kills import KillRounds, Rows, refuse_damage


class BarKillRounds(KillRounds):
    """Start a writer, kill it, replay what it left; again and again on one root."""

    what, compares_all = "round", True

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        super().__init__(directory, format="bars", seed=seed)

    def start(self, *command: str) -> None:
        life = f"{self.seed}{self.kills:04d}"
        writer = sys.executable, "-m", "holdfast.testing.bar_writer", str(self.path)
        super().start(*(command or writer), "--life", life)

    def contents(self, path: Path, *, owner: bool, first: int = 1) -> tuple[int, Rows]:
        with open_bars(path, create=True) if owner else read_bars(path) as store:
            refuse_damage(store, owner=owner)
            rows: Rows = {}
            for bucket in store.buckets():
                symbol, timeframe, attributes = bucket.split("/")
                try:
                    table = store.query(symbol, timeframe, attributes)
                except ValueError:  # a bucket without a year file has no rows
                    continue
                for number in table.column(-1).to_pylist():  # Close or Price
                    row = symbol, attributes, number
                    rows[row] = rows.get(row, 0) + 1
            last = max((number for _, kind, number in rows if kind == TICKS), default=0)
            return last, rows

    def rows(self, first: int, last: int) -> Rows:
        numbers = range(first, last + 1)
        bars = {(symbol, BARS, number): 1 for symbol in SYMBOLS for number in numbers}
        return bars | {(SYMBOLS[0], TICKS, number): 1 for number in numbers}
