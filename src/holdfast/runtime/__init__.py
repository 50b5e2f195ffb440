"""Clocks, identifiers, threads and processes: everything that a simulation replaces.

Stores import neither time, uuid, threading nor os.  Each store is given a `Runtime`, and takes all
of this from it.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.runtime.clock import (
    from_rfc3339,
    monotonic,
    monotonic_ms,
    now_ms,
    now_ns,
    sleep_ms,
    to_rfc3339,
)
from holdfast.runtime.ids import Numbers, jitter, new_id
from holdfast.runtime.process import (
    hostname,
    open_files_max,
    process_id,
    process_mark,
    process_started_ns,
    program,
    was_running,
)
from holdfast.runtime.threads import (
    Condition,
    Gate,
    Lock,
    ThreadGate,
    ThreadTicker,
    ThreadWorkers,
    Ticker,
    Workers,
    until_called,
)

__all__ = [
    "Condition",
    "Gate",
    "Lock",
    "Numbers",
    "Runtime",
    "ThreadGate",
    "ThreadTicker",
    "ThreadWorkers",
    "Ticker",
    "Workers",
    "from_rfc3339",
    "hostname",
    "jitter",
    "monotonic",
    "monotonic_ms",
    "new_id",
    "now_ms",
    "now_ns",
    "open_files_max",
    "process_id",
    "process_mark",
    "process_started_ns",
    "program",
    "sleep_ms",
    "to_rfc3339",
    "until_called",
    "was_running",
]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clocks, random numbers, threads and processes for a store.  A simulation passes another one.

    `condition(lock)` belongs to that lock; several conditions may belong to one lock.
    `thread_id()` identifies a thread; `was_running(pid, at_ns)` and `process_mark(pid)` identify a
    process.
    """

    now_ns: Callable[[], int] = now_ns
    monotonic_ms: Callable[[], int] = monotonic_ms
    monotonic: Callable[[], float] = monotonic
    new_id: Callable[[], uuid.UUID] = new_id
    jitter: Callable[[float], float] = jitter
    sleep_ms: Callable[[float], None] = sleep_ms
    lock: Callable[[], Lock] = threading.Lock
    reentrant_lock: Callable[[], Lock] = threading.RLock
    condition: Callable[[Any], Condition] = threading.Condition
    gate: Callable[[], Gate] = ThreadGate
    workers: Callable[[int], Workers] = ThreadWorkers
    ticker: Callable[[float, Callable[[], None]], Ticker] = ThreadTicker
    thread_id: Callable[[], int] = threading.get_ident
    process_id: Callable[[], int] = process_id
    hostname: Callable[[], str] = hostname
    was_running: Callable[[int, int], bool] = was_running
    process_mark: Callable[[int], str | None] = process_mark
    program: Callable[[], str] = program

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self.now_ns() // 1_000_000
