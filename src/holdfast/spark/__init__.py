"""Holdfast on Spark.  PySpark is imported at the first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingError

if TYPE_CHECKING:
    from holdfast.spark.bars import bars_frame
    from holdfast.spark.classcache import warm
    from holdfast.spark.kv_reader import pinned
    from holdfast.spark.sessions import session
    from holdfast.spark.sources import register

__all__ = ["bars_frame", "pinned", "register", "session", "warm"]

# No module has the name of what it holds: importing the module would hide the function.
_HOMES = {
    "pinned": "holdfast.spark.kv_reader",
    "bars_frame": "holdfast.spark.bars",
    "register": "holdfast.spark.sources",
    "session": "holdfast.spark.sessions",
    "warm": "holdfast.spark.classcache",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise MissingError("Spark is not installed.  Run: pip install 'holdfast[spark]'") from error
