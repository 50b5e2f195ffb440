"""Drawings as text: a frame with two scales, and the few shapes that our charts are made of.

Colours are classes, so that the page's style sheet decides them, by day and by night.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

Scale = Callable[[float], float]


def linear(low: float, high: float, start: float, stop: float) -> Scale:
    """Values low..high on the pixels start..stop."""
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def logarithmic(low: float, high: float, start: float, stop: float) -> Scale:
    scale = linear(math.log10(low), math.log10(high), start, stop)
    return lambda value: scale(math.log10(max(value, low)))


def round_steps(low: float, high: float, about: int) -> list[float]:
    """Round numbers in low..high, some `about` of them."""
    rough = (high - low or 1.0) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A coordinate, no longer than the eye needs."""
    return f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    if not title:
        return f'<rect class="{kind}" {place}/>'
    return f'<rect class="{kind}" {place}><title>{escape(title)}</title></rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f'<line class="{kind}" {ends}/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def circle(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    place = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
    if not title:
        return f'<circle class="{kind}" {place}/>'
    return f'<circle class="{kind}" {place}><title>{escape(title)}</title></circle>'


def arc(start: float, stop: float, y: float, depth: float, kind: str) -> str:
    """Below a line, from one place on it to another."""
    middle = f"{number((start + stop) / 2)} {number(y + depth)}"
    steps = f"M{number(start)} {number(y)}Q{middle} {number(stop)} {number(y)}"
    return f'<path class="{kind}" d="{steps}"/>'


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{steps}"/>'


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """An image that fills the width it is given; `label` is for those who cannot see it."""
    box = f'viewBox="0 0 {number(width)} {number(height)}"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
