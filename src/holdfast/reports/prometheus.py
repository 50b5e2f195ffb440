"""Metrics as Prometheus reads them.

    prometheus_text(log.metrics(), "holdfast_log", path="/data/log")
    prometheus_text(numbers_of(db.metrics()), "holdfast_kv", store="s3://bucket/kv")

Serve the text, or write it where node_exporter looks.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from holdfast.logs.log import Metric

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus_text(metrics: Iterable[Metric], prefix: str, **labels: str) -> str:
    """Metrics as Prometheus scrapes them: PREFIX_NAME{labels} value."""
    lines: dict[str, None] = {}  # help and type once, whatever the labels
    for metric in metrics:
        name = f"{prefix}_{metric.name}"
        told = {**labels, **dict(metric.labels)}
        pairs = ",".join(f'{key}="{told[key].translate(_ESCAPES)}"' for key in told)
        lines[f"# HELP {name} {metric.about}"] = None
        lines[f"# TYPE {name} {metric.kind}"] = None
        lines[f"{name}{{{pairs}}} {metric.value}"] = None
    return "".join(f"{line}\n" for line in lines)


def numbers_of(report: "DataclassInstance") -> list[Metric]:
    """One metric for each number in a dataclass; what ends in `_total` is a counter."""
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
    return f"{words}, since it was opened" if name.endswith("_total") else words
