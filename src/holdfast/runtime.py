"""Clocks, identities and threads: what a simulation replaces, kept beside the doors.

Stores never import time, uuid or threading; they use, and are given, what is here.  Whoever holds a
file, a thread or a lease is Closing.
"""

import os
import random
import resource
import socket
import threading
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Never, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor

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


def hostname() -> str:
    return socket.gethostname()


def process_id() -> int:
    return os.getpid()


class Numbers:
    """Numbers in a row for many threads: no two are given the same."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._mutex = threading.Lock()

    def take(self, count: int) -> int:
        """The first of `count` numbers."""
        with self._mutex:
            first, self._next = self._next, self._next + count
        return first


def monotonic_ms() -> int:
    """Milliseconds since the machine started.  Time that it slept counts too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def jitter(most: float) -> float:
    """Any number from 0 to `most`."""
    return random.uniform(0, most)


def sleep_ms(delay_ms: float) -> None:
    time.sleep(delay_ms / 1000)


def cannot_be_sent(store: object) -> Never:
    """For `__reduce__`: what is open belongs to its process."""
    kind = type(store).__name__
    raise TypeError(f"an open {kind} cannot be sent to another process; open the store again there")


class Closing(ABC):
    """What is closed where a `with` block ends."""

    __reduce__ = cannot_be_sent

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Lock(Protocol):
    """One thread at a time; entered with `with`."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


def reentrant_lock() -> Lock:
    """A lock that the thread which holds it may take again."""
    return threading.RLock()


class Condition(Protocol):
    """Where threads that hold its lock wait until others tell them to look again."""

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock, wait to be notified, hold it again; False if time ran out."""
        ...

    def notify(self, n: int = 1) -> None: ...

    def notify_all(self) -> None: ...


class Workers(Protocol):
    """A few threads for what need not be done by the caller's."""

    def submit(self, step: Callable[[], None], /) -> None:
        """Run `step` soon.  It keeps its errors to itself."""
        ...

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        """The answers in the order of the items; the first error is raised."""
        ...

    def close(self) -> None:
        """Return when all that was submitted has run."""
        ...


class Ticker(Protocol):
    """A step that is called again and again."""

    def close(self) -> None:
        """Return when the step does not run and will not run again."""
        ...


class ThreadWorkers:
    """See Workers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._executor: Executor | None = None  # many stores never need one
        self._mutex = threading.Lock()

    def submit(self, step: Callable[[], None], /) -> None:
        self._threads().submit(step)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        return list(self._threads().map(function, items))

    def close(self) -> None:
        with self._mutex:
            executor = self._executor
        if executor is not None:
            executor.shutdown()

    def _threads(self) -> "Executor":
        with self._mutex:
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(self._count, "holdfast")
            return self._executor


class ThreadTicker:
    """See Ticker.  The first call is one interval after the start.

    The thread keeps no store alive that nobody else refers to: where Ctrl-C ends an open after the
    thread was started, and nobody is left to close the store, the store is garbage like any other.
    """

    def __init__(self, interval_ms: float, step: Callable[[], None]) -> None:
        self._interval = interval_ms / 1000
        self._step = weakref.WeakMethod(step) if isinstance(step, MethodType) else lambda: step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-ticker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval) and (step := self._step()) is not None:
            step()
            del step  # it refers to the store


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that a store sees of time, chance and threads.  A simulation gives another one.

    `condition(lock)` belongs to that lock; several may belong to one.
    """

    now_ms: Callable[[], int] = now_ms
    monotonic_ms: Callable[[], int] = monotonic_ms
    new_id: Callable[[], uuid.UUID] = new_id
    jitter: Callable[[float], float] = jitter
    sleep_ms: Callable[[float], None] = sleep_ms
    lock: Callable[[], Lock] = threading.Lock
    condition: Callable[[Any], Condition] = threading.Condition
    workers: Callable[[int], Workers] = ThreadWorkers
    ticker: Callable[[float, Callable[[], None]], Ticker] = ThreadTicker


def until_called(subscribe: Callable[[Callable[[], None]], None]) -> Generator[Any, None, None]:
    """For `__await__`: suspend the task until what was given to `subscribe` is called, anywhere."""
    import asyncio  # it takes a while, and few need it

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():  # it may have been cancelled
            woken.set_result(None)

    def wake_from_any_thread() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    subscribe(wake_from_any_thread)
    return woken.__await__()


def now_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def own_pid() -> int:
    return os.getpid()


def open_files_max() -> int:
    """How many files this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit


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
