"""Candles for a terminal, made of text alone.

A character is two half-cells high.  Each half shows a candle's body, its wick or nothing, and there
is a box-drawing character for every pair of these.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

_NONE, _WICK, _BODY = 0, 1, 2
_PAIRS = {  # (upper half, lower half)
    **{(_NONE, _NONE): " ", (_WICK, _WICK): "│", (_BODY, _BODY): "┃"},
    **{(_WICK, _BODY): "╽", (_BODY, _WICK): "╿", (_NONE, _BODY): "╻"},
    **{(_BODY, _NONE): "╹", (_NONE, _WICK): "╷", (_WICK, _NONE): "╵"},
}
_AXIS_WIDTH = 10
_LABEL_WIDTH = 8  # and the space between two
_MINUTE_NS = 60 * 10**9
_DAY_NS = 1440 * _MINUTE_NS
# How far apart the times below the candles may be.
_MARKS_NS = [minutes * _MINUTE_NS for minutes in (1, 5, 15, 30, 60, 120, 240, 360, 720)]
_MARKS_NS += [days * _DAY_NS for days in (1, 7, 28, 91, 364, 3640)]

Prices = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candles:
    """One symbol's bars, in order of time."""

    time_ns: NDArray[np.int64]
    open: Prices
    high: Prices
    low: Prices
    close: Prices

    def __len__(self) -> int:
        return len(self.time_ns)

    def coarser(self, count_max: int) -> "Candles":
        """Join the bars to at most `count_max`, each of the same length of time."""
        if len(self) <= count_max:
            return self
        since = self.time_ns - self.time_ns[0]
        step = -(-(int(since[-1]) + 1) // count_max)
        starts = np.flatnonzero(np.diff(since // step, prepend=-1))
        return Candles(
            self.time_ns[starts],
            self.open[starts],
            np.maximum.reduceat(self.high, starts),
            np.minimum.reduceat(self.low, starts),
            self.close[np.append(starts[1:], len(self)) - 1],
        )


def candle_chart(bars: Candles, width: int, height: int = 12) -> Text:
    """Draw bars in `height` lines of `width` characters, prices on the right, times below."""
    candles = bars.coarser(max(width - _AXIS_WIDTH, 1))
    low, high = float(np.min(candles.low)), float(np.max(candles.high))
    halves = _halves(candles, low, high, 2 * height)
    rising = candles.close >= candles.open
    chart = Text()
    for row in range(height):
        line, upper, lower = Text(), halves[2 * row], halves[2 * row + 1]
        for column in range(len(candles)):
            character = _PAIRS[int(upper[column]), int(lower[column])]
            color = "green" if rising[column] else "red"
            line.append(character, "" if character == " " else color)
        if row in (0, height // 2, height - 1):
            price = high - (high - low) * (row + 0.5) / height
            line.append(f"  {price:,.2f}", "dim")
        line.rstrip()
        chart.append_text(line).append("\n")
    return chart.append_text(_times(candles, width - _AXIS_WIDTH))


def _halves(candles: Candles, low: float, high: float, count: int) -> NDArray[np.int8]:
    """What each half-cell shows, rows from the top."""

    def row(prices: Prices) -> NDArray[np.intp]:
        down = (high - prices) / ((high - low) or 1.0) * count
        return np.clip(down.astype(np.intp), 0, count - 1)

    rows = np.arange(count)[:, None]
    top = row(np.maximum(candles.open, candles.close))
    bottom = row(np.minimum(candles.open, candles.close))
    wick = (rows >= row(candles.high)) & (rows <= row(candles.low))
    body = (rows >= top) & (rows <= bottom)
    return np.where(body, _BODY, np.where(wick, _WICK, _NONE)).astype(np.int8)


def _times(candles: Candles, width: int) -> Text:
    """Round times below their candles, as close to each other as they can be read."""
    line = [" "] * max(width, 0)
    for mark_ns in _MARKS_NS:
        steps = candles.time_ns // mark_ns
        columns = np.flatnonzero(np.diff(steps, prepend=steps[0]))
        if len(columns) * _LABEL_WIDTH <= max(width, _LABEL_WIDTH):
            break
    stop = 0
    for column in columns.tolist():
        words = _label(int(steps[column]) * mark_ns, mark_ns)
        if stop <= column and column + len(words) <= len(line):
            line[column : column + len(words)] = words
            stop = column + len(words) + 1
    return Text("".join(line).rstrip(), "dim")


def _label(time_ns: int, mark_ns: int) -> str:
    text = str(np.datetime64(time_ns, "ns").astype("datetime64[m]"))  # 2026-11-16T09:30
    if mark_ns < _DAY_NS:
        return text[11:]
    return text[5:10] if mark_ns < 91 * _DAY_NS else text[:7]
