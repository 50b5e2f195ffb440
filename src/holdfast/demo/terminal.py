"""Candles, sparklines and the day's table for a terminal, made of text alone."""

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from holdfast.demo.bars import Bars, of_symbol
from holdfast.demo.ticks import SYMBOLS
from holdfast.reports import candles
from holdfast.reports.candles import Candles

_SPARKS = "▁▂▃▄▅▆▇█"


def candle_chart(bars: Bars, width: int, height: int = 12) -> Text:
    """One symbol's day in `height` lines of at most `width` characters, prices on the right."""
    prices = (bars[name] for name in ("open", "high", "low", "close"))
    return candles.candle_chart(Candles(bars["minute_us"] * 1000, *prices), width, height)


def sparkline(values: NDArray[np.float64], width: int = 24) -> str:
    """The values' course, in one line."""
    picked = values[np.linspace(0, len(values) - 1, min(width, len(values))).astype(int)]
    span = float(np.ptp(picked)) or 1.0
    levels = ((picked - picked.min()) / span * (len(_SPARKS) - 1)).round().astype(int)
    return "".join(_SPARKS[level] for level in levels)


def day_table(bars: Bars) -> Table:
    """Each symbol's day in a line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("symbol")
    for title in ("open", "high", "low", "close", "change", "volume", "trades"):
        table.add_column(title, justify="right")
    table.add_column("")
    for number, name in enumerate(SYMBOLS):
        own = of_symbol(bars, number)
        if not len(own):
            continue
        first, last = float(own["open"][0]), float(own["close"][-1])
        style = "green" if last >= first else "red"
        prices = (first, own["high"].max(), own["low"].min(), last)
        table.add_row(
            Text(name, "bold"),
            *(f"{price:,.2f}" for price in prices),
            Text(f"{last / first - 1:+.2%}", style),
            *(f"{int(own[column].sum()):,}" for column in ("volume", "count")),
            Text(sparkline(own["close"]), style),
        )
    return table
