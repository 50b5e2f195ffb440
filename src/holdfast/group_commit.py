"""One commit for all threads that wait, also under Ctrl-C, signals and fork.

A signal handler runs between any two instructions of the main thread.  So

- a call by a thread that is inside a call already would wait for itself: it is refused;
- a KeyboardInterrupt may end a call anywhere.  The leading thread is identified by its number, and
  leads only while it is inside a call: a waiting thread notices that its leader has left;
- a forked child has one thread, and copies of locks that others may have held: it gets new ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast.errors import HoldfastError, NotOwnerError, PoisonedError
from holdfast.forks import disown_in_children
from holdfast.runtime import Gate, Runtime, Workers, until_called

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_S = 1.0  # seconds that a thread waits before it checks whether its leader has left

_INTERRUPTED = (
    "the thread that wrote this batch together with others was interrupted, and whether it is "
    "durable is not known; reopen the store and look"
)
_REENTERED = (
    "this thread is in a call of the same store already: a signal handler or a finalizer has "
    "interrupted it; set a flag there, and write after the handler has returned"
)
_FORKED = (
    "this batch was submitted by the process that this one is a fork of; wait for it there, or "
    "open the store again here"
)


class Alone:
    """Runs steps one at a time.  A thread that runs one cannot begin another."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._thread_id = runtime, runtime.thread_id
        self._inside: set[int] = set()  # threads that run a step or wait for it
        self._running = runtime.lock()
        disown_in_children(self)

    def run(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no other step runs.  HoldfastError if this thread is in one."""
        me = self._thread_id()
        if me in self._inside:
            raise HoldfastError(_REENTERED)
        try:
            self._inside.add(me)
            with self._running:
                return step()
        finally:
            self._inside.discard(me)

    def disown(self) -> None:
        """See holdfast.forks.  The only thread of a child is outside."""
        self._inside = set()
        self._running = self._runtime.lock()


class _Entry(Generic[Item]):
    """One item on its way to a commit.  `thread` is 0 if no thread waits for it."""

    __slots__ = ("callbacks", "called", "done", "error", "item", "thread")

    def __init__(self, item: Item, thread: int, called: Gate | None) -> None:
        self.item, self.thread, self.called = item, thread, called
        self.done = False
        self.error: Exception | None = None
        self.callbacks: list[Callable[[], None]] = []


class Fate(Protocol):
    """The outcome of a write that was submitted, as far as it is known."""

    done: bool
    error: Exception | None


class Queue(Protocol):
    """What decides the outcome of a write."""

    def wait(self, fate: Any, timeout: float | None, /) -> None:
        """Return when it is decided; TimeoutError after `timeout` seconds."""

    def subscribe(self, fate: Any, callback: Callable[[], None], /) -> None:
        """Call `callback` once, from any thread, when it is decided."""


class Submitted(ABC):
    """A write that was submitted: wait for it with `result`, or with `await` in asyncio.

    It becomes durable whether or not a thread waits for it.
    """

    __slots__ = ("_fate", "_queue")

    _fate: Fate
    _queue: Queue

    def __repr__(self) -> str:
        state = "pending" if not self._fate.done else "failed" if self._fate.error else "durable"
        return f"<Submitted: {state}>"

    @abstractmethod
    def _number(self) -> int:
        """Return the number of a write that is durable."""

    def done(self) -> bool:
        """Return whether the write is durable or has failed."""
        return self._fate.done

    def result(self, timeout: float | None = None) -> int:
        """Return the number of the write when it is durable, or raise the error of its commit.

        This is the last index of a batch, the tgid of a group of bars, or the sequence number of a
        key.  TimeoutError after `timeout` seconds; the write continues.
        """
        if not self._fate.done:
            self._queue.wait(self._fate, timeout)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, int]:
        if not self._fate.done:
            yield from until_called(lambda wake: self._queue.subscribe(self._fate, wake))
        return self._outcome()

    def _outcome(self) -> int:
        if self._fate.error is not None:
            raise self._fate.error
        return self._number()


class _Ticket(Submitted, Generic[Item]):
    __slots__ = ("_item", "_number_of")

    def __init__(
        self, queue: "GroupCommit[Item]", entry: _Entry[Item], number_of: Callable[[Item], int]
    ) -> None:
        self._queue, self._fate, self._item, self._number_of = queue, entry, entry.item, number_of

    def _number(self) -> int:
        return self._number_of(self._item)


class GroupCommit(Alone, Generic[Item]):
    """One commit serves all that wait: leader and followers.

    `commit` is called by one thread at a time with all items that arrived while the last commit
    ran, in order of arrival.  If it raises, every item of the group gets the error.  The leader
    serves one group and then calls the next thread to lead.  If no thread waits for the items that
    were submitted, a worker leads.

    A KeyboardInterrupt in a thread that waits takes its item back, unless it is being written.
    In the leader it ends the commit: the others get PoisonedError.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], None], runtime: Runtime) -> None:
        super().__init__(runtime)
        self._commit = commit
        self._mutex = runtime.lock()  # guards what follows; held briefly
        self._waiting: list[_Entry[Item]] = []
        self._writing: list[_Entry[Item]] = []
        self._leader = 0  # the thread that leads, if it is inside
        self._workers: Workers | None = None  # made for the first item that is submitted
        self._is_called = False  # a worker will lead, or does

    def commit(self, item: Item) -> None:
        """Return when `item` is committed, or raise what its commit raised."""
        me = self._thread_id()
        if me in self._inside:
            raise HoldfastError(_REENTERED)
        entry: _Entry[Item] | None = None
        try:
            self._inside.add(me)
            with self._mutex:
                is_led = self._is_led(me)
                if is_led or self._waiting:
                    entry = _Entry(item, me, self._runtime.gate())
                    self._waiting.append(entry)
                if not is_led:
                    self._leader = me
            if entry is None:  # no thread leads, and no item waits
                with self._running:
                    self._commit((item,))
            elif is_led:
                self._follow(entry)
            else:
                self._serve(entry)
        finally:
            try:
                if self._leader == me or (entry is not None and not entry.done):
                    self._leave(me, entry)
            finally:
                self._inside.discard(me)
        if entry is not None and entry.error is not None:
            raise entry.error

    def submit(self, item: Item, number_of: Callable[[Item], int]) -> Submitted:
        """Queue `item` for a commit, in order, and return without waiting for it.

        `number_of` returns the number of an item that was committed, or raises why it was refused.
        """
        if self._thread_id() in self._inside:
            raise HoldfastError(_REENTERED)
        entry = _Entry(item, 0, None)
        with self._mutex:
            self._waiting.append(entry)
            self._call_worker()
        return _Ticket(self, entry, number_of)

    def wait(self, entry: _Entry[Item], timeout: float | None) -> None:
        """See Queue."""
        if self._thread_id() in self._inside:
            raise HoldfastError(_REENTERED)
        if timeout is None:
            self._lead()  # at once, rather than when the worker wakes up
        decided = self._runtime.gate()
        self.subscribe(entry, decided.open)
        if not decided.wait(timeout) and not entry.done:
            raise TimeoutError(f"not committed within {timeout} s; its commit continues")

    def subscribe(self, entry: _Entry[Item], callback: Callable[[], None]) -> None:
        """See Queue."""
        with self._mutex:
            if not entry.done:
                entry.callbacks.append(callback)
                return
        callback()

    def exclusively(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no commit runs."""
        return self.run(step)

    def close(self) -> None:
        """Return when everything that was submitted is decided, and stop the worker."""
        if self._thread_id() in self._inside:
            raise HoldfastError(_REENTERED)
        while self._waiting or self._writing:
            self._lead()
            self.run(lambda: None)  # another thread may lead
        with self._mutex:
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    def disown(self) -> None:
        super().disown()
        self._mutex = self._runtime.lock()
        for entry in (*self._writing, *self._waiting):
            entry.error, entry.done = NotOwnerError(_FORKED), True
        self._waiting, self._writing, self._leader = [], [], 0
        self._workers, self._is_called = None, False

    def _is_led(self, me: int) -> bool:
        """Return whether another thread leads.  One that was interrupted may have left."""
        return self._leader != me and self._leader in self._inside

    def _follow(self, entry: _Entry[Item]) -> None:
        assert entry.called is not None
        while not entry.called.wait(_LOOK_S):
            with self._mutex:
                if self._is_led(entry.thread) or entry.done:
                    continue
                if entry not in self._waiting:  # its leader left during the commit
                    raise PoisonedError(_INTERRUPTED)
                self._leader = entry.thread
                break
        if not entry.done:
            self._serve(entry)

    def _lead(self) -> None:
        """Commit all waiting items, unless another thread leads."""
        me = self._thread_id()
        try:
            self._inside.add(me)
            while self._begin(me):
                self._serve(None)
        finally:
            try:
                self._leave(me, None)
            finally:
                self._inside.discard(me)

    def _lead_as_worker(self) -> None:
        self._is_called = False
        self._lead()

    def _begin(self, me: int) -> bool:
        with self._mutex:
            if not self._waiting or self._is_led(me):
                return False
            self._leader = me
            return True

    def _serve(self, leader: _Entry[Item] | None) -> None:
        # No loop lies in a `with` here: since 3.12 an interruption where a loop turns may miss it.
        with self._running:
            self._serve_all(leader)

    def _serve_all(self, leader: _Entry[Item] | None) -> None:
        with self._mutex:
            group, self._waiting = self._waiting, []
            self._writing = group
        error: Exception | None = PoisonedError(_INTERRUPTED)
        try:
            self._commit(_items_of(group))
            error = None
        except Exception as raised:
            error = raised
        finally:  # also when interrupted: no thread may wait without end
            with self._mutex:
                self._writing = []
                callbacks = _decide(group, leader, error)
            _call(callbacks)

    def _leave(self, me: int, entry: _Entry[Item] | None) -> None:
        """Wake the next leader; take back items that no thread has started to write."""
        with self._mutex:
            if entry is not None and entry in self._waiting:
                self._waiting.remove(entry)
            if self._leader == me:
                following = _first_thread(self._waiting)
                self._leader = following.thread if following is not None else 0
                if following is not None and following.called is not None:
                    following.called.open()
                elif self._waiting:
                    self._call_worker()

    def _call_worker(self) -> None:
        """Have a worker lead, unless one will.  Call it with the mutex."""
        if self._is_called:
            return
        if self._workers is None:
            self._workers = self._runtime.workers(1)
        self._is_called = True
        self._workers.submit(self._lead_as_worker)


def _items_of(group: list[_Entry[Item]]) -> list[Item]:
    return [entry.item for entry in group]


def _first_thread(waiting: list[_Entry[Item]]) -> _Entry[Item] | None:
    return next((entry for entry in waiting if entry.thread), None)


def _decide(
    group: list[_Entry[Item]], leader: _Entry[Item] | None, error: Exception | None
) -> list[Callable[[], None]]:
    callbacks: list[Callable[[], None]] = []
    for entry in group:
        entry.error, entry.done = error, True
        callbacks += entry.callbacks
        if entry is not leader and entry.called is not None:
            entry.called.open()
    return callbacks


def _call(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
