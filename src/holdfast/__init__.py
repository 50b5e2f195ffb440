"""Crash-proof logs you can open with Spark.

>>> import holdfast
>>> with holdfast.create_log(directory) as log:
...     log.append([b"an event", b"another"])
2
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.logs.open import create_log, open_log

__all__ = ["create_log", "open_log"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # numpy is imported when a log is first wanted, not before
        from holdfast.logs import open as opening

        return getattr(opening, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
