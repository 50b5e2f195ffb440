"""The kv store's charts: its manifests and snapshots, and who held it when."""

from collections.abc import Sequence

from holdfast.demo import svg
from holdfast.demo.charts import WIDE, cross
from holdfast.demo.history import Moment
from holdfast.demo.results import Fencing

_COLUMNS_MAX = 60  # manifests that are drawn; of more, the newest


def manifests(history: Sequence[Moment]) -> str:
    """Each manifest a dot, its SSTs above it; arcs lead from snapshots to what they are of."""
    shown = history[-_COLUMNS_MAX:]
    height, top, axis = 300.0, 20.0, 170.0
    step = WIDE / max(len(shown), 1)
    places = {moment.id: (number + 0.5) * step for number, moment in enumerate(shown)}
    highest = max((moment.ssts for moment in shown), default=1) or 1
    tall = svg.linear(0, highest, 0, axis - top - 40)
    parts = [svg.line(0, axis, WIDE, axis, "rung")]
    before: Moment | None = None
    for moment in shown:
        x, kind = places[moment.id], _kind(before, moment)
        width, rise = min(step * 0.62, 34.0), tall(moment.ssts)
        what = f"manifest {moment.id}: {moment.ssts} SSTs in L0 and {moment.runs} runs, {kind}"
        if rise:
            bar = svg.rect(x - width / 2, axis - 16 - rise, width, rise, f"ssts {kind}", what)
            parts.append(bar)
            if step > 14:
                parts.append(svg.text(x, axis - 22 - rise, str(moment.ssts), "label", "middle"))
        parts.append(svg.circle(x, axis, 5.0, f"manifest {kind}", what))
        before = moment
    parts += _arcs(shown, places, axis)
    numbers = sorted(places)
    for number in numbers[:: max(1, len(numbers) // 16)]:
        parts.append(svg.text(places[number], axis + 24, str(number), "label", "middle"))
    parts += _legend(height - 14)
    return svg.drawing(WIDE, height, parts, "The kv store's manifests and snapshots")


def epochs(fencing: Fencing) -> str:
    """Two writers over time: one is frozen, the other takes over, the first is fenced."""
    height, left = 190.0, 120.0
    begin, end = max(0.0, fencing.opened_at - 0.25), fencing.fenced_at + 0.5
    x = svg.linear(begin, end, left, WIDE - 12)
    rows = {fencing.epoch: 52.0, fencing.successor: 112.0}
    parts = []
    for epoch, y in rows.items():
        parts.append(svg.line(left, y, WIDE - 12, y, "rung"))
        parts.append(svg.text(0, y + 4, f"writer epoch {epoch}", "note"))
    old, new = rows[fencing.epoch], rows[fencing.successor]
    spans = (
        (fencing.opened_at, fencing.frozen_at, old, "held", "writes"),
        (fencing.frozen_at, fencing.woken_at, old, "frozen", "frozen by SIGSTOP"),
        (fencing.taken_at, end, new, "held", "writes"),
    )
    for start, stop, y, kind, words in spans:
        wide = max(x(stop) - x(start), 2)
        parts.append(svg.rect(x(start), y - 12, wide, 24, f"tenure {kind}", words))
        if wide > 8 * len(words):
            style = "label" if kind == "frozen" else "block"
            parts.append(svg.text(x(start) + wide / 2, y + 4.5, words, style, "middle"))
    parts.append(svg.line(x(fencing.taken_at), old - 26, x(fencing.taken_at), new + 18, "mark"))
    parts.append(svg.text(x(fencing.taken_at) - 6, new + 34, "takes over", "label", "end"))
    at = x(fencing.fenced_at)
    parts.append(svg.line(at, old - 16, at, new + 18, "kill"))
    parts.append(cross(at, old - 24))
    words = f"FENCED epoch {fencing.epoch} < {fencing.successor}"
    parts.append(svg.text(at - 10, old - 20, words, "note", "end"))
    for step in svg.round_steps(begin, end, 8):
        parts.append(svg.text(x(step), height - 6, f"{step:g} s", "label", "middle"))
    return svg.drawing(WIDE, height, parts, "Two writers' epochs over time")


def _arcs(shown: Sequence[Moment], places: dict[int, float], axis: float) -> list[str]:
    """From the last manifest that names a snapshot to the one that it is of."""
    last = {target: moment.id for moment in shown for target in moment.snapshots}
    return [
        svg.arc(
            places[stop], places[target], axis + 8, min(20 + (stop - target) * 9, 110), "snapshot"
        )
        for target, stop in last.items()
        if target in places and stop != target
    ]


def _kind(before: Moment | None, moment: Moment) -> str:
    """Who wrote a manifest, by what has changed in it."""
    if before is None:
        return "other"
    if moment.writer_epoch > before.writer_epoch:
        return "writer"
    if moment.compactor_epoch > before.compactor_epoch or moment.ssts < before.ssts:
        return "compactor"
    return "stream" if moment.batches > before.batches else "other"


def _legend(y: float) -> list[str]:
    words = (
        ("writer", "a writer takes over"),
        ("stream", "a batch of the stream"),
        ("compactor", "the compactor"),
        ("other", "jobs, snapshots and upkeep"),
    )
    parts, x = [], 0.0
    for kind, about in words:
        parts.append(svg.circle(x + 6, y - 4, 5.0, f"manifest {kind}"))
        parts.append(svg.text(x + 18, y, about, "label"))
        x += 46 + 7.2 * len(about)
    parts.append(svg.arc(x, x + 24, y - 10, 10.0, "snapshot"))
    parts.append(svg.text(x + 32, y, "a snapshot of a manifest", "label"))
    return parts
