"""Writes that are not in the WAL yet: memtables, flushes, and the handle that a caller gets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.formats.sst import Rows
from holdfast.group_commit import Queue, Submitted
from holdfast.kv.memtable import Layer, Row, merged, size_of
from holdfast.runtime import Condition


class Commit:
    """The outcome of one memtable, shared by all its writes.  Guarded by the lock of its queue."""

    __slots__ = ("begun", "callbacks", "changed", "done", "error", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.begun = False  # a flush has started, so no thread need start one
        self.error: Exception | None = None
        self.changed: Condition | None = None  # made for the first thread that waits
        self.waiting = 0
        self.callbacks: list[Callable[[], None]] | None = None

    def settle(self, error: Exception | None) -> list[Callable[[], None]]:
        """Decide it, once; return the callbacks to call after the lock is released."""
        if self.done:
            return []
        self.done, self.error = True, error
        if self.changed is not None:
            self.changed.notify_all()
        callbacks, self.callbacks = self.callbacks, None
        return callbacks or []


class WriteHandle(Submitted):
    """A write that is in memory and will be written to the bucket.

    `result()` flushes the write and returns its sequence number when it is durable.  FencedError,
    PoisonedError or UnavailableError mean that it was not acknowledged; whether it survives is then
    unknown.
    """

    __slots__ = ("seq",)

    def __init__(self, seq: int, commit: Commit, queue: Queue) -> None:
        self.seq, self._fate, self._queue = seq, commit, queue

    def _number(self) -> int:
        return self.seq


class Memtable(Layer):
    """A layer that is not in the WAL yet, and its commit."""

    __slots__ = ("alone", "began", "commits", "last_seq")

    def __init__(self, rows: dict[bytes, Row], size: int = 0, *, alone: bool = False) -> None:
        super().__init__(rows, size)
        self.alone = alone  # big enough for an SST of its own
        self.commits = [Commit()]
        self.began = 0.0  # when its first row came
        self.last_seq = 0  # known when it takes no more rows


@dataclass(slots=True, eq=False)
class Flush:
    """Memtables that become one SST."""

    wal_id: int
    memtables: list[Memtable]  # the oldest first
    sst_size: int = 0
    layer: Layer = field(init=False)

    def gather(self) -> Rows:
        """Return one layer of all memtables, and its rows sorted."""
        layer: Layer = self.memtables[0]
        for newer in self.memtables[1:]:
            layer = merged(newer, layer)
        rows = layer.sorted_rows()
        # A memtable counts a key each time it is set; here it is known what is left of it.
        self.layer = Layer(layer.rows, size_of(rows), self.wal_id, self.wal_id, (rows,))
        return rows

    @property
    def commits(self) -> Iterator[Commit]:
        return (commit for memtable in self.memtables for commit in memtable.commits)

    @property
    def size(self) -> int:
        return sum(memtable.size for memtable in self.memtables)

    @property
    def last_seq(self) -> int:
        return self.memtables[-1].last_seq
