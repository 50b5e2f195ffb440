"""The steps of the feed's writers, and what their symbols show after each of them.

Each writer has two symbols, and every step changes both.  A step follows from the seed, the writer
and its number.  So every process can say what is shown after any number of steps, and the ledger is
two numbers of each writer: the last step that was begun, and the last that was acknowledged.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from holdfast.bars import BarStore
from holdfast.testing.lives import BrokenPromiseError

BARS, TICKS = "BAR", "TICK"
WRITERS = 4
MINUTES = 12  # half of them before, half of them after the turn of the year
START_S = 1_767_225_600 - 60 * MINUTES // 2
KINDS = {"group": 8, "submit": 3, "ticks": 3, "prepare": 2, "delete bars": 2, "delete ticks": 2}

Rows = list[tuple[int, int]]  # minute and value, in order
Shown = dict[str, Rows]  # by symbol


@dataclass(frozen=True, slots=True)
class Step:
    """One group: bars are written or corrected, ticks are added, or either are deleted."""

    number: int
    kind: str
    minutes: tuple[int, ...]  # of bars; of a deletion: the first, and the one after the last
    tick_minutes: tuple[int, ...]


def step_of(seed: int, writer: int, number: int) -> Step:
    random = Random(f"{seed} {writer} {number}")
    kind = "group" if number == 1 else random.choices(list(KINDS), list(KINDS.values()))[0]
    if kind.startswith("delete"):
        first = random.randrange(MINUTES)
        return Step(number, kind, (first, random.randint(first + 1, MINUTES)), ())
    minutes = random.sample(range(MINUTES), 3) if kind != "ticks" else []
    ticks = random.choices(range(MINUTES), k=3) if kind != "submit" else []
    return Step(number, kind, tuple(sorted(minutes)), tuple(sorted(ticks)))


class Book:
    """What the symbols of one writer show after `number` steps."""

    def __init__(self, seed: int, writer: int) -> None:
        self._seed, self._writer = seed, writer
        self.symbols = (f"W{writer}a", f"W{writer}b")
        self.number, self._bars, self._ticks = 0, dict[int, int](), Rows()

    def next(self) -> Step:
        return step_of(self._seed, self._writer, self.number + 1)

    def advance(self) -> None:
        step = self.next()
        self._bars, self._ticks = dict(self._bars), list(self._ticks)  # copies share them
        if step.kind == "delete bars":
            for minute in range(*step.minutes):
                self._bars.pop(minute, None)
        elif step.kind == "delete ticks":
            gone = range(*step.minutes)
            self._ticks = [tick for tick in self._ticks if tick[0] not in gone]
        self.number = step.number
        if not step.kind.startswith("delete"):
            self._bars |= dict.fromkeys(step.minutes, step.number)
            for minute, price in zip(step.tick_minutes, prices(step), strict=True):
                insort(self._ticks, (minute, price))

    def advance_to(self, number: int) -> None:
        while self.number < number:
            self.advance()

    def shown(self, attributes: str) -> Shown:
        rows = sorted(self._bars.items()) if attributes == BARS else self._ticks
        one, two = self.symbols
        return {one: rows, two: [(minute, -value) for minute, value in rows]}

    def states(self, last: int) -> Iterator["Book"]:
        """Yield the states from this one on, up to that after step `last`."""
        book = copy(self)
        yield book
        while book.number < last:
            book.advance()
            yield book

    def judge(self, last: int, found: dict[str, Shown], reader: str) -> int:
        """Return the first number of steps, from here to `last`, after which this is shown.

        BrokenPromiseError if there is none.
        """
        wanted = {key: _sorted(self.symbols, shown) for key, shown in found.items()}
        for book in self.states(last):
            if all(_sorted(self.symbols, book.shown(key)) == wanted[key] for key in wanted):
                return book.number
        shown = {key: _sorted(self.symbols, self.shown(key)) for key in wanted}
        other = {key: _differences(shown[key], wanted[key]) for key in wanted}
        what = f"{reader} shows no state after steps {self.number} to {last} of {self.symbols}"
        raise BrokenPromiseError("broken", f"{what}; since the first: {other}"[:1500])


def _sorted(symbols: tuple[str, str], shown: Shown) -> list[Rows]:
    return [sorted(shown.get(symbol, [])) for symbol in symbols]


def _differences(before: list[Rows], after: list[Rows]) -> list[dict[tuple[int, int], int]]:
    """Return by symbol how many more or fewer there are of each row."""
    found = []
    for one, two in zip(before, after, strict=True):
        counts = Counter(two)
        counts.subtract(one)
        found.append({row: count for row, count in sorted(counts.items()) if count})
    return found


def prices(step: Step) -> list[int]:
    return [4 * step.number + place for place in range(len(step.tick_minutes))]


def shown_in(table: pa.Table) -> Shown:
    """Return the rows of a query by symbol.  The value is the last column."""
    found = Shown()
    minutes = (table["time"].cast("int64").to_numpy() // 10**9 - START_S) // 60
    rows = zip(table["symbol"].to_pylist(), minutes.tolist(), table[2].to_pylist(), strict=True)
    for symbol, minute, value in rows:
        found.setdefault(symbol, []).append((minute, value))
    return found


def carry_out(store: BarStore, step: Step, symbols: tuple[str, str]) -> None:
    """Take one step in the store; durable when this returns."""
    if step.kind.startswith("delete"):
        attributes = BARS if step.kind == "delete bars" else TICKS
        start, stop = (np.datetime64(START_S + 60 * one, "s") for one in step.minutes)
        store.delete(",".join(symbols), "1Min", attributes, start=start, stop=stop)
    elif step.kind == "submit":
        store.submit(_bars(step, symbols), "1Min", BARS).result(60)
    elif step.kind == "ticks":
        store.write(_ticks(step, symbols), "1Min", TICKS, is_variable=True)
    else:
        group = store.group()
        group.write(_bars(step, symbols), "1Min", BARS)
        group.write(_ticks(step, symbols), "1Min", TICKS, is_variable=True)
        if step.kind == "prepare":
            group.prepare()
        group.commit()


def _bars(step: Step, symbols: tuple[str, str]) -> dict[str, object]:
    count = len(step.minutes)
    return {
        "symbol": [symbol for symbol in symbols for _ in range(count)],
        "Epoch": [START_S + 60 * minute for minute in step.minutes] * 2,
        "Close": [step.number] * count + [-step.number] * count,
    }


def _ticks(step: Step, symbols: tuple[str, str]) -> dict[str, object]:
    values = prices(step)
    seconds = [START_S + 60 * minute + step.number % 50 for minute in step.tick_minutes]
    return {
        "symbol": [symbol for symbol in symbols for _ in values],
        "Epoch": seconds * 2,
        "Nanoseconds": [1000 * value % 10**9 for value in values] * 2,
        "Price": values + [-value for value in values],
    }
