"""report.html: one file without scripts, fonts or pictures from elsewhere, made from one run.

The template has the words and the style; this module fills it with the figures of the run.
"""

from collections.abc import Callable, Iterable
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.demo.acts import Act, Run
from holdfast.demo.ledger import Line
from holdfast.demo.market import CLOSE_US, OPEN_US, summary


def render(run: Run) -> str:
    """Return the whole page."""
    template = files("holdfast.demo").joinpath("template.html").read_text(encoding="utf-8")
    left_out = f"<p>Spark's acts are not in this run: {escape(run.missing or '')}</p>"
    return Template(template).substitute(
        seed=run.seed,
        broken="" if run.held else "broken",
        headline=headline(run),
        counts=_join(_count(name, number) for name, number in run.counts.items()),
        ledger=_join(_row(line) for line in run.ledger),
        acts=_join(_act(act) for act in run.acts),
        left_out=left_out if run.missing else "",
        candles=_join(_candles(run.bars, day) for day in summary(run.bars)),
        command=escape(run.command),
        facts=_join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in run.facts.items()),
    )


def headline(run: Run) -> str:
    """Return the run in one sentence."""
    verdict = "Nothing acknowledged was lost." if run.held else "Promises were broken."
    return f"Killed {len(run.ledger)} times. {verdict}"


def _count(name: str, number: int) -> str:
    kind = "" if name == "acknowledged" else "bad" if number else "good"
    return f'<div><dt>{name}</dt><dd class="{kind}" id="{name}">{number:,}</dd></div>'


def _row(line: Line) -> str:
    counts = (line.acknowledged, line.in_flight, line.found, line.lost, line.invented)
    cells = (str(line.kill), f"{line.at_seconds:.2f} s", *(f"{count:,}" for count in counts))
    kinds = [""] * 5 + ["bad" if count else "good" for count in counts[-2:]]
    named = zip(Line.TITLES, cells, kinds, strict=True)
    row = _join(f'<td data-title="{title}" class="{k}">{cell}</td>' for title, cell, k in named)
    return f"<tr>{row}</tr>"


def _act(act: Act) -> str:
    kinds = {True: "", False: "no"}
    items = (f'<li class="{kinds[p.held]}">{escape(p.text)}</li>' for p in act.promises)
    caption = f"<figcaption>{escape(act.title)}</figcaption>"
    return f'<figure>{caption}<ul class="checks">{_join(items)}</ul></figure>'


def _candles(bars: pa.Table, day: dict[str, Any]) -> str:
    """Draw one symbol's day: candles above, volume below."""
    own = bars.filter(pc.equal(bars["symbol"], day["symbol"]))
    times = own["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    x, y = _scale(OPEN_US, CLOSE_US, 0, 310), _scale(day["Low"], day["High"], 150, 10)
    size = _scale(0, pc.max(own["Volume"]).as_py(), 0, 36)
    parts = []
    for price in np.linspace(day["Low"], day["High"], 3):
        parts.append(_line(0, y(price), 310, y(price), "rung"))
        parts.append(_text(316, y(price) + 4, f"{price:,.2f}"))
    for at, bar in zip(times, own.to_pylist(), strict=True):
        left, kind = x(at) + 0.5, "rise" if bar["Close"] >= bar["Open"] else "fall"
        lower, upper = sorted((y(bar["Open"]), y(bar["Close"])), reverse=True)
        parts.append(_line(left + 1.5, y(bar["High"]), left + 1.5, y(bar["Low"]), f"wick {kind}"))
        parts.append(_rect(left, upper, 3, max(lower - upper, 1), kind))
        height = size(bar["Volume"])
        parts.append(_rect(left, 196 - height, 3, height, f"volume {kind}"))
    parts += [_text(x(OPEN_US), 214, "9:30"), _text(x(CLOSE_US), 214, "16:00", "end")]
    title = f"{day['symbol']} {day['Close']:,.2f} ({day['move']:+.2%})"
    svg = f'<svg viewBox="0 0 360 218" role="img" aria-label="{title}">{_join(parts)}</svg>'
    return f"<figure><figcaption>{title}</figcaption>{svg}</figure>"


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    """Map the values low..high to the pixels start..stop."""
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def _join(parts: Iterable[str]) -> str:
    return "".join(parts)
