"""Processes that run one at a time, in an order that a seed decides, in time that is only told.

Every actor is a real thread with real code in it, but there is one baton.  Who has it runs; it is
handed over at every call of a store, every sleep, every wait and now and then at a lock.  So a run
is a function of its seed, and any race it finds can be run again.

Actors belong to processes.  A process has a clock of its own, which may be wrong.  It can be
frozen, and its actors go on much later as if nothing had happened; and it can be killed: from then
on nothing of it acts, whatever its `finally` blocks would like to do.

Time passes a little with each step, and leaps when everybody sleeps.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from types import TracebackType
from typing import TypeVar
from uuid import UUID

from holdfast.runtime import Runtime

Item = TypeVar("Item")
Result = TypeVar("Result")

_START_MS = 1_700_000_000_000.0


class Killed(BaseException):
    """The process of this actor is dead.  No Exception: nobody may handle it."""


class StuckError(Exception):
    """Nobody can go on, or nobody comes to an end."""


@dataclass(slots=True, eq=False)
class Process:
    """What is frozen, killed, and told the time together."""

    name: str
    skew_ms: int = 0
    frozen_until_ms: float = 0.0
    is_dead: bool = False
    thaws: int = 0  # how often it was frozen


@dataclass(slots=True, eq=False)
class Actor:
    """One thread of a process."""

    process: Process
    name: str
    step: Callable[[], None]
    is_main: bool
    baton: threading.Lock = field(default_factory=threading.Lock)
    wake_ms: float = 0.0
    waits_for: object = None  # a lock, a condition, workers; with wake_ms as the deadline
    is_done: bool = False
    thread: threading.Thread | None = None


class Scheduler:
    """Gives the baton to one actor after the other."""

    def __init__(self, random: Random, *, tick_ms: float = 4.0, sticky: float = 0.3) -> None:
        """`sticky`: how often of 1 an actor goes on where another could."""
        self.random, self.ms = random, _START_MS
        self.steps = 0
        self.steps_max = 50_000
        self.fired: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=400)
        self.current: Actor | None = None
        self.failure: BaseException | None = None
        self._tick_ms, self._sticky = tick_ms, sticky
        self._live: list[Actor] = []
        self._is_stopping = False
        self._over = threading.Lock()
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Of all that was noted: the same for the same seed."""
        return self._digest.hexdigest()

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        who = self.current.name if self.current else "-"
        line = f"{self.ms:.0f} {who} {what}"
        self.recent.append(line)
        self._digest.update(line.encode())

    def spawn(self, process: Process, name: str, step: Callable[[], None], *, main: bool) -> Actor:
        """A new thread in a process.  When its main one ends, so does the process."""
        actor = Actor(process, f"{process.name}/{name}" if name else process.name, step, main)
        actor.baton.acquire()
        actor.thread = threading.Thread(target=self._carry, args=(actor,), daemon=True)
        self._live.append(actor)
        actor.thread.start()
        return actor

    def run(self) -> None:
        """Until all actors have ended; the first failure of any of them is raised."""
        self._over.acquire()
        self._pass_on()
        self._over.acquire()
        self._over.release()
        if self.failure is not None:
            raise self.failure

    # For actors

    def step(self, what: str) -> None:
        """A point at which others may go on; time passes."""
        self.steps += 1
        self.note(what)
        if self.steps > self.steps_max:
            self.fail(StuckError(f"no end after {self.steps} steps"))
        self.ms += self.random.random() * self._tick_ms
        self.give_way()

    def give_way(self) -> None:
        """Let chance decide who goes on."""
        if self.random.random() >= self._sticky:
            self._switch()
        else:
            self._check()

    def sleep(self, delay_ms: float) -> None:
        me = self._me()
        me.wake_ms = self.ms + delay_ms
        self._switch()

    def wait_for(self, thing: object, delay_ms: float | None = None) -> bool:
        """Until `wake` is called for it; False if time ran out."""
        me = self._me()
        me.waits_for = thing
        me.wake_ms = float("inf") if delay_ms is None else self.ms + delay_ms
        self._switch()
        timed_out, me.waits_for = me.waits_for is not None, None
        return not timed_out

    def wake(self, thing: object, count: int | None = None) -> None:
        """Let those who wait for it go on: the first `count`, or all."""
        waiting = [actor for actor in self._live if actor.waits_for is thing]
        for actor in waiting[:count]:
            actor.waits_for, actor.wake_ms = None, 0.0

    def freeze(self, process: Process, delay_ms: float) -> None:
        """Nothing of it goes on for so long."""
        process.frozen_until_ms = self.ms + delay_ms
        process.thaws += 1

    def kill(self, process: Process) -> None:
        """Nothing of it goes on at all."""
        process.is_dead = True
        process.frozen_until_ms = 0.0
        for actor in self._live:
            if actor.process is process:
                actor.waits_for, actor.wake_ms = None, 0.0

    def fail(self, error: BaseException) -> None:
        """End everything; this is why."""
        if self.failure is None:
            self.failure = error
        self._is_stopping = True
        raise Killed

    # The baton

    def _me(self) -> Actor:
        if self.current is None:
            raise ValueError("nobody has the baton: only actors may wait")
        return self.current

    def _check(self) -> None:
        if self._is_stopping or self._me().process.is_dead:
            raise Killed

    def _switch(self) -> None:
        me = self._me()
        if self._is_stopping or me.process.is_dead:
            raise Killed
        following = self._choose()
        if following is not me:
            self.current = following
            following.baton.release()
            me.baton.acquire()
        self._check()

    def _choose(self) -> Actor:
        """Anybody who can go on; the clock leaps if nobody can yet."""
        if self._is_stopping:
            return self._live[0]
        while True:
            ready, soonest = [], float("inf")
            for actor in self._live:
                at = max(actor.wake_ms, actor.process.frozen_until_ms)
                if at <= self.ms:
                    ready.append(actor)
                elif at < soonest:
                    soonest = at
            if ready:
                return ready[int(self.random.random() * len(ready))]
            if soonest == float("inf"):
                self.failure = self.failure or StuckError(f"all wait: {self._waiting()}")
                self._is_stopping = True
                return self._live[0]
            self.ms = soonest

    def _pass_on(self) -> None:
        if not self._live:
            self.current = None
            self._over.release()
            return
        self.current = self._choose()
        self.current.baton.release()

    def _carry(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            self._check()
            actor.step()
        except Killed:
            self.note("ends")
        except BaseException as error:
            if not self._is_stopping:
                self.failure, self._is_stopping = error, True
        actor.is_done = True
        self._live.remove(actor)
        if actor.is_main:
            self.kill(actor.process)
        self.wake(actor)
        self._pass_on()

    def _waiting(self) -> str:
        return ", ".join(f"{actor.name} for {actor.waits_for!r}" for actor in self._live)

    # What a store is given

    def runtime(self, process: Process) -> Runtime:
        """Time, chance and threads of one process."""
        return Runtime(
            now_ms=lambda: int(self.ms) + process.skew_ms,
            monotonic_ms=lambda: int(self.ms - _START_MS),
            new_id=self.new_id,
            jitter=lambda most: self.random.random() * most,
            sleep_ms=self.sleep,
            lock=lambda: SimLock(self),
            condition=lambda lock: SimCondition(self, lock),
            workers=lambda count: SimWorkers(self, process, count),
            ticker=lambda interval_ms, step: SimTicker(self, process, interval_ms, step),
        )

    def new_id(self) -> UUID:
        return UUID(bytes=self.random.randbytes(16))


class SimLock:
    """See runtime.Lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.owner: Actor | None = None

    def __enter__(self) -> bool:
        if self._scheduler.random.random() < 0.03:
            self._scheduler.give_way()
        self.acquire()
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.release()

    def acquire(self) -> None:
        while self.owner is not None:
            self._scheduler.wait_for(self)
        self.owner = self._scheduler.current

    def release(self) -> None:
        if self.owner is self._scheduler.current:  # else we were killed while we waited for it
            self.owner = None
            self._scheduler.wake(self)


class SimCondition:
    """See runtime.Condition."""

    def __init__(self, scheduler: Scheduler, lock: SimLock) -> None:
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


class SimWorkers:
    """See runtime.Workers.  What is submitted runs in actors; `map` in the caller's."""

    def __init__(self, scheduler: Scheduler, process: Process, count: int) -> None:
        self._scheduler, self._process, self._count = scheduler, process, count
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def submit(self, step: Callable[[], None], /) -> None:
        self._waiting.append(step)
        if self._running < self._count:
            self._running += 1
            self._scheduler.spawn(self._process, "worker", self._work, main=False)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        return [function(item) for item in items]

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
        self, scheduler: Scheduler, process: Process, interval_ms: float, step: Callable[[], None]
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
