"""Durable logs and stores for Python, with the data pipeline on Spark.

>>> import holdfast
>>> with holdfast.create_log(directory) as log:
...     log.append([b"an event", b"another"])
2

Three nouns and three verbs: `create_`, `open_` and `read_` for a `log`, a `kv` store and `bars`.
Everything else is a method of what they return.
"""

TYPE_CHECKING = False  # as in typing, whose import takes as long as the start of Python
if TYPE_CHECKING:
    from typing import Any

    from holdfast import errors
    from holdfast.bars import BarReader, BarStore
    from holdfast.doors.bars import create_bars, open_bars, read_bars
    from holdfast.doors.kv import create_kv, open_kv, read_kv
    from holdfast.doors.logs import create_log, open_log, read_log
    from holdfast.errors import (
        ChangedError,
        ClosedError,
        CorruptError,
        DiskFullError,
        DivergedError,
        ExistsError,
        FencedError,
        HoldfastError,
        LeaseLostError,
        LockedError,
        MissingError,
        NotFoundError,
        NotOwnerError,
        OutOfRangeError,
        PoisonedError,
        UnavailableError,
        UnsupportedError,
    )
    from holdfast.kv import Kv, KvReader
    from holdfast.logs.log import Log, LogReader
    from holdfast.metrics import Metric, prometheus_text

__version__ = "0.2.0.dev0"

__all__ = [
    "BarReader",
    "BarStore",
    "ChangedError",
    "ClosedError",
    "CorruptError",
    "DiskFullError",
    "DivergedError",
    "ExistsError",
    "FencedError",
    "HoldfastError",
    "Kv",
    "KvReader",
    "LeaseLostError",
    "LockedError",
    "Log",
    "LogReader",
    "Metric",
    "MissingError",
    "NotFoundError",
    "NotOwnerError",
    "OutOfRangeError",
    "PoisonedError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "create_bars",
    "create_kv",
    "create_log",
    "errors",
    "open_bars",
    "open_kv",
    "open_log",
    "prometheus_text",
    "read_bars",
    "read_kv",
    "read_log",
]

# Imported when first used: `import holdfast` costs nothing, and a log needs neither protobuf nor
# an object store's client.
_HOMES = {
    "bars": ("BarReader", "BarStore"),
    "doors.bars": ("create_bars", "open_bars", "read_bars"),
    "doors.kv": ("create_kv", "open_kv", "read_kv"),
    "doors.logs": ("create_log", "open_log", "read_log"),
    "kv": ("Kv", "KvReader"),
    "logs.log": ("Log", "LogReader"),
    "metrics": ("Metric", "prometheus_text"),
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "errors":
        return import_module("holdfast.errors")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    value = getattr(import_module(f"holdfast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
