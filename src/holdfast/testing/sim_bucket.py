"""A bucket in memory whose network and clock misbehave, by a seed.

The fault model.  The store itself is linearizable: every call that takes effect does so at one
instant.  A call may fail before it takes effect (`refused`: a 503; `unsent`: a timeout), take
effect and lose its answer (`lost answer`), or lose its answer and take effect only later, after
some more calls of any actor (`late`: a packet that was under way when its sender gave up).  All
four are UnavailableError, as they would be outside.  A call may also be `slow`: other actors run
before it takes effect.  The clock that stamps objects is the store's, not the actors', and may be
wrong by any amount.

Every fault that fires is counted: one that never fired has proved nothing.

`before_each` and `after_each` are called in the caller's thread around every call, so that a
scheduler can stop an actor there and let others run; `pause` is called inside slow ones.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from holdfast.bucket import MemoryBucket, ObjectInfo
from holdfast.bucket.bucket import Buffer, checked
from holdfast.errors import UnavailableError
from holdfast.kv.cas.records import SweptError
from holdfast.runtime import now_ms

Result = TypeVar("Result")
CHANGES = frozenset({"put_if_absent", "delete", "copy"})


@dataclass(frozen=True, slots=True)
class Call:
    """What an actor asks of the store: a verb of Bucket (or of Records), and the names."""

    verb: str
    names: tuple[str, ...]


Hook = Callable[[Call], None]


def nothing(call: Call) -> None:
    """Do nothing: the default hook."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault per call."""

    refused: float = 0.0
    unsent: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    late_calls_max: int = 12  # by then a late one has arrived


class FaultyLine:
    """The network to a store: everything that can happen to a call, for one seed."""

    def __init__(self, random: Random, faults: Faults) -> None:
        self.random, self.faults = random, faults
        self.fired: Counter[str] = Counter()
        self.calls = 0
        self.before_each: Hook = nothing
        self.after_each: Hook = nothing
        self.pause: Hook = nothing
        self._late: list[tuple[int, Callable[[], object]]] = []

    def send(self, call: Call, act: Callable[[], Result], *, changes: bool) -> Result:
        """Run `act` once, never, or later."""
        self.before_each(call)
        try:
            return self._send(call, act, changes)
        finally:
            self.after_each(call)

    def settle(self) -> None:
        """Deliver all late calls now."""
        self._deliver(None)

    def _send(self, call: Call, act: Callable[[], Result], changes: bool) -> Result:
        self.calls += 1
        self._deliver(self.calls)
        fate = self._fate(changes)
        if fate == "slow":
            self.fired["slow"] += 1
            self.pause(call)
            fate = ""
        if not fate:
            return act()
        self.fired[fate] += 1
        if fate == "lost answer":
            _tried(act)
        elif fate == "late":
            when = self.calls + 1 + int(self.random.random() * self.faults.late_calls_max)
            self._late.append((when, act))
        raise UnavailableError(f"simulated: {fate}: {call.verb} {' '.join(call.names)}")

    def _fate(self, changes: bool) -> str:
        drawn, faults = self.random.random(), self.faults
        rates = {"refused": faults.refused, "unsent": faults.unsent, "slow": faults.slow}
        if changes:  # losing the answer of a read is the same as not sending it
            rates |= {"lost answer": faults.lost_answer, "late": faults.late}
        for fate, rate in rates.items():
            if drawn < rate:
                return fate
            drawn -= rate
        return ""

    def _deliver(self, now: int | None) -> None:
        due = [item for item in self._late if now is None or item[0] <= now]
        self._late = [item for item in self._late if item not in due]
        for _, act in due:
            self.fired["arrived late"] += 1
            _tried(act)


class SimBucket:
    """See Bucket.  Use one for all actors; give each a RetryingBucket over it."""

    def __init__(
        self,
        random: Random,
        faults: Faults | None = None,
        *,
        clock: Callable[[], int] = now_ms,
        skew_ms: int = 0,
        enforces: bool = True,
    ) -> None:
        self.line = FaultyLine(random, faults or Faults())
        self.skew_ms = skew_ms
        self.enforces = enforces  # else it ignores conditions silently, as some stores do
        self.truth = MemoryBucket(clock=lambda: clock() + self.skew_ms)

    @property
    def fired(self) -> Counter[str]:
        return self.line.fired

    def __repr__(self) -> str:
        return f"SimBucket({self.truth!r})"

    def get(self, name: str) -> bytes:
        return self._send("get", (name,), lambda: self.truth.get(name))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._send("get_range", (name,), lambda: self.truth.get_range(name, start, stop))

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        kept = bytes(data)  # it may arrive after the caller has changed its buffer

        def act() -> None:
            if not self.enforces:
                self.truth.delete(name)
            self.truth.put_if_absent(name, kept)

        self._send("put_if_absent", (checked(name),), act)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return self._send("list", (prefix,), lambda: self.truth.list(prefix, after))

    def delete(self, *names: str) -> None:
        self._send("delete", names, lambda: self.truth.delete(*names))

    def copy(self, source: str, destination: str) -> None:
        names = source, destination
        self._send("copy", names, lambda: self.truth.copy(source, destination))

    def _send(self, verb: str, names: tuple[str, ...], act: Callable[[], Result]) -> Result:
        return self.line.send(Call(verb, names), act, changes=verb in CHANGES)


def _tried(act: Callable[[], object]) -> None:
    """Run a late call; its result is not reported."""
    try:
        act()
    except (FileExistsError, FileNotFoundError, SweptError):
        return
