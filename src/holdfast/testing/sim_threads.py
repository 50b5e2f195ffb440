"""Locks, conditions and threads of a simulated process.  See holdfast.testing.actors."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from holdfast.testing.actors import Actor, Process, Scheduler

Item = TypeVar("Item")
Result = TypeVar("Result")


class SimLock:
    """See runtime.Lock."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self.owner: Actor | None = None

    def __enter__(self) -> bool:
        if self._scheduler.random.random() < 0.03:
            self._scheduler.give_way()
        self.acquire()
        return True

    def __exit__(self, *error: object) -> None:
        self.release()

    def acquire(self) -> None:
        while self.owner is not None:
            self._scheduler.wait_for(self)
        self.owner = self._scheduler.current

    def release(self) -> None:
        if self.owner is self._scheduler.current:  # else we were killed while we waited for it
            self.owner = None
            self._scheduler.wake(self)


class SimReentrantLock(SimLock):
    """A lock that its owner may take again.  See runtime.Runtime.reentrant_lock."""

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._depth = 0

    def acquire(self) -> None:
        if self.owner is None or self.owner is not self._scheduler.current:
            super().acquire()
            self._depth = 0
        self._depth += 1

    def release(self) -> None:
        if self.owner is self._scheduler.current:
            self._depth -= 1
            if not self._depth:
                super().release()


class SimCondition:
    """See runtime.Condition."""

    def __init__(self, scheduler: "Scheduler", lock: SimLock) -> None:
        self._scheduler, self._lock = scheduler, lock

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        notified = self._scheduler.wait_for(self, None if timeout is None else timeout * 1000)
        self._lock.acquire()
        return notified

    def notify(self, n: int = 1) -> None:
        self._scheduler.wake(self, n)

    def notify_all(self) -> None:
        self._scheduler.wake(self)


class SimGate:
    """See runtime.Gate."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler, self._is_open = scheduler, False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_open:
            self._scheduler.wait_for(self, None if timeout is None else timeout * 1000)
        return self._is_open

    def open(self) -> None:
        self._is_open = True
        self._scheduler.wake(self)


class SimWorkers:
    """See runtime.Workers.  What is submitted runs in actors; `map` in the caller's, shuffled."""

    def __init__(self, scheduler: "Scheduler", process: "Process", count: int) -> None:
        self._scheduler, self._process, self._count = scheduler, process, count
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def submit(self, step: Callable[[], None], /) -> None:
        self._waiting.append(step)
        if self._running < self._count:
            self._running += 1
            self._scheduler.spawn(self._process, "worker", self._work, main=False)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        found = dict(enumerate(items))
        order = list(found)
        self._scheduler.random.shuffle(order)
        results = {number: function(found[number]) for number in order}
        return [results[number] for number in found]

    def close(self) -> None:
        while self._running:
            self._scheduler.wait_for(self)

    def _work(self) -> None:
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._running -= 1
            self._scheduler.wake(self)


class SimTicker:
    """See runtime.Ticker."""

    def __init__(
        self,
        scheduler: "Scheduler",
        process: "Process",
        interval_ms: float,
        step: Callable[[], None],
    ) -> None:
        self._scheduler, self._interval_ms, self._step = scheduler, interval_ms, step
        self._is_closed = False
        self._actor = scheduler.spawn(process, "ticker", self._run, main=False)

    def close(self) -> None:
        self._is_closed = True
        while not self._actor.is_done and self._actor is not self._scheduler.current:
            self._scheduler.wait_for(self._actor)

    def _run(self) -> None:
        while True:
            self._scheduler.sleep(self._interval_ms)
            if self._is_closed:
                return
            self._step()
