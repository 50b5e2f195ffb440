"""One thread at a time, and one commit for all that wait: also under Ctrl-C, signals and fork.

A signal handler runs between any two instructions of the main thread.  So

- a call by a thread that is inside a call already would wait for itself: it is refused;
- a KeyboardInterrupt may end a call anywhere.  The thread that leads is known by its number, and
  counts as leading only while it is inside: whoever waits notices that a leader has left;
- a forked child has one thread, and copies of locks that others may have held: it gets new ones.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import HoldfastError, PoisonedError
from holdfast.forks import disown_in_children

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_S = 1.0  # how long a thread waits before it looks whether its leader has left

_INTERRUPTED = (
    "the thread that wrote this batch together with others was interrupted, and whether it is "
    "durable is not known; reopen the store and look"
)
_REENTERED = (
    "this thread is in a call of the same store already: a signal handler or a finalizer has "
    "interrupted it; set a flag there, and write after the handler has returned"
)


class Alone:
    """Runs steps one at a time.  A thread that runs one cannot begin another."""

    def __init__(self) -> None:
        self._inside: set[int] = set()  # threads that run a step or wait for it
        self._running = threading.Lock()
        disown_in_children(self)

    def run(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no other step runs.  HoldfastError if this thread is in one."""
        me = threading.get_ident()
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
        self._running = threading.Lock()


class _Ticket(Generic[Item]):
    __slots__ = ("called", "done", "error", "item", "thread")

    def __init__(self, item: Item, thread: int) -> None:
        self.item, self.thread = item, thread
        self.done = False
        self.error: Exception | None = None
        self.called = threading.Lock()
        self.called.acquire()


class GroupCommit(Alone, Generic[Item]):
    """One commit serves all who wait: leader and followers.

    `commit` is called by one thread at a time with the items of everyone who arrived while the
    last commit ran, in order of arrival.  When it raises, everyone in the group gets the error.
    The leader serves one group and then calls the next to lead, so nobody serves without end.

    A KeyboardInterrupt in a thread that waits takes its item back, unless it is being written.
    One in the leader ends the commit: the others get PoisonedError.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], None]) -> None:
        super().__init__()
        self._commit = commit
        self._mutex = threading.Lock()  # guards the next two, for an instant
        self._waiting: list[_Ticket[Item]] = []
        self._leader = 0  # the thread that leads, if it is inside

    def submit(self, item: Item) -> None:
        """Return when `item` is committed, or raise what its commit raised."""
        me = threading.get_ident()
        if me in self._inside:
            raise HoldfastError(_REENTERED)
        ticket: _Ticket[Item] | None = None
        try:
            self._inside.add(me)
            with self._mutex:
                if self._is_led(me):
                    ticket = _Ticket(item, me)
                    self._waiting.append(ticket)
                else:
                    self._leader = me
            if ticket is None:  # nobody waits and nobody writes
                with self._running:
                    self._commit((item,))
            else:
                self._follow(ticket)
        finally:
            try:
                if self._leader == me or (ticket is not None and not ticket.done):
                    self._leave(me, ticket)
            finally:
                self._inside.discard(me)
        if ticket is not None and ticket.error is not None:
            raise ticket.error

    def exclusively(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no commit runs."""
        return self.run(step)

    def disown(self) -> None:
        super().disown()
        self._mutex = threading.Lock()
        self._waiting, self._leader = [], 0

    def _is_led(self, me: int) -> bool:
        """Is there another thread that leads?  One that was interrupted may have left."""
        return self._leader != me and self._leader in self._inside

    def _follow(self, ticket: _Ticket[Item]) -> None:
        while not ticket.called.acquire(timeout=_LOOK_S):
            with self._mutex:
                if self._is_led(ticket.thread) or ticket.done:
                    continue
                if ticket not in self._waiting:  # it was taken by one who left in mid-commit
                    raise PoisonedError(_INTERRUPTED)
                self._leader = ticket.thread
                break
        if not ticket.done:
            self._serve(ticket)

    def _serve(self, leader: _Ticket[Item]) -> None:
        # No loop lies in a `with` here: since 3.12 an interruption where a loop turns may miss it.
        with self._running:
            self._serve_all(leader)

    def _serve_all(self, leader: _Ticket[Item]) -> None:
        with self._mutex:
            group, self._waiting = self._waiting, []
        error: Exception | None = PoisonedError(_INTERRUPTED)
        try:
            self._commit(_items_of(group))
            error = None
        except Exception as raised:
            error = raised
        finally:  # also when interrupted: nobody may wait without end
            _dismiss(group, leader, error)

    def _leave(self, me: int, ticket: _Ticket[Item] | None) -> None:
        """Call the next to lead; take back what nobody has begun to write."""
        with self._mutex:
            if ticket is not None and ticket in self._waiting:
                self._waiting.remove(ticket)
            if self._leader == me:
                self._leader = self._waiting[0].thread if self._waiting else 0
                if self._waiting:
                    self._waiting[0].called.release()


def _items_of(group: list[_Ticket[Item]]) -> list[Item]:
    return [ticket.item for ticket in group]


def _dismiss(group: list[_Ticket[Item]], leader: _Ticket[Item], error: Exception | None) -> None:
    for ticket in group:
        ticket.error, ticket.done = error, True
        if ticket is not leader:
            ticket.called.release()
