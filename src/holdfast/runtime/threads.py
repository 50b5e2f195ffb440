"""Locks, conditions and threads, as protocols and as the real ones."""

import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")


class Lock(Protocol):
    """One thread at a time; entered with `with`."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class Condition(Protocol):
    """Threads that hold its lock wait here until another thread notifies them."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, take the lock; False after `timeout` s."""
        ...

    def notify(self, n: int = 1) -> None: ...

    def notify_all(self) -> None: ...


class Gate(Protocol):
    """Closed until one thread opens it, for one thread that waits."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return True when it is opened, False after `timeout` seconds."""
        ...

    def open(self) -> None:
        """Open it, once."""
        ...


class Workers(Protocol):
    """A few threads for work that the caller need not wait for."""

    def submit(self, step: Callable[[], None], /) -> None:
        """Run `step` soon.  `step` must not raise."""
        ...

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        """Return the results in the order of the items; raise the first error."""
        ...

    def close(self) -> None:
        """Return when everything that was submitted has run."""
        ...


class Ticker(Protocol):
    """A step that is called at intervals."""

    def close(self) -> None:
        """Return when the step does not run and will not run again."""
        ...


class ThreadGate:
    """See Gate.  A bare lock: a KeyboardInterrupt in `wait` leaves nothing half done."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        return self._lock.acquire(timeout=-1 if timeout is None else timeout)

    def open(self) -> None:
        self._lock.release()


class ThreadWorkers:
    """See Workers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._executor: Executor | None = None  # many stores never need one
        self._mutex = threading.Lock()

    def submit(self, step: Callable[[], None], /) -> None:
        self._threads().submit(step)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> list[Result]:
        return list(self._threads().map(function, items))

    def close(self) -> None:
        with self._mutex:
            executor = self._executor
        if executor is not None:
            executor.shutdown()

    def _threads(self) -> "Executor":
        with self._mutex:
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(self._count, "holdfast")
            return self._executor


class ThreadTicker:
    """See Ticker.  The first call is one interval after the start.

    The thread refers to its store weakly: if Ctrl-C ends an open after the thread was started, and
    the store cannot be closed, it is still collected as garbage.
    """

    def __init__(self, interval_ms: float, step: Callable[[], None]) -> None:
        self._interval = interval_ms / 1000
        self._step = weakref.WeakMethod(step) if isinstance(step, MethodType) else lambda: step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-ticker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval) and (step := self._step()) is not None:
            step()
            del step  # it refers to the store


def until_called(subscribe: Callable[[Callable[[], None]], None]) -> Generator[Any, None, None]:
    """Suspend the task until a thread calls the callback of `subscribe`.  For `__await__`."""
    import asyncio  # a slow import that few need

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():  # it may have been cancelled
            woken.set_result(None)

    def wake_from_any_thread() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    subscribe(wake_from_any_thread)
    return woken.__await__()
