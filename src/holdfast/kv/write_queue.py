"""Writes on their way from memory to the WAL: grouped, written in parallel, acknowledged in order.

Rows enter the active memtable.  A flush takes what has gathered and writes it as one SST; whoever
waits for a row runs the flush in their own thread, if the window has room, and one flush serves
all who wait.  Invariants:

1. A write is acknowledged after the SST that holds it is in the WAL for good; unless `ordered` is
   False, after all SSTs with smaller ids are, too.
2. The rows of one write are in one SST.  Sequence numbers rise from row to row, and from id to id.
3. After a failed flush nothing more is begun.  What is in flight ends as it may.
"""

from collections import deque
from collections.abc import Callable, Iterable

from holdfast.errors import FencedError, HoldfastError, PoisonedError
from holdfast.formats.sst import Rows
from holdfast.kv.flushes import Flush, Memtable
from holdfast.kv.handles import Commit, WriteHandle
from holdfast.kv.memtable import Layer, merged
from holdfast.kv.options import Limits
from holdfast.kv.wal import Window
from holdfast.runtime import Runtime, Workers


class WriteQueue:
    """Groups writes into SSTs.

    `write(wal_id, rows)` makes an SST and returns its size; `landed(flush)` is told,
    in the order of ids and under the lock, what is in the WAL; `changed()` that memory has changed.
    """

    def __init__(
        self,
        limits: Limits,
        runtime: Runtime,
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
        self._write, self._landed, self._changed = write, landed, changed
        self.window = Window(first_id, limits.max_parallel_writes)
        self.seq = last_seq
        self.active = Memtable({})
        self._frozen: deque[Memtable] = deque()  # the oldest first
        self._in_flight: deque[Flush] = deque()
        self._waiting_bytes = 0  # of frozen and in flight
        self._background = 0  # flushes that workers have been asked for
        self._room = runtime.condition(self.lock)
        self.refusal: Exception | None = None  # why nothing is taken any more
        self.has_lost = False  # rows that were never acknowledged
        self._hesitant = False  # refusal, or no room: look twice before taking a row

    # Rows come in

    def put(self, key: bytes, value: bytes | None, size: int) -> WriteHandle:
        """One row, already checked."""
        with self.lock:
            if self._hesitant:
                self._wait_for_room()
            seq = self.seq = self.seq + 1
            active = self.active
            active.rows[key] = (value, seq)
            active.size += size
            if active.size >= self._limits.flush_bytes:
                self._overflow()
            return WriteHandle(seq, active.commits[0], self)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]], size: int) -> WriteHandle:
        """Several rows that stay together; the last of a key counts."""
        with self.lock:
            if self._hesitant:
                self._wait_for_room()
            alone = size >= self._limits.skip_memtable_bytes
            if alone:
                self.freeze()
                self.active.alone = True
            active = self.active
            taken = active.rows
            seq = self.seq
            for key, value in rows:
                seq += 1
                taken[key] = (value, seq)
            self.seq = seq
            active.size += size
            if alone or active.size >= self._limits.flush_bytes:
                self._overflow()
            return WriteHandle(seq, active.commits[0], self)

    def freeze(self) -> None:
        """With the lock: let the active memtable take no more rows, so that views can keep it."""
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
            active.commits, active.last_seq = commits, self.seq
        self._frozen.append(active)
        self.active = Memtable({})
        self._changed()

    def unwritten(self) -> list[Layer]:
        """With the lock: what is not in the WAL yet, the newest first; first the active one."""
        flying = (memtable for flush in self._in_flight for memtable in flush.memtables)
        return [self.active, *reversed(self._frozen), *reversed(list(flying))]

    # Flushes go out

    def begin(self) -> Flush | None:
        """Take what has gathered, if the window has room; None if there is nothing to do."""
        with self.lock:
            return self._begin()

    def run(self, flush: Flush) -> None:
        """Write what was begun, and tell everyone.  It raises nothing but interruptions."""
        try:
            flush.sst_size = self._write(flush.wal_id, flush.gather())
        except Exception as error:
            self._failed(flush, error)
        except BaseException:
            self._failed(flush, PoisonedError("the thread that wrote for us was interrupted"))
            raise
        else:
            self._finished(flush)

    def wait(self, commit: Commit, timeout: float | None = None) -> None:
        """Return when the commit is decided; flush in this thread if nobody else does."""
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
        """Call back when the commit is decided; see that it will be."""
        with self.lock:
            if not commit.done:
                if commit.callbacks is None:
                    commit.callbacks = []
                commit.callbacks.append(callback)
                self._flush_soon()
                return
        callback()

    def flush(self, timeout: float | None = None) -> None:
        """Return when all that was written before is durable; raise what hinders it."""
        with self.lock:
            flying = [commit for flush in self._in_flight for commit in flush.commits]
            frozen = [commit for memtable in self._frozen for commit in memtable.commits]
            active = self.active.commits if self.active.rows else []
            if self.refusal is not None:
                raise self.refusal
        for commit in [*flying, *frozen, *active]:
            self.wait(commit, timeout)
            if commit.error is not None:
                raise commit.error

    def tick(self) -> None:
        """Have flushed what has gathered since the last tick."""
        with self.lock:
            self._flush_soon()

    def refuse(self, refusal: Exception) -> None:
        """Take nothing from now on, and give up what was not begun."""
        with self.lock:
            if self.refusal is None:
                self.refusal = refusal
            self._hesitant = True
            called = self._give_up(self.refusal)
        _call(called)

    def disown(self, refusal: Exception) -> None:
        """In a forked child: new locks, and nothing is taken, written or waited for."""
        self.lock = self._runtime.lock()
        self._room = self._runtime.condition(self.lock)
        self.refusal, self._hesitant = refusal, True
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
        if self.refusal is not None or not self.window.has_room:
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
        """Small ones are joined as they come, so that reads need not look into many."""
        size = older.size + newer.size
        return (
            not (older.alone or newer.alone)
            and older.size < 2 * newer.size
            and size < self._limits.flush_bytes
        )

    def _overflow(self) -> None:
        self.freeze()
        self._flush_soon()
        self._hesitant = self._is_full or self.refusal is not None

    @property
    def _is_full(self) -> bool:
        return self._waiting_bytes >= self._limits.max_unflushed_bytes

    def _wait_for_room(self) -> None:
        while self.refusal is None and self._is_full:
            self._flush_soon()
            self._room.wait()
        if self.refusal is not None:
            raise self.refusal
        self._hesitant = False

    def _wait_for(self, commit: Commit, deadline_ms: float | None) -> bool:
        """Wait until something happened to the commit; False if it is too late."""
        left = None if deadline_ms is None else (deadline_ms - self._runtime.monotonic_ms()) / 1000
        if left is not None and left <= 0:
            return False
        if commit.changed is None:
            commit.changed = self._runtime.condition(self.lock)
        commit.waiting += 1
        try:
            commit.changed.wait(left)
        except BaseException:
            commit.changed.notify()  # we may have been called to flush for the others
            raise
        finally:
            commit.waiting -= 1
        return True

    def _flush_soon(self) -> None:
        """Ask a worker, unless enough are at it."""
        if self.refusal is not None or not (self.active.rows or self._frozen):
            return
        if self._background < self._limits.max_parallel_writes:
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
        """If somebody waits for what nobody has begun, and there is room, let one of them begin."""
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

    def _give_up(self, error: Exception) -> list[Callable[[], None]]:
        """Decide all that was not begun, and forget it."""
        memtables = [*self._frozen, self.active]
        self.has_lost |= any(memtable.rows for memtable in memtables)
        self._waiting_bytes -= sum(memtable.size for memtable in self._frozen)
        self._frozen.clear()
        self.active = Memtable({})
        self._room.notify_all()
        self._changed()
        waiting = [commit for memtable in memtables for commit in memtable.commits]
        return [callback for commit in waiting for callback in commit.settle(error)]

    # Outcomes

    def _finished(self, flush: Flush) -> None:
        called: list[Callable[[], None]] = []
        with self.lock:
            self.window.done(flush.wal_id)
            if not self._limits.ordered_acks:
                called += [call for commit in flush.commits for call in commit.settle(None)]
            # Behind one that failed nothing lands, though it may have been acknowledged.
            while self._in_flight and self._in_flight[0].wal_id <= self.window.last_done:
                landed = self._in_flight.popleft()
                self._waiting_bytes -= landed.size
                self._landed(landed)
                called += [call for commit in landed.commits for call in commit.settle(None)]
            self._changed()
            self._room.notify_all()
            self._call_next()
        _call(called)

    def _failed(self, flush: Flush, error: Exception) -> None:
        with self.lock:
            if self.refusal is None:
                self.refusal = _refusal(error)
            self._hesitant = True
            called = [call for commit in flush.commits for call in commit.settle(error)]
            self.has_lost = True
            if flush in self._in_flight:  # unless one before it has failed
                self._in_flight.remove(flush)
            if self._limits.ordered_acks:
                while self._in_flight and self._in_flight[-1].wal_id > flush.wal_id:
                    later = self._in_flight.pop().commits
                    called += [call for commit in later for call in commit.settle(self.refusal)]
            called += self._give_up(self.refusal)
        _call(called)


def _refusal(error: Exception) -> Exception:
    """What everyone is told from now on."""
    if isinstance(error, FencedError):
        return error
    told = error if isinstance(error, HoldfastError | OSError) else repr(error)
    refusal = PoisonedError(f"an earlier write failed ({told}); close and reopen the store")
    refusal.__cause__ = error
    return refusal


def _call(callbacks: Iterable[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
