"""Candles, sparklines and the day's table for a terminal, made of text alone.

A character is two half-cells high.  Each half shows a candle's body, its wick or nothing, and there
is a box-drawing character for every pair of these.
"""

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from holdfast.demo.bars import Bars, coarser, of_symbol
from holdfast.demo.ticks import SYMBOLS

_NONE, _WICK, _BODY = 0, 1, 2
_PAIRS = {  # (upper half, lower half)
    **{(_NONE, _NONE): " ", (_WICK, _WICK): "│", (_BODY, _BODY): "┃"},
    **{(_WICK, _BODY): "╽", (_BODY, _WICK): "╿", (_NONE, _BODY): "╻"},
    **{(_BODY, _NONE): "╹", (_NONE, _WICK): "╷", (_WICK, _NONE): "╵"},
}
_SPARKS = "▁▂▃▄▅▆▇█"
_AXIS_WIDTH = 10


def candle_chart(bars: Bars, width: int, height: int = 12) -> Text:
    """One symbol's day in `height` lines of at most `width` characters, prices on the right."""
    candles = coarser(bars, max(width - _AXIS_WIDTH, 1))
    low, high = float(candles["low"].min()), float(candles["high"].max())
    halves = _halves(candles, low, high, 2 * height)
    rising = candles["close"] >= candles["open"]
    chart = Text()
    for row in range(height):
        upper, lower = halves[2 * row], halves[2 * row + 1]
        for column in range(len(candles)):
            character = _PAIRS[int(upper[column]), int(lower[column])]
            color = "green" if rising[column] else "red"
            chart.append(character, "" if character == " " else color)
        if row in (0, height // 2, height - 1):
            price = high - (high - low) * (row + 0.5) / height
            chart.append(f"  {price:,.2f}", "dim")
        chart.append("\n")
    return chart.append_text(_hours(candles, width - _AXIS_WIDTH))


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


def _halves(candles: Bars, low: float, high: float, count: int) -> NDArray[np.int8]:
    """What each half-cell shows, rows from the top."""

    def row(prices: NDArray[np.float64]) -> NDArray[np.intp]:
        down = (high - prices) / ((high - low) or 1.0) * count
        return np.clip(down.astype(np.intp), 0, count - 1)

    rows = np.arange(count)[:, None]
    top = row(np.maximum(candles["open"], candles["close"]))
    bottom = row(np.minimum(candles["open"], candles["close"]))
    wick = (rows >= row(candles["high"])) & (rows <= row(candles["low"]))
    body = (rows >= top) & (rows <= bottom)
    return np.where(body, _BODY, np.where(wick, _WICK, _NONE)).astype(np.int8)


def _hours(candles: Bars, width: int) -> Text:
    """The full hours below their candles."""
    line = [" "] * max(width, 0)
    minutes = candles["minute_us"] // 60_000_000
    hours = minutes // 60
    for column in np.flatnonzero(np.diff(hours, prepend=hours[0])):
        words = f"{int(hours[column]) % 24}:00"
        if column + len(words) <= len(line) and " " not in words:
            line[column : column + len(words)] = words
    return Text("".join(line).rstrip(), "dim")
