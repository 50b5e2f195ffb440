"""What an open store counts: one Metric type for all stores, and the text that Prometheus scrapes.

    prometheus_text(log.metrics(), "holdfast_log", path="/data/log")
    prometheus_text(kv.metrics(), "holdfast_kv", store="s3://bucket/kv")

Serve the text, or write it to a file that node_exporter reads.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

# Seconds: from a write to memory to a slow object store.
LATENCY_BOUNDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured value.  Counters and histograms start at 0 when the store is opened.

    `value` of a histogram is the sum of its observations.  `buckets` has, for each upper bound,
    the number of observations up to it; the last bound is infinity, and has all of them.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    value: float
    about: str
    labels: tuple[tuple[str, str], ...] = ()
    buckets: tuple[tuple[float, int], ...] = ()


class Histogram:
    """Counts observations by size.  A few may be missed if many threads observe at once."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def metric(self, name: str, about: str) -> Metric:
        """Return the counts so far."""
        buckets, count = [], 0
        for bound, found in zip((*self._bounds, float("inf")), self._counts, strict=True):
            count += found
            buckets.append((bound, count))
        return Metric(name, "histogram", self.total, about, buckets=tuple(buckets))


def prometheus_text(metrics: Iterable[Metric], prefix: str, **labels: str) -> str:
    """Format metrics as Prometheus scrapes them: PREFIX_NAME{labels} value."""
    lines: dict[str, None] = {}  # HELP and TYPE once for all labels
    for metric in metrics:
        name = f"{prefix}_{metric.name}"
        pairs = {**labels, **dict(metric.labels)}
        lines[f"# HELP {name} {metric.about}"] = None
        lines[f"# TYPE {name} {metric.kind}"] = None
        if metric.kind == "histogram":
            for bound, count in metric.buckets:
                le = "+Inf" if bound == float("inf") else repr(bound)
                lines[f"{name}_bucket{_labels({**pairs, 'le': le})} {count}"] = None
            lines[f"{name}_sum{_labels(pairs)} {metric.value}"] = None
            lines[f"{name}_count{_labels(pairs)} {metric.buckets[-1][1]}"] = None
        else:
            lines[f"{name}{_labels(pairs)} {metric.value}"] = None
    return "".join(f"{line}\n" for line in lines)


def _labels(pairs: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{pairs[key].translate(_ESCAPES)}"' for key in pairs) + "}"


def numbers_of(report: Any) -> list[Metric]:
    """Return a metric for each number in a dataclass; a name ending in `_total` is a counter."""
    return [
        Metric(name, "counter" if name.endswith("_total") else "gauge", value, _about(name))
        for name, value in _numbers(report).items()
    ]


def _numbers(report: Any, prefix: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for field in fields(report):
        name, value = prefix + field.name, getattr(report, field.name)
        if is_dataclass(value):
            found |= _numbers(value, f"{name}_")
        elif isinstance(value, int):
            found[name] = int(value)
    return found


def _about(name: str) -> str:
    words = name.removesuffix("_total").replace("_", " ")
    return f"{words}, since the store was opened" if name.endswith("_total") else words
