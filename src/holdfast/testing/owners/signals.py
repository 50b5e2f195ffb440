"""Owners that signals interrupt: a handler that writes, and Ctrl-C at any moment."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.testing.owners.stores import OwnedStore
from holdfast.testing.owners.tools import LIMIT_S, compare

INTERRUPTS, REENTRIES = 40, 3


def a_signal_handler_writes(kind: OwnedStore, path: Path) -> None:
    """It may interrupt a write of the same thread: then it is refused, and nothing waits."""
    store, numbers, written, refused = kind.open(path), count(1), list[int](), list[str]()

    def handler(*_: object) -> None:
        number = next(numbers)
        try:
            kind.write(store, number)
            written.append(number)
        except HoldfastError as error:
            refused.append(str(error))

    signal.signal(signal.SIGUSR1, handler)
    signal.alarm(LIMIT_S)
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.001):
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    while len(refused) < REENTRIES or len(written) < 100:
        number = next(numbers)
        kind.write(store, number)
        written.append(number)
    stop.set()
    thread.join()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert all("signal handler" in why for why in refused), refused
    store.close()
    compare(kind, path, sorted(written))


@contextmanager
def interrupted(after_s: float) -> Iterator[None]:
    """Ctrl-C comes once, some time after the block has begun, if it is not over before."""
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Beside:
    """A thread that writes while the main thread is interrupted."""

    def __init__(self, kind: OwnedStore, store: Any, numbers: "count[int]") -> None:
        self.written: list[int] = []
        self.tried: list[int] = []
        self._kind, self._store, self._numbers = kind, store, numbers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with suppress(HoldfastError):  # poisoned by the interruption
            while not self._stop.is_set():
                number = next(self._numbers)
                self.tried.append(number)
                self._kind.write(self._store, number)
                self.written.append(number)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "a follower waits for a leader that was interrupted"


def _work(
    kind: OwnedStore, store: Any, numbers: "count[int]", tried: set[int], written: set[int]
) -> None:
    """A function of its own: since 3.12 an interruption where a loop turns may miss the `with` that
    the loop is in.  It ends by itself, because a finalizer may swallow the interruption."""
    for number in islice(numbers, 100):
        tried.add(number)
        kind.write(store, number, number + 10**6)
        written |= {number, number + 10**6}
        if number % 5 == 0:
            kind.change(store)
        if number % 7 == 0:
            kind.scan(store)


def ctrl_c_at_any_moment(kind: OwnedStore, path: Path) -> None:
    """In open, write, change, scan and close: no deadlock, no lock kept, nothing lost."""
    random, numbers = Random(13), count(1)
    written: set[int] = set()
    tried: set[int] = set()
    hits = 0

    def interrupt(*_: object) -> None:
        nonlocal hits
        hits += 1
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    while hits < INTERRUPTS and time.monotonic() - began < LIMIT_S / 2:
        with suppress(KeyboardInterrupt), interrupted(random.uniform(1e-4, 5e-3)):
            kind.open(path).close()
        store = kind.open(path)
        beside = _Beside(kind, store, numbers)
        with suppress(KeyboardInterrupt, HoldfastError), interrupted(random.uniform(1e-4, 2e-2)):
            _work(kind, store, numbers, tried, written)
        beside.stop()
        written.update(beside.written)
        tried.update(beside.tried)
        with suppress(KeyboardInterrupt), interrupted(random.uniform(1e-5, 1e-3)):
            store.close()
        store.close()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert hits >= INTERRUPTS / 4, f"only {hits} interruptions"
    kind.open(path).close()  # recovers
    found = set(kind.read(path))
    assert written <= found, f"lost: {sorted(written - found)}"
    allowed = written | tried | {number + 10**6 for number in tried}
    assert found <= allowed, f"invented: {sorted(found - allowed)}"
