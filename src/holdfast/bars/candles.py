"""Bars made of ticks: open, high, low and close of their prices, and the sum of their sizes."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from holdfast.bars.intake import SYMBOL, TIME
from holdfast.bars.reducing import REDUCE
from holdfast.formats.bar_time import intervals_per_day

if TYPE_CHECKING:
    import pyarrow as pa


def candles(
    ticks: "pa.Table", timeframe_ns: int, price: str, size: str | None = None
) -> "pa.Table":
    """Return the bars of ticks by symbol and time, for the intervals that hold ticks.

    >>> from holdfast.bars import BarStore
    >>> from holdfast.disk import OsDisk
    >>> trades = {"time": [0, 1, 60 * 10**9], "Price": [2.0, 1.0, 5.0], "Size": [10, 20, 30]}
    >>> with BarStore(OsDisk(directory), create=True) as store:
    ...     tgid = store.write(trades, "1Sec", "TICK", symbol="A", is_variable=True)
    ...     bars = candles(store.query("A", "1Sec", "TICK"), 60 * 10**9, "Price", "Size")
    >>> bars["Close"].to_pylist(), bars["Volume"].to_pylist()
    ([1.0, 5.0], [30, 30])
    """
    import pyarrow as pa

    intervals_per_day(timeframe_ns)
    for name in (price, *([size] if size else [])):
        if name not in ticks.column_names or name in (SYMBOL, TIME):
            raise ValueError(f"no column {name!r}; there are {', '.join(ticks.column_names[2:])}")
    symbols = ticks.column(SYMBOL).combine_chunks()
    codes = symbols.indices.to_numpy().astype(np.int64)
    steps = ticks.column(TIME).cast(pa.int64()).to_numpy() // timeframe_ns
    begins = np.append(True, (np.diff(codes) != 0) | (np.diff(steps) != 0))[: len(codes)]
    starts = np.flatnonzero(begins)
    times = pa.array(steps[starts] * timeframe_ns).view(pa.timestamp("ns", "UTC"))
    columns = {SYMBOL: symbols.take(pa.array(starts)), TIME: times}
    columns.update(_prices(ticks.column(price).to_numpy(), starts))
    if size is not None:
        columns["Volume"] = pa.array(_reduced(ticks.column(size).to_numpy(), starts, "sum"))
    return pa.table(columns)


def _prices(prices: npt.NDArray[Any], starts: npt.NDArray[np.intp]) -> dict[str, Any]:
    rules = {"Open": "first", "High": "max", "Low": "min", "Close": "last"}
    return {name: _reduced(prices, starts, rule) for name, rule in rules.items()}


def _reduced(values: npt.NDArray[Any], starts: npt.NDArray[np.intp], rule: str) -> Any:
    return REDUCE[rule](values, starts) if len(starts) else values  # reduceat wants a row
