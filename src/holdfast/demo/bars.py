"""One-minute bars in numpy: what Spark's must be equal to, to the tick.

They are made from the ticks that were acknowledged, never from the log, so that they would show a
tick that the log or the stream had lost, doubled or altered.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.demo.ticks import MINUTE_US, PRICE_UNIT, SYMBOLS, Ticks

Bars = NDArray[np.void]  # of the type below, in order of symbol and minute

BAR = np.dtype(
    [
        *(("symbol", "<u2"), ("minute_us", "<i8")),
        *(("open", "<f8"), ("high", "<f8"), ("low", "<f8"), ("close", "<f8")),
        *(("volume", "<i8"), ("count", "<i8")),
    ]
)


def make_bars(ticks: Ticks) -> Bars:
    """The bars of ticks that are in order of time."""
    minute = ticks["time_us"] // MINUTE_US * MINUTE_US
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
    """Bars that Spark has written: as in BAR, but a symbol's name, and the minute as a time."""
    bars: Bars = np.zeros(len(table), BAR)
    numbers = {name: number for number, name in enumerate(SYMBOLS)}
    bars["symbol"] = [numbers[name] for name in table["symbol"].to_pylist()]
    minutes = table["minute"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    bars["minute_us"] = minutes.to_numpy()
    for name in ("open", "high", "low", "close", "volume", "count"):
        bars[name] = table[name].to_numpy()
    return np.sort(bars, order=["symbol", "minute_us"])


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
