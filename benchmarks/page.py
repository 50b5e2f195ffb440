"""docs/benchmarks.md and its plots, made from the results and from nothing else."""

from html import escape
from math import log10
from pathlib import Path

from benchmarks import growth
from benchmarks.harness import RESULTS, Measure, load

DOCS = Path(__file__).parents[1] / "docs"
_INTRO = """\
# Benchmarks

The commands below generate this page, from one run each; no figure is typed in. Contenders run in
the same process or session, operation by operation, in shuffled order. The page compares medians.
The ratio is how many times better Holdfast is; ± is half the distance between the quartiles. The
last column compares with the aim. Where a store grows, the growth is the ratio of the last time to
the first.
"""


def write_page() -> None:
    parts = [_INTRO]
    for path in sorted(RESULTS.glob("*.json")):
        about, command, measures, curves = load(path)
        plot = DOCS / f"benchmarks-{path.stem}.svg"
        plot.write_text(draw(measures) if measures else growth.draw(curves))
        facts = ", ".join(f"{name} {value}" for name, value in about.items())
        made = f"`{command}` on {facts}."
        parts.append(f"\n## {path.stem}\n\n{made}\n\n![plot]({plot.name})\n")
        parts.append("\n".join(table(measures) if measures else growth.table(curves)))
    (DOCS / "benchmarks.md").write_text("\n".join(parts) + "\n")


def table(measures: list[Measure]) -> list[str]:
    lines = ["| measure | contender | median | ± | ratio | aim |", "|---|---|---:|---:|---:|---|"]
    for measure in measures:
        for name, median in measure.medians.items():
            ours = name == measure.ours
            ratio = "" if ours else f"{measure.ratio(name):.2f}×"
            verdict = _verdict(measure, name)
            shown = f"**{name}**" if ours else name
            label = measure.name if ours else ""
            lines.append(
                f"| {label} | {shown} | {median:.4g} {measure.unit} "
                f"| {100 * measure.spreads[name]:.0f} % | {ratio} | {verdict} |"
            )
    return lines


def _verdict(measure: Measure, name: str) -> str:
    aim = measure.aims.get(name)
    if aim is None:
        return ""
    if name != measure.ours:
        reached, unit = measure.ratio(name) >= aim, "×"
    else:
        median = measure.medians[name]
        reached, unit = (
            (median >= aim) == measure.higher_is_better or median == aim,
            f" {measure.unit}",
        )
    return f"{aim:g}{unit}: {'reached' if reached else 'missed'}"


def draw(measures: list[Measure]) -> str:
    """Horizontal bars: how many times better than each contender, on a logarithmic scale."""
    rows = [
        (f"{measure.name} / {name}", measure.ratio(name))
        for measure in measures
        for name in measure.medians
        if name != measure.ours
    ]
    scale, left, height = 110.0, 430, 18
    widest = max((abs(log10(ratio)) for _, ratio in rows), default=1.0)
    width, zero = left + int(scale * (widest + 1)) + 90, left + 60
    tall = height * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall + 20}"',
        ' font-family="sans-serif" font-size="11" fill="#666">',
        f'<line x1="{zero}" x2="{zero}" y1="0" y2="{tall}" stroke="#888"/>',
    ]
    for i, (label, ratio) in enumerate(rows):
        y, length = i * height, scale * log10(ratio)
        x, color = (zero, "#2a7ab0") if length >= 0 else (zero + length, "#c0603a")
        box = f'x="{x:.1f}" y="{y + 3}" width="{abs(length):.1f}" height="{height - 6}"'
        end = max(zero, zero + length) + 4
        parts += [
            f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
            f'<rect {box} fill="{color}"/>',
            f'<text x="{end:.1f}" y="{y + 12}">{ratio:.2f}×</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
