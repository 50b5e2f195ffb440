"""Processes that run one at a time, in an order that a seed decides, in simulated time.

Every actor is a real thread with real code, but only one runs at a time.  The scheduler may switch
at every call of a store, every sleep, every wait and sometimes at a lock.  So a run is a function
of its seed, and a race that it finds can be repeated.

Actors belong to processes.  A process has its own clock, which may be wrong.  It can be frozen: its
actors continue much later, without notice.  Its clocks may stand still meanwhile, as those of a
virtual machine that is paused, moved or restored.  It can be killed: from then on none of its
actors runs, and `finally` blocks have no effect.

Time passes a little with each step, and jumps when all actors sleep.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from uuid import UUID

from holdfast.runtime import Runtime
from holdfast.testing.sim_threads import (
    SimCondition,
    SimGate,
    SimLock,
    SimReentrantLock,
    SimTicker,
    SimWorkers,
)

_START_MS = 1_700_000_000_000.0


class Killed(BaseException):
    """The process of this actor is dead.  Not an Exception: no code may handle it."""


class StuckError(Exception):
    """No actor can continue, or the actors do not end."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What happened in a run that kept all promises."""

    seed: int
    steps: int
    acknowledged: int
    judged: int  # states that were compared with the ledger
    digest: str  # of every call, in order
    events: dict[str, int]
    mode: str = ""


@dataclass(slots=True, eq=False)
class Process:
    """Actors that are frozen and killed together, and share a clock."""

    name: str
    skew_ms: int = 0
    id: int = 0  # set when its first actor or its runtime is made
    started_ms: float = 0.0
    frozen_until_ms: float = 0.0
    is_dead: bool = False
    thaws: int = 0  # how often it was frozen
    paused_ms: float = 0.0  # how long its clocks stood still


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
    id: int = 0


