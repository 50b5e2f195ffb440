"""Numbers as Prometheus reads them, one metric for each number in a dataclass.

prometheus(db.metrics(), store="s3://bucket/kv")        serve it, or write it for node_exporter

# TYPE holdfast_kv_gets_total counter
holdfast_kv_gets_total{store="s3://bucket/kv"} 7
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus(numbers: "DataclassInstance", *, prefix: str = "holdfast_kv", **labels: str) -> str:
    """The text of an exposition; what ends in `_total` is a counter, all else a gauge."""
    told = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "".join(
        f"# TYPE {prefix}_{name} {'counter' if name.endswith('_total') else 'gauge'}\n"
        f"{prefix}_{name}{f'{{{told}}}' if told else ''} {int(value)}\n"
        for name, value in _numbers(numbers)
    )


def _numbers(numbers: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    for field in fields(numbers):
        name, value = prefix + field.name, getattr(numbers, field.name)
        if isinstance(value, int):
            yield name, value
        elif is_dataclass(value):
            yield from _numbers(value, f"{name}_")
