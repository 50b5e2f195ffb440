"""Owners that signals interrupt: a handler that writes, and Ctrl-C at any time."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.testing.owners.stores import OwnedStore
from holdfast.testing.owners.tools import LIMIT_S, compare

INTERRUPTS, REENTRIES = 40, 3


def a_signal_handler_writes(kind: OwnedStore, path: Path) -> None:
    """Write in a signal handler: if it interrupts a write of the same thread, it is refused at
    once.
    """
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


class CtrlC:
    """One Ctrl-C, some time after a step has started, if the step has not ended."""

    def __init__(self) -> None:
        self.hits = 0
        self._armed: list[bool] = []  # empty: the signal came too late
        signal.signal(signal.SIGALRM, self._interrupt)

    def during(self, step: Callable[[], object], after_s: float) -> None:
        """Run `step`, which may be interrupted, or refused because of an interruption before."""
        try:
            try:
                self._armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, after_s)
                step()
            finally:
                self._armed.clear()
                signal.setitimer(signal.ITIMER_REAL, 0)
        except (KeyboardInterrupt, HoldfastError):
            pass

    def _interrupt(self, *_: object) -> None:
        if self._armed:
            self._armed.clear()
            self.hits += 1
            raise KeyboardInterrupt


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
    """Work in a separate function: since 3.12 an interruption at the turn of a loop may miss the
    `with` around the loop.  It ends without an interruption, because a finalizer may swallow it.
    """
    for number in islice(numbers, 100):
        tried.add(number)
        kind.write(store, number, number + 10**6)
        written |= {number, number + 10**6}
        if number % 5 == 0:
            kind.change(store)
        if number % 7 == 0:
            kind.scan(store)


def ctrl_c_at_any_moment(kind: OwnedStore, path: Path) -> None:
    """Interrupt open, write, change, scan and close: no deadlock, no lock kept, no entry lost."""
    random, numbers = Random(13), count(1)
    written: set[int] = set()
    tried: set[int] = set()
    ctrl_c = CtrlC()
    began = time.monotonic()
    while ctrl_c.hits < INTERRUPTS and time.monotonic() - began < LIMIT_S / 2:
        ctrl_c.during(lambda: kind.open(path).close(), random.uniform(1e-4, 5e-3))
        store = kind.open(path)
        beside = _Beside(kind, store, numbers)
        work = partial(_work, kind, store, numbers, tried, written)
        ctrl_c.during(work, random.uniform(1e-4, 2e-2))
        beside.stop()
        written.update(beside.written)
        tried.update(beside.tried)
        ctrl_c.during(store.close, random.uniform(1e-5, 1e-3))
        store.close()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert ctrl_c.hits >= INTERRUPTS / 4, f"only {ctrl_c.hits} interruptions"
    kind.open(path).close()  # recovers
    found = set(kind.read(path))
    assert written <= found, f"lost: {sorted(written - found)}"
    allowed = written | tried | {number + 10**6 for number in tried}
    assert found <= allowed, f"invented: {sorted(found - allowed)}"