class Scheduler:
    """Runs one actor at a time."""

    def __init__(self, random: Random, *, tick_ms: float = 4.0, sticky: float = 0.3) -> None:
        """`sticky` is the probability that an actor continues where another could run."""
        self.random, self.ms = random, _START_MS
        self.steps = 0
        self.steps_max = 50_000
        self.fired: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=400)
        self.current: Actor | None = None
        self.failure: BaseException | None = None
        self._tick_ms, self._sticky = tick_ms, sticky
        self._live: list[Actor] = []
        self._processes: list[Process] = []  # a process has its place here as its id, from 1
        self._actor_count = 0
        self._is_stopping = False
        self._over = threading.Lock()
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Return a digest of the trace: the same for the same seed."""
        return self._digest.hexdigest()

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        who = self.current.name if self.current else "-"
        line = f"{self.ms:.0f} {who} {what}"
        self.recent.append(line)
        self._digest.update(line.encode())

    def spawn(self, process: Process, name: str, step: Callable[[], None], *, main: bool) -> Actor:
        """Start a thread in a process.  When its main thread ends, so does the process."""
        actor = Actor(process, f"{process.name}/{name}" if name else process.name, step, main)
        self._actor_count += 1
        actor.id = self._actor_count
        self._register(process)
        actor.baton.acquire()
        actor.thread = threading.Thread(target=self._carry, args=(actor,), daemon=True)
        self._live.append(actor)
        actor.thread.start()
        return actor

    def run(self) -> None:
        """Run until all actors have ended; raise the first failure."""
        self._over.acquire()
        self._pass_on()
        self._over.acquire()
        self._over.release()
        if self.failure is not None:
            raise self.failure

    # For actors

    def step(self, what: str) -> None:
        """Let time pass, and perhaps switch to another actor."""
        self.steps += 1
        self.note(what)
        if self.steps > self.steps_max:
            self.fail(StuckError(f"no end after {self.steps} steps"))
        self.ms += self.random.random() * self._tick_ms
        self.give_way()

    def give_way(self) -> None:
        """Choose at random which actor continues."""
        if self.random.random() >= self._sticky:
            self._switch()
        else:
            self._check()

    def sleep(self, delay_ms: float) -> None:
        me = self._me()
        me.wake_ms = self.ms + delay_ms
        self._switch()

    def join(self, actors: Iterable[Actor]) -> None:
        """Wait until these have come to their end."""
        for actor in actors:
            while not actor.is_done:
                self.wait_for(actor)

    def wait_for(self, thing: object, delay_ms: float | None = None) -> bool:
        """Wait until `wake` is called for it; False after the timeout."""
        me = self._me()
        me.waits_for = thing
        me.wake_ms = float("inf") if delay_ms is None else self.ms + delay_ms
        self._switch()
        timed_out, me.waits_for = me.waits_for is not None, None
        return not timed_out

    def wake(self, thing: object, count: int | None = None) -> None:
        """Wake the actors that wait for it: the first `count`, or all."""
        waiting = [actor for actor in self._live if actor.waits_for is thing]
        for actor in waiting[:count]:
            actor.waits_for, actor.wake_ms = None, 0.0

    def freeze(self, process: Process, delay_ms: float, *, pause: bool = False) -> None:
        """Freeze a process for this time; with `pause`, its clocks stand still meanwhile."""
        process.frozen_until_ms = self.ms + delay_ms
        process.thaws += 1
        if pause:
            process.paused_ms += delay_ms

    def kill(self, process: Process) -> None:
        """Kill a process: none of its actors runs again."""
        process.is_dead = True
        process.frozen_until_ms = 0.0
        for actor in self._live:
            if actor.process is process:
                actor.waits_for, actor.wake_ms = None, 0.0

    def fail(self, error: BaseException) -> None:
        """End the run with this error."""
        if self.failure is None:
            self.failure = error
        self._is_stopping = True
        raise Killed

    # The baton

    def _me(self) -> Actor:
        if self.current is None:
            raise ValueError("no actor runs: only actors may wait")
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
        """Choose an actor that can continue; advance the clock if none can yet."""
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
        """Return the clocks, random numbers, threads and process id of one process."""
        self._register(process)

        def clock() -> float:
            return self.ms - process.paused_ms

        return Runtime(
            now_ns=lambda: (int(clock()) + process.skew_ms) * 1_000_000,
            monotonic_ms=lambda: int(clock() - _START_MS),
            monotonic=lambda: (clock() - _START_MS) / 1000,
            new_id=self.new_id,
            jitter=lambda most: self.random.random() * most,
            sleep_ms=self.sleep,
            lock=lambda: SimLock(self),
            reentrant_lock=lambda: SimReentrantLock(self),
            condition=lambda lock: SimCondition(self, lock),
            gate=lambda: SimGate(self),
            workers=lambda count: SimWorkers(self, process, count),
            ticker=lambda interval_ms, step: SimTicker(self, process, interval_ms, step),
            thread_id=lambda: self.current.id if self.current else 0,
            process_id=lambda: process.id,
            hostname=lambda: "host",
            was_running=self.was_running,
            process_mark=self.process_mark,
            program=lambda: process.name,
        )

    def was_running(self, process_id: int, at_ns: int) -> bool:
        """Return whether the process that had this id then is alive.  No id is used twice."""
        if not 1 <= process_id <= len(self._processes):
            return False
        process = self._processes[process_id - 1]
        started_ns = (int(process.started_ms) + process.skew_ms) * 1_000_000
        return not process.is_dead and started_ns <= at_ns

    def process_mark(self, process_id: int) -> str | None:
        """Return what distinguishes a process; None if it is dead."""
        known = 1 <= process_id <= len(self._processes)
        dead = not known or self._processes[process_id - 1].is_dead
        return None if dead else f"boot space {process_id}"

    def _register(self, process: Process) -> None:
        if not process.id:
            self._processes.append(process)
            process.id, process.started_ms = len(self._processes), self.ms

    def new_id(self) -> UUID:
        return UUID(bytes=self.random.randbytes(16))
