"""Clocks, identities and threads: what a simulation replaces, kept beside the doors.

Stores never import time, uuid or threading; they use, and are given, what is here.
"""

import os
import resource
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.errors import PoisonedError

Item = TypeVar("Item")
Result = TypeVar("Result")


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def to_rfc3339(unix_ms: int) -> str:
    """A time as text, in UTC and as short as can be: 2026-11-15T18:37:33.28Z"""
    moment = _EPOCH + timedelta(milliseconds=unix_ms)
    text = moment.isoformat(timespec="milliseconds")[:19]
    fraction = f"{unix_ms % 1000:03}".rstrip("0")
    return f"{text}{'.' * bool(fraction)}{fraction}Z"


def from_rfc3339(text: str) -> int:
    """Milliseconds since 1970 of such a time; what is finer is cut off."""
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if dot else ""
    moment = datetime.fromisoformat(whole + zone)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return seconds * 1000 + int(digits[:3].ljust(3, "0") or 0)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_id() -> uuid.UUID:
    return uuid.uuid4()


class _Ticket(Generic[Item]):
    __slots__ = ("called", "done", "error", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.error: Exception | None = None
        self.called = threading.Lock()
        self.called.acquire()


class GroupCommit(Generic[Item]):
    """One commit serves all who wait: leader and followers.

    `commit` is called by one thread at a time with the items of everyone who arrived while the
    last commit ran, in order of arrival.  When it raises, everyone in the group gets the error.
    The leader serves one group and then calls the next to lead, so nobody serves for ever.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()  # guards the next two, for an instant
        self._waiting: list[_Ticket[Item]] = []
        self._led = False
        self._committing = threading.Lock()

    def submit(self, item: Item) -> None:
        """Return when `item` is committed, or raise what its commit raised."""
        with self._mutex:
            follows, self._led = self._led, True
            if follows:
                ticket = _Ticket(item)
                self._waiting.append(ticket)
        if not follows:  # nobody waits and nobody writes: no ticket is needed
            with self._committing:
                try:
                    self._commit((item,))
                finally:
                    self._call_next()
            return
        ticket.called.acquire()  # until a leader has served us, or calls us to lead
        if not ticket.done:
            self._serve(ticket)
        if ticket.error is not None:
            raise ticket.error

    def exclusively(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no commit runs."""
        with self._committing:
            return step()

    def _serve(self, leader: _Ticket[Item]) -> None:
        with self._committing:
            with self._mutex:
                group, self._waiting = self._waiting, []
            error: Exception | None = PoisonedError("the thread that wrote for us was interrupted")
            try:
                self._commit([ticket.item for ticket in group])
                error = None
            except Exception as raised:
                error = raised
            finally:  # also when interrupted: nobody may wait for ever
                self._dismiss(group, leader, error)

    def _dismiss(
        self, group: list[_Ticket[Item]], leader: _Ticket[Item], error: Exception | None
    ) -> None:
        for ticket in group:
            ticket.error, ticket.done = error, True
            if ticket is not leader:
                ticket.called.release()
        self._call_next()

    def _call_next(self) -> None:
        with self._mutex:
            self._led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].called.release()


def now_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def mutex() -> threading.Lock:
    """One thread at a time; entered with `with`."""
    return threading.Lock()


def own_pid() -> int:
    return os.getpid()


def open_files_max() -> int:
    """How many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def was_running(pid: int, at_ns: int) -> bool:
    """Is the process that had this number at that time still running?

    Numbers are given again: one that started later is another process.
    """
    started_ns = process_started_ns(pid)
    return started_ns is not None and started_ns <= at_ns


def process_started_ns(pid: int) -> int | None:
    """When the process with this number started; None if there is none, or only its corpse."""
    if pid <= 0:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    ticks_ns = int(fields[19]) * 10**9 // os.sysconf("SC_CLK_TCK")
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_ns + ticks_ns


class Repeated:
    """A step that a thread of its own takes again and again, `interval_ms` after each time.

    After an error it is not taken again: `error` says why, and whoever relies on it must ask.
    """

    def __init__(self, step: Callable[[], object], interval_ms: float) -> None:
        self.error: BaseException | None = None
        self._step, self._interval_s = step, interval_ms / 1000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-repeated", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return when the step does not run and will not run again."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._step()
            except BaseException as error:
                self.error = error
                return
