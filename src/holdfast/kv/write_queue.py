"""Writes on their way from memory to the WAL: grouped, written in parallel, acknowledged in order.

Rows enter the active memtable.  A flush writes the memtables as one SST.  A thread that waits for a
row runs the flush itself, if the window has room, and one flush serves all threads that wait.
Invariants:

1. A write is acknowledged after its SST is durable in the WAL; unless `ordered` is False, after
   all SSTs with smaller ids are durable, too.
2. The rows of one write are in one SST.  Sequence numbers rise from row to row, and from id to id.
3. After a failed flush no other flush starts.  Flushes in flight may still succeed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from holdfast.errors import FencedError, HoldfastError, PoisonedError
from holdfast.formats.sst import Rows
from holdfast.handle import Handle
from holdfast.kv.memtable import Layer, merged
from holdfast.kv.options import Options
from holdfast.kv.wal import Window
from holdfast.kv.writes import Commit, Flush, Memtable, WriteHandle
from holdfast.metrics import Histogram
from holdfast.runtime import Runtime, Workers


class WriteQueue:
    """Groups writes into SSTs.

    `write(wal_id, rows)` creates an SST and returns its size.  `landed(flush)` is called in the
    order of ids, with the lock held, for what is in the WAL; `changed()` when memory has changed.
    """

    def __init__(
        self,
        limits: Options,
        runtime: Runtime,
        handle: Handle,
        workers: Workers,
        *,
        first_id: int,
        last_seq: int,
        write: Callable[[int, Rows], int],
        landed: Callable[[Flush], None],
        changed: Callable[[], None],
    ) -> None:
        self.lock = runtime.lock()
        self._limits, self._runtime, self._workers = limits, runtime, workers
        self._handle, self._monotonic = handle, runtime.monotonic
        self._write, self._landed, self._changed = write, landed, changed
        self.window = Window(first_id, limits.parallel_writes_max)
        self.seq = last_seq
        self.active = Memtable({})
        self._frozen: deque[Memtable] = deque()  # the oldest first
        self._in_flight: deque[Flush] = deque()
        self._waiting_bytes = 0  # of frozen and in flight
        self._background = 0  # flushes that workers will run
        self._room = runtime.condition(self.lock)
        self.has_lost = False  # rows that were never acknowledged
        self.flushes = self.flushed_bytes = 0
        self.seconds = Histogram()  # from the first put of a flush until it is durable
        self._hesitant = False  # there is a refusal, or no room: check before a row is taken

    # Rows come in

    def put(self, key: bytes, value: bytes | None, size: int) -> WriteHandle:
        """Add one row, already checked."""
        with self.lock:
            if self._hesitant:
                self._wait_for_room()
            seq = self.seq = self.seq + 1
            active = self.active
            if not active.size:
                active.began = self._monotonic()
            active.rows[key] = (value, seq)
            active.size += size
            if active.size >= self._limits.flush_bytes:
                self._overflow()
            return WriteHandle(seq, active.commits[0], self)

    def put_all(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], size: int
    ) -> WriteHandle:
        """Add several rows that stay together; the last row of a key counts."""
        with self.lock:
            if self._hesitant:
                self._wait_for_room()
            alone = size >= self._limits.skip_memtable_bytes
            if alone:
                self.freeze()
                self.active.alone = True
            active = self.active
            if not active.size:
                active.began = self._monotonic()
            seq = self.seq + len(keys)
            seqs = range(self.seq + 1, seq + 1)
            active.rows.update(zip(keys, zip(values, seqs, strict=True), strict=True))
            self.seq = seq
            active.size += size
            if alone or active.size >= self._limits.flush_bytes:
                self._overflow()
            return WriteHandle(seq, active.commits[0], self)

    def freeze(self) -> None:
        """Freeze the active memtable, so that views can keep it.  Call it with the lock."""
        active = self.active
        if not active.rows:
            return
        active.last_seq = self.seq
        self._waiting_bytes += active.size
        while self._frozen and self._may_join(self._frozen[-1], active):
            older = self._frozen.pop()
            commits = older.commits + active.commits
            joined = merged(active, older)
            self._waiting_bytes += joined.size - older.size - active.size
            active = Memtable(joined.rows, joined.size)
            active.commits, active.last_seq, active.began = commits, self.seq, older.began
        self._frozen.append(active)
        self.active = Memtable({})
        self._changed()

    def unwritten(self) -> list[Layer]:
        """Return the memtables that are not in the WAL yet, the active one first.  Call it with the
        lock.
        """
        flying = (memtable for flush in self._in_flight for memtable in flush.memtables)
        return [self.active, *reversed(self._frozen), *reversed(list(flying))]

    # Flushes go out

    def begin(self) -> Flush | None:
        """Start a flush, if the window has room; None if there is nothing to do."""
        with self.lock:
            return self._begin()

    def run(self, flush: Flush) -> None:
        """Write a flush and settle its commits.  Only interruptions are raised."""
        try:
            flush.sst_size = self._write(flush.wal_id, flush.gather())
        except Exception as error:
            self._failed(flush, error)
        except BaseException:
            self._failed(flush, PoisonedError("the thread that wrote this row was interrupted"))
            raise
        else:
            self._finished(flush)

    def wait(self, commit: Commit, timeout: float | None = None) -> None:
        """Return when the commit is decided; flush in this thread if no other does."""
        deadline_ms = None if timeout is None else self._runtime.monotonic_ms() + timeout * 1000
        while True:
            with self.lock:
                if commit.done:
                    return
                flush = None if commit.begun else self._begin()
                if flush is None and not self._wait_for(commit, deadline_ms):
                    raise TimeoutError(f"not durable after {timeout} seconds; it may still be")
            if flush is not None:
                self.run(flush)

    def subscribe(self, commit: Commit, callback: Callable[[], None]) -> None:
        """Call `callback` when the commit is decided, and make sure that a flush will run."""
        with self.lock:
            if not commit.done:
                if commit.callbacks is None:
                    commit.callbacks = []
                commit.callbacks.append(callback)
                self._flush_soon()
                return
        callback()

    def flush(self, timeout: float | None = None) -> None:
        """Return when all rows written before are durable; raise the error of a failed flush."""
        with self.lock:
            flying = [commit for flush in self._in_flight for commit in flush.commits]
            frozen = [commit for memtable in self._frozen for commit in memtable.commits]
            active = self.active.commits if self.active.rows else []
            self._handle.check_write()
        for commit in [*flying, *frozen, *active]:
            self.wait(commit, timeout)
            if commit.error is not None:
                raise commit.error

    def tick(self) -> None:
        """Flush the rows of the last interval."""
        with self.lock:
            self._flush_soon()

    def refuse(self, refusal: HoldfastError) -> None:
        """Refuse rows from now on, and fail the flushes that have not started."""
        with self.lock:
            self._handle.refuse(refusal)
            called = self._give_up()
        _call(called)

    def close(self) -> None:
        """Refuse everything from now on, and fail the flushes that have not started."""
        with self.lock:
            self._handle.close()
            called = self._give_up()
        _call(called)

    def disown(self, refusal: HoldfastError) -> None:
        """Replace the locks in a forked child, and refuse every write and wait."""
        self.lock = self._runtime.lock()
        self._room = self._runtime.condition(self.lock)
        self._handle.refusal, self._hesitant = refusal, True
        memtables = [*self._frozen, self.active]
        commits = [commit for flush in self._in_flight for commit in flush.commits]
        for commit in [*commits, *(one for memtable in memtables for one in memtable.commits)]:
            commit.changed = commit.callbacks = None  # their threads are in the parent
            commit.settle(refusal)
        self._in_flight.clear()
        self._frozen.clear()
        self.active, self._waiting_bytes = Memtable({}), 0

    # With the lock held

    def _begin(self) -> Flush | None:
        if self._handle.refusal is not None or not self.window.has_room:
            return None
        self.freeze()
        if not self._frozen:
            return None
        flush = Flush(self.window.take(), self._next_group())
        for commit in flush.commits:
            commit.begun = True
        self._in_flight.append(flush)
        self._changed()
        self._call_next()
        return flush

    def _next_group(self) -> list[Memtable]:
        group = [self._frozen.popleft()]
        size = group[0].size
        while self._frozen and not (group[0].alone or self._frozen[0].alone):
            size += self._frozen[0].size
            if size > self._limits.flush_bytes:
                break
            group.append(self._frozen.popleft())
        return group

    def _may_join(self, older: Memtable, newer: Memtable) -> bool:
        """Return whether to join two small memtables, so that reads look into few."""
        size = older.size + newer.size
        return (
            not (older.alone or newer.alone)
            and older.size < 2 * newer.size
            and size < self._limits.flush_bytes
        )

    def _overflow(self) -> None:
        self.freeze()
        self._flush_soon()
        self._hesitant = self._is_full or self._handle.refusal is not None

    @property
    def _is_full(self) -> bool:
        return self._waiting_bytes >= self._limits.unflushed_bytes_max

    def _wait_for_room(self) -> None:
        while self._handle.refusal is None and self._is_full:
            self._flush_soon()
            self._room.wait()
        self._handle.check_write()
        self._hesitant = False

    def _wait_for(self, commit: Commit, deadline_ms: float | None) -> bool:
        """Wait for a change of the commit; False after the timeout."""
        left = None if deadline_ms is None else (deadline_ms - self._runtime.monotonic_ms()) / 1000
        if left is not None and left <= 0:
            return False
        if commit.changed is None:
            commit.changed = self._runtime.condition(self.lock)
        commit.waiting += 1
        try:
            commit.changed.wait(left)
        except BaseException:
            commit.changed.notify()  # this thread may have been chosen to flush for the others
            raise
        finally:
            commit.waiting -= 1
        return True

    def _flush_soon(self) -> None:
        """Have a worker flush, unless enough of them do."""
        if self._handle.refusal is not None or not (self.active.rows or self._frozen):
            return
        if self._background < self._limits.parallel_writes_max:
            self._background += 1
            self._workers.submit(self._flush_in_background)

    def _flush_in_background(self) -> None:
        while True:
            with self.lock:
                flush = self._begin()
                if flush is None:
                    self._background -= 1
                    return
            self.run(flush)

    def _call_next(self) -> None:
        """If a thread waits for a flush that has not started, and there is room, have one of them
        start it.
        """
        if not self.window.has_room:
            return
        for memtable in (*self._frozen, self.active):
            for commit in memtable.commits:
                if commit.waiting and commit.changed is not None:
                    commit.changed.notify()
                    return
                if commit.callbacks:
                    self._flush_soon()
                    return
        if self._frozen and self._frozen[0].size >= self._limits.flush_bytes:
            self._flush_soon()

    def _give_up(self) -> list[Callable[[], None]]:
        """Settle the flushes that have not started with the refusal, and drop them."""
        self._hesitant = True
        memtables = [*self._frozen, self.active]
        self.has_lost |= any(memtable.rows for memtable in memtables)
        self._waiting_bytes -= sum(memtable.size for memtable in self._frozen)
        self._frozen.clear()
        self.active = Memtable({})
        self._room.notify_all()
        self._changed()
        waiting = [commit for memtable in memtables for commit in memtable.commits]
        return [callback for commit in waiting for callback in commit.settle(self._handle.refusal)]

    # Outcomes

    def _finished(self, flush: Flush) -> None:
        called: list[Callable[[], None]] = []
        with self.lock:
            self.window.done(flush.wal_id)
            if not self._limits.ordered_acks:
                called += [call for commit in flush.commits for call in commit.settle(None)]
            # After a failed flush no later one becomes visible, though it may have been
            # acknowledged.
            while self._in_flight and self._in_flight[0].wal_id <= self.window.last_done:
                landed = self._in_flight.popleft()
                self._waiting_bytes -= landed.size
                self.flushes += 1
                self.flushed_bytes += landed.sst_size
                self.seconds.observe(self._monotonic() - landed.memtables[0].began)
                self._landed(landed)
                called += [call for commit in landed.commits for call in commit.settle(None)]
            self._changed()
            self._room.notify_all()
            self._call_next()
        _call(called)

    def _failed(self, flush: Flush, error: Exception) -> None:
        with self.lock:
            self._handle.refuse(_refusal(error))
            called = [call for commit in flush.commits for call in commit.settle(error)]
            self.has_lost = True
            if flush in self._in_flight:  # unless one before it has failed
                self._in_flight.remove(flush)
            if self._limits.ordered_acks:
                while self._in_flight and self._in_flight[-1].wal_id > flush.wal_id:
                    later = self._in_flight.pop().commits
                    called += [
                        call for commit in later for call in commit.settle(self._handle.refusal)
                    ]
            called += self._give_up()
        _call(called)


def _refusal(error: Exception) -> HoldfastError:
    """Return what later calls raise after a write failed with `error`."""
    if isinstance(error, FencedError):
        return error
    cause = error if isinstance(error, HoldfastError | OSError) else repr(error)
    refusal = PoisonedError(f"an earlier write failed ({cause}); close and reopen the store")
    refusal.__cause__ = error
    return refusal


def _call(callbacks: Iterable[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
