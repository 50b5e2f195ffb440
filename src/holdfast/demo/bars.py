"""Bars and prices in numpy: what Spark's must be equal to, to the tick.

They are made from the ticks that were acknowledged, never from the log, so that they would show a
tick that the log or the stream had lost, doubled or altered.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.demo.ticks import MINUTE_US, MINUTES, OPEN_US, PRICE_UNIT, SYMBOLS, Ticks

Bars = NDArray[np.void]  # of the type below, in order of symbol and minute

BAR = np.dtype(
    [
        *(("symbol", "<u2"), ("minute_us", "<i8")),
        *(("open", "<f8"), ("high", "<f8"), ("low", "<f8"), ("close", "<f8")),
        *(("volume", "<i8"), ("count", "<i8")),
    ]
)


def make_bars(ticks: Ticks, step_us: int = MINUTE_US) -> Bars:
    """The bars, each of so many microseconds, of ticks that are in order of time."""
    minute = ticks["time_us"] // step_us * step_us
    order = np.lexsort((minute, ticks["symbol"]))  # stable: inside a bar, time goes on
    ticks, minute = ticks[order], minute[order]
    begins = (np.diff(ticks["symbol"].astype(int), prepend=-1) != 0) | (
        np.diff(minute, prepend=-1) != 0
    )
    starts = np.flatnonzero(begins)
    stops = np.append(starts[1:], len(ticks))
    price = ticks["price"] / PRICE_UNIT
    bars: Bars = np.zeros(len(starts), BAR)
    if len(bars):
        bars["symbol"], bars["minute_us"] = ticks["symbol"][starts], minute[starts]
        bars["open"], bars["close"] = price[starts], price[stops - 1]
        bars["high"] = np.maximum.reduceat(price, starts)
        bars["low"] = np.minimum.reduceat(price, starts)
        bars["volume"] = np.add.reduceat(ticks["size"].astype(np.int64), starts)
        bars["count"] = stops - starts
    return bars


def from_table(table: pa.Table) -> Bars:
    """Bars as a bar store has them: a symbol's name, the time in nanoseconds, and columns."""
    bars: Bars = np.zeros(len(table), BAR)
    numbers = {name: number for number, name in enumerate(SYMBOLS)}
    bars["symbol"] = [numbers[name] for name in table["symbol"].to_pylist()]
    bars["minute_us"] = table["time"].cast(pa.int64()).to_numpy() // 1000
    for name in ("Open", "High", "Low", "Close", "Volume", "Count"):
        bars[name.lower()] = table[name].to_numpy()
    return np.sort(bars, order=["symbol", "minute_us"])


def differing(made: Bars, wanted: Bars) -> int:
    """How many bars are in one and not, just so, in the other."""
    ours, theirs = set(wanted.tolist()), set(made.tolist())
    return max(len(ours - theirs), len(theirs - ours), abs(len(made) - len(wanted)))


def price_keys() -> list[str]:
    """All keys that there can be: of each symbol, then of each minute of each symbol."""
    opened = OPEN_US // MINUTE_US
    clock = [f"{(opened + i) // 60 % 24:02}:{(opened + i) % 60:02}" for i in range(MINUTES)]
    last = [f"last/{name}" for name in SYMBOLS]
    return last + [f"minute/{name}/{time}" for name in SYMBOLS for time in clock]


def price_places(ticks: Ticks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each tick the places of its two keys among `price_keys`."""
    symbol = ticks["symbol"].astype(np.int64)
    minute = (ticks["time_us"] - OPEN_US) // MINUTE_US
    return symbol, len(SYMBOLS) + symbol * MINUTES + minute


def make_prices(ticks: Ticks) -> dict[str, float]:
    """The last price under each key."""
    names, price = price_keys(), ticks["price"] / PRICE_UNIT
    last: dict[str, float] = {}
    for places in price_places(ticks):
        newest = np.full(len(names), -1)
        newest[places] = np.arange(len(ticks))  # of equal places the last one counts
        there = np.flatnonzero(newest >= 0)
        last.update({names[at]: float(price[newest[at]]) for at in there})
    return last


def coarser(bars: Bars, count_max: int) -> Bars:
    """The bars of one symbol put together to at most `count_max`, each of as many minutes."""
    if len(bars) <= count_max:
        return bars
    minute = (bars["minute_us"] - bars["minute_us"][0]) // MINUTE_US
    step = -(-(int(minute[-1]) + 1) // count_max)
    starts = np.flatnonzero(np.diff(minute // step, prepend=-1))
    stops = np.append(starts[1:], len(bars))
    joined: Bars = bars[starts].copy()
    joined["close"] = bars["close"][stops - 1]
    joined["high"] = np.maximum.reduceat(bars["high"], starts)
    joined["low"] = np.minimum.reduceat(bars["low"], starts)
    joined["volume"] = np.add.reduceat(bars["volume"], starts)
    joined["count"] = np.add.reduceat(bars["count"], starts)
    return joined


def of_symbol(bars: Bars, symbol: int) -> Bars:
    own: Bars = bars[bars["symbol"] == symbol]
    return own
