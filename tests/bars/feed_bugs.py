"""Bugs that the feed must find.  Each is planted before the processes of the feed start."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.bars.reader import WatchedLogs
from holdfast.bars.view import Pending, Reading
from holdfast.bars.wal import Logs, Wal


def plans_are_forgotten() -> None:
    """The next owner adds the ticks of a plan to files that have them already."""
    waiting = Pending.waiting

    def without_plans(self: Pending) -> list[Any]:
        return [change for change in waiting(self) if not change.is_plan]

    Pending.waiting = without_plans  # type: ignore[method-assign]


def guests_look_once() -> None:
    """A guest lays the groups of its first look over files that it reads later."""
    reading = WatchedLogs.reading

    @contextmanager
    def early(self: WatchedLogs) -> Iterator[Reading]:
        with reading(self) as look:
            overlay = look()
            yield lambda: overlay

    WatchedLogs.reading = early  # type: ignore[method-assign]


def commits_wait() -> None:
    """A write to the log is acknowledged before it is made, with the next one."""
    append = Wal.append
    held: dict[int, bytes] = {}

    def late(self: Wal, messages: bytes) -> None:
        before, held[id(self)] = held.get(id(self), b""), messages
        if before:
            append(self, before)

    Wal.append = late  # type: ignore[method-assign]


def logs_stay() -> None:
    """Full logs are never removed."""
    Logs.remove_finished = lambda self, wanted: None  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "plans are forgotten": plans_are_forgotten,
    "guests look once": guests_look_once,
    "commits wait": commits_wait,
    "logs stay": logs_stay,
}
