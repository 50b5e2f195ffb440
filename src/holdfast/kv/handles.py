"""What a writer gets for a write: a promise to be waited for, by a thread or in asyncio."""

from collections.abc import Callable, Generator
from typing import Any, Protocol

from holdfast.runtime import Condition, until_called


class Commit:
    """The fate of one memtable, shared by all who wrote into it.  Guarded by its queue's lock."""

    __slots__ = ("begun", "callbacks", "changed", "done", "error", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.begun = False  # on its way to the bucket, so nobody need begin it
        self.error: Exception | None = None
        self.changed: Condition | None = None  # made for the first thread that waits
        self.waiting = 0
        self.callbacks: list[Callable[[], None]] | None = None

    def settle(self, error: Exception | None) -> list[Callable[[], None]]:
        """Decide it, once; return what must be called when the lock is free again."""
        if self.done:
            return []
        self.done, self.error = True, error
        if self.changed is not None:
            self.changed.notify_all()
        callbacks, self.callbacks = self.callbacks, None
        return callbacks or []


class Waiter(Protocol):
    """Who can make a commit happen."""

    def wait(self, commit: Commit, timeout: float | None) -> None: ...

    def subscribe(self, commit: Commit, callback: Callable[[], None]) -> None: ...


class WriteHandle:
    """A write that is in memory, and on its way to the bucket.

    `result()` returns its sequence number when it is durable, and makes it so at once rather than
    at the next tick.  `await handle` does the same in asyncio.  FencedError, PoisonedError or
    UnavailableError mean that it was not acknowledged; whether it survives is then unknown.
    """

    __slots__ = ("_commit", "_queue", "seq")

    def __init__(self, seq: int, commit: Commit, queue: Waiter) -> None:
        self.seq, self._commit, self._queue = seq, commit, queue

    def __repr__(self) -> str:
        return f"WriteHandle(seq={self.seq}, {'done' if self._commit.done else 'pending'})"

    def done(self) -> bool:
        """Whether it is decided, for good or bad."""
        return self._commit.done

    def result(self, timeout: float | None = None) -> int:
        """Wait until the write is durable; TimeoutError after so many seconds."""
        if not self._commit.done:
            self._queue.wait(self._commit, timeout)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, int]:
        if not self._commit.done:
            yield from until_called(lambda wake: self._queue.subscribe(self._commit, wake))
        return self._outcome()

    def _outcome(self) -> int:
        if self._commit.error is not None:
            raise self._commit.error
        return self.seq
