"""The front door: create, open or read a store by its path or URL.

One module per noun, imported when it is first used: a log needs no other store's libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.disk import local_path
    from holdfast.doors.bars import BarOptions, create_bars, find_bars, open_bars, read_bars
    from holdfast.doors.kv import create_kv, manage_kv, open_kv, read_kv, repair_kv
    from holdfast.doors.logs import LogOptions, convert_log, create_log, open_log, read_log
    from holdfast.kv.options import KvOptions

__all__ = [
    "BarOptions",
    "KvOptions",
    "LogOptions",
    "convert_log",
    "create_bars",
    "create_kv",
    "create_log",
    "find_bars",
    "local_path",
    "manage_kv",
    "open_bars",
    "open_kv",
    "open_log",
    "read_bars",
    "read_kv",
    "read_log",
    "repair_kv",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "local_path":
        return import_module("holdfast.disk").local_path
    noun = "logs" if "log" in name.lower() else "kv" if "kv" in name.lower() else "bars"
    return getattr(import_module(f"holdfast.doors.{noun}"), name)
