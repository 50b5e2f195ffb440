"""An invented market: the ticks of one trading day, and the bars that belong to them.

Each tick is one entry of the log: 24 bytes, little-endian, the price in 1/100.  The same seed and
count make the same day.  The bars and prices here are computed from the ticks alone, so that they
show a tick that the log or Spark has lost, doubled or altered.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TICK = np.dtype(
    [("time_us", "<i8"), ("symbol", "<u4"), ("price", "<u4"), ("size", "<u4"), ("number", "<u4")]
)
Ticks = NDArray[np.void]  # of the type TICK

SYMBOLS = ("KELP", "TIDE", "REEF", "FOAM", "GULL", "DUNE")
_PRICES = (184.20, 61.35, 412.80, 27.90, 96.10, 143.60)  # at the opening
_SHARES = (0.26, 0.21, 0.17, 0.14, 0.12, 0.10)  # of all ticks
MINUTE_US = 60_000_000
OPEN_US = int(datetime(2026, 3, 2, 9, 30, tzinfo=UTC).timestamp()) * 1_000_000
CLOSE_US = OPEN_US + 390 * MINUTE_US
COLUMNS = ("symbol", "time", "Open", "High", "Low", "Close", "Volume", "Count")
RULES = ("first", "max", "min", "last", "sum", "sum")  # that make one bar of many, by column


def day(seed: int, count: int) -> Ticks:
    """Return `count` ticks in order of time; most trades happen near the opening and the close."""
    random = np.random.default_rng([seed, count])
    ticks: Ticks = np.zeros(count, TICK)
    ticks["number"] = np.arange(count)
    times = OPEN_US + np.sort(random.beta(0.7, 0.8, count)) * (CLOSE_US - OPEN_US)
    ticks["time_us"] = np.minimum(times, CLOSE_US - 1)
    ticks["symbol"] = random.choice(len(SYMBOLS), count, p=_SHARES)
    ticks["size"] = np.ceil(random.lognormal(3.6, 1.0, count))
    market = _walk(random, count, 0.009)
    for symbol, price in enumerate(_PRICES):
        own = np.flatnonzero(ticks["symbol"] == symbol)
        walk = market[own] + _walk(random, len(own), 0.018)
        ticks["price"][own] = np.round(100 * price * np.exp(walk))
    return ticks


def _walk(random: np.random.Generator, steps: int, daily: float) -> NDArray[np.float64]:
    """Return logarithms of prices that move by about `daily` in a day."""
    walk = np.cumsum(random.standard_normal(steps))
    return np.asarray(walk * daily / np.sqrt(max(steps, 1)))


def share_of_day(ticks: Ticks) -> NDArray[np.float64]:
    """Return when each tick arrives: 0 is the opening, 1 the close."""
    return np.asarray((ticks["time_us"] - OPEN_US) / (CLOSE_US - OPEN_US))


def decode(payloads: pa.Array) -> Ticks:
    """Decode a column of payloads without a loop.  ArrowInvalid: one of them is not a tick."""
    fixed = payloads.cast(pa.binary()).cast(pa.binary(TICK.itemsize))
    return np.frombuffer(fixed.buffers()[1], TICK, len(fixed), fixed.offset * TICK.itemsize)


def as_table(ticks: Ticks) -> pa.Table:
    """Return ticks as columns: time, symbol, price, size."""
    return pa.table(
        {
            "time": pa.array(ticks["time_us"].copy()).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(SYMBOLS).take(pa.array(ticks["symbol"].copy())),
            "price": ticks["price"] / 100,
            "size": ticks["size"].astype(np.int64),
        }
    )


def make_bars(ticks: Ticks, minutes: int = 1) -> pa.Table:
    """Compute the bars of these ticks, each `minutes` long, in order of symbol and time."""
    rounded = ticks.copy()
    rounded["time_us"] -= ticks["time_us"] % (minutes * MINUTE_US)
    price, size = "price", "size"
    wanted = [(price, "first"), (price, "max"), (price, "min"), (price, "last")]
    groups = as_table(rounded).group_by(["symbol", "time"], use_threads=False)  # keeps the order
    bars = groups.aggregate([*wanted, (size, "sum"), (size, "count")]).rename_columns(list(COLUMNS))
    return bars.sort_by([("symbol", "ascending"), ("time", "ascending")])


def make_prices(bars: pa.Table) -> dict[str, float]:
    """Return the last price of each minute of each symbol, by key."""
    rows = bars.select(["symbol", "time", "Close"]).to_pylist()
    return {f"{row['symbol']}/{row['time']:%H:%M}": row["Close"] for row in rows}


def summary(bars: pa.Table) -> list[dict[str, Any]]:
    """Return the day of each symbol as one bar, and its `move`."""
    names = COLUMNS[2:]
    wanted = list(zip(names, RULES, strict=True))
    days = bars.group_by("symbol", use_threads=False).aggregate(wanted)
    rows = days.rename_columns(["symbol", *names]).to_pylist()
    return [{**row, "move": row["Close"] / row["Open"] - 1} for row in rows]


def differing(found: pa.Table, wanted: pa.Table) -> int:
    """Count the bars that are missing, additional or different."""
    ours, theirs = _rows(wanted), _rows(found)
    return max((ours - theirs).total(), (theirs - ours).total())


def _rows(bars: pa.Table) -> "Counter[tuple[object, ...]]":
    times = bars["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = [times if name == "time" else bars[name] for name in COLUMNS]
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))
