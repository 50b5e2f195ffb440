"""The report's charts, each drawn from the data of the run and nothing else."""

from collections.abc import Sequence

import numpy as np

from holdfast.demo import svg
from holdfast.demo.bars import Bars, coarser
from holdfast.demo.results import Batch, WorkerKill
from holdfast.demo.rounds import Ack, Reckoning
from holdfast.demo.ticks import CLOSE_US, MINUTE_US, OPEN_US
from holdfast.logs.log import SegmentInfo

WIDE = 1000.0
_LEFT, _RIGHT = 56.0, 12.0
_CANDLES_MAX = 65  # six minutes each


def growth(
    acks: Sequence[Ack], arrived: Sequence[tuple[float, int]], ledger: Sequence[Reckoning]
) -> str:
    """How many ticks had arrived, how many were durable, and when the feed was killed."""
    height, top, bottom = 300.0, 30.0, 264.0
    end = max(line.at_seconds for line in ledger)
    high = max(ledger[-1].found, arrived[-1][1], 1)
    x = svg.linear(0, end, _LEFT, WIDE - _RIGHT)
    y = svg.linear(0, high, bottom, top)
    parts = _rungs(svg.round_steps(0, high, 4), y)
    thinned = acks[:: max(1, len(acks) // 1500)]
    steps = [(x(0), y(0))]
    for ack in (*thinned, *acks[-1:]):
        steps += [(x(ack.at_seconds), steps[-1][1]), (x(ack.at_seconds), y(ack.last))]
    steps.append((x(end), steps[-1][1]))
    parts.append(svg.path([*steps, (x(end), y(0))], "durable"))
    market = [(x(at), y(count)) for at, count in arrived]
    parts.append(svg.path([*market, (x(end), market[-1][1])], "arrived"))
    parts += _kill_marks(ledger, x, top, bottom)
    parts += _seconds(x, end, bottom + 24)
    return svg.drawing(WIDE, height, parts, "Ticks that had arrived and that were durable")


def throughput(acks: Sequence[Ack], ledger: Sequence[Reckoning]) -> str:
    """Durable ticks per second over time, on a logarithmic scale: catching up is fast."""
    height, top, bottom = 210.0, 26.0, 174.0
    end = max(line.at_seconds for line in ledger)
    bins = max(1, round(end / 0.1))
    edges = np.linspace(0, end, bins + 1)
    grown = np.diff([ack.last for ack in acks], prepend=0)
    counts, _ = np.histogram([ack.at_seconds for ack in acks], edges, weights=grown)
    rates = counts / (end / bins)
    low, high = 1000.0, max(float(rates.max(initial=1)) * 1.3, 2000.0)
    x = svg.linear(0, end, _LEFT, WIDE - _RIGHT)
    y = svg.logarithmic(low, high, bottom, top)
    parts = _rungs([10.0**power for power in range(3, 8) if 10.0**power <= high], y)
    parts += [
        svg.rect(x(at) + 0.5, y(rate), x(edges[1]) - x(0) - 1, bottom - y(rate), "flow")
        for at, rate in zip(edges, rates, strict=False)
        if rate > low
    ]
    parts += _kill_marks(ledger, x, top, bottom)
    parts += _seconds(x, end, bottom + 24)
    return svg.drawing(WIDE, height, parts, "Durable ticks per second, with the kills")


def latencies(latencies_us: Sequence[int]) -> str:
    """How long durable appends took, on a logarithmic scale."""
    height, top, bottom = 230.0, 34.0, 190.0
    values = np.maximum(np.array(latencies_us or [1], float), 1)
    low, high = float(values.min()) * 0.8, float(values.max()) * 1.6
    edges = np.geomspace(low, high, 81)
    counts, _ = np.histogram(values, edges)
    x = svg.logarithmic(low, high, _LEFT, WIDE - _RIGHT)
    y = svg.linear(0, float(counts.max()), bottom, top)
    parts = [
        svg.rect(x(a) + 0.5, y(n), x(b) - x(a) - 1, bottom - y(n), "flow", f"{n:,} appends")
        for a, b, n in zip(edges, edges[1:], counts, strict=False)
        if n
    ]
    parts.append(svg.line(_LEFT, bottom, WIDE - _RIGHT, bottom, "axis"))
    for step in _log_steps(low, high):
        parts.append(svg.text(x(step), bottom + 22, duration(step), "label", "middle"))
        parts.append(svg.line(x(step), bottom, x(step), bottom + 5, "axis"))
    for percent in (50, 99, 99.9):
        value = float(np.percentile(values, percent))
        parts.append(svg.line(x(value), top - 20, x(value), bottom, "mark"))
        words, left = f"p{percent:g}  {duration(value)}", percent == 99  # apart from its neighbour
        at, anchor = (x(value) - 6, "end") if left else (x(value) + 6, "start")
        parts.append(svg.text(at, top - 12, words, "note", anchor))
    return svg.drawing(WIDE, height, parts, "Histogram of append latencies")


def segment_map(segments: Sequence[SegmentInfo]) -> str:
    """Each segment a block as wide as its bytes, in rows of the same scale."""
    gap, block, row_height = 4.0, 46.0, 76.0
    rows = _rows(segments, 7)
    widest = max((sum(s.size for s in row) for row in rows), default=1)
    parts = []
    for number, row in enumerate(rows):
        room = WIDE - gap * (max(map(len, rows)) - 1)
        at, top = 0.0, number * row_height
        for segment in row:
            width = max(room * segment.size / widest, 3.0)
            title = f"{segment.name}: {segment.size:,} bytes, {segment.state}"
            parts.append(svg.rect(at, top, width, block, f"segment {segment.state}", title))
            if width > 62:
                size = f"{segment.size / 2**20:.2f} MiB"
                name = segment.name.removesuffix(".wal").removeprefix("segment_")
                parts.append(svg.text(at + 10, top + 20, name, "block"))
                parts.append(svg.text(at + 10, top + 36, size, "block faint"))
                span = f"{segment.first_index:,} … {segment.last_index:,}"
                parts.append(svg.text(at + 1, top + block + 15, span, "label"))
            at += width + gap
    return svg.drawing(WIDE, max(len(rows), 1) * row_height, parts, "The log's segments")


def micro_batches(batches: Sequence[Batch], kills: Sequence[WorkerKill]) -> str:
    """When each micro-batch ran, how long, and where a worker was killed."""
    height, top, bottom = 132.0, 40.0, 92.0
    end = max((batch.at_seconds for batch in batches), default=1.0)
    x = svg.linear(0, end, 0, WIDE)
    hit = {kill.batch for kill in kills}
    parts = []
    for batch in batches:
        start, stop = x(batch.at_seconds - batch.seconds), x(batch.at_seconds)
        kind = "batch hit" if batch.number in hit else "batch"
        title = f"batch {batch.number}: {batch.rows:,} ticks in {batch.seconds:.2f} s"
        parts.append(svg.rect(start + 1, top, max(stop - start - 2, 2), bottom - top, kind, title))
        if stop - start > 30:
            middle = (start + stop) / 2
            parts.append(svg.text(middle, top + 31, str(batch.number), "block", "middle"))
    for kill in kills:
        at = min(max(x(kill.at_seconds), 6), WIDE - 6)
        anchor = "start" if at < WIDE / 2 else "end"
        parts.append(svg.line(at, top - 14, at, bottom + 6, "kill"))
        parts.append(cross(at, top - 20))
        words = f"worker {kill.pid} killed -9"
        parts.append(svg.text(at + (10 if at < WIDE / 2 else -10), top - 15, words, "note", anchor))
    parts += _seconds(x, end, bottom + 28)
    return svg.drawing(WIDE, height, parts, "The stream's micro-batches")


def candles(bars: Bars) -> str:
    """One symbol's day: candles above, volume below."""
    width, height, floor, foot = 480.0, 270.0, 188.0, 240.0
    joined = coarser(bars, _CANDLES_MAX)
    step_us = MINUTE_US * -(-390 // _CANDLES_MAX)
    low, high = float(joined["low"].min()), float(joined["high"].max())
    x = svg.linear(OPEN_US, CLOSE_US, 0, width - 50)
    y = svg.linear(low, high, floor, 10)
    volume = svg.linear(0, float(joined["volume"].max()), foot, floor + 14)
    body = (x(OPEN_US + step_us) - x(OPEN_US)) * 0.64
    parts = []
    for step in svg.round_steps(low, high, 6):
        parts.append(svg.line(0, y(step), width - 50, y(step), "rung"))
        parts.append(svg.text(width - 44, y(step) + 4, f"{step:.2f}", "label"))
    for bar in joined:
        middle = x(float(bar["minute_us"]) + step_us / 2)
        kind = "rise" if bar["close"] >= bar["open"] else "fall"
        upper, lower = y(max(bar["open"], bar["close"])), y(min(bar["open"], bar["close"]))
        parts.append(svg.line(middle, y(bar["high"]), middle, y(bar["low"]), f"wick {kind}"))
        parts.append(svg.rect(middle - body / 2, upper, body, max(lower - upper, 1), kind))
        tall = volume(float(bar["volume"]))
        parts.append(svg.rect(middle - body / 2, tall, body, foot - tall, f"volume {kind}"))
    for hour in range(10, 17, 2):
        at = x(OPEN_US + (hour * 60 - 570) * MINUTE_US)
        anchor = "end" if hour == 16 else "middle"
        parts.append(svg.text(at, foot + 20, f"{hour}:00", "label", anchor))
    return svg.drawing(width, height, parts, "Candles of one day")


def duration(microseconds: float) -> str:
    """`250 µs`, `1.2 ms`, `3 s`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def _rungs(steps: Sequence[float], y: svg.Scale) -> list[str]:
    parts = []
    for step in steps:
        parts.append(svg.line(_LEFT, y(step), WIDE - _RIGHT, y(step), "rung"))
        parts.append(svg.text(_LEFT - 10, y(step) + 4, _short(step), "label", "end"))
    return parts


def _kill_marks(ledger: Sequence[Reckoning], x: svg.Scale, top: float, bottom: float) -> list[str]:
    places = [x(line.at_seconds) for line in ledger]
    return [svg.line(at, top - 6, at, bottom, "kill") + cross(at, top - 12) for at in places]


def _seconds(x: svg.Scale, end: float, baseline: float) -> list[str]:
    steps = svg.round_steps(0, end, 8)
    return [
        svg.text(x(step), baseline, f"{step:g} s", "label", "middle" if step else "start")
        for step in steps
    ]


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def cross(x: float, y: float) -> str:
    """Where something was killed."""
    strokes = ((x - 4, y - 4, x + 4, y + 4), (x - 4, y + 4, x + 4, y - 4))
    return "".join(svg.line(*stroke, "cross") for stroke in strokes)


def _rows(segments: Sequence[SegmentInfo], count_max: int) -> list[Sequence[SegmentInfo]]:
    rows = -(-len(segments) // count_max)
    each = -(-len(segments) // max(rows, 1))
    return [segments[at : at + each] for at in range(0, len(segments), max(each, 1))]


def _log_steps(low: float, high: float) -> list[float]:
    steps = [f * 10.0**power for power in range(0, 9) for f in (1, 2, 5)]
    return [step for step in steps if low <= step <= high]
