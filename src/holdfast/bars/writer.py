"""A bar store, open for writing.  The page: docs/bars.md

Only groups that are in the WAL change a year file.  A group leaves the WAL only when the year files
are synced.  See holdfast.bars.commits for what holds for a commit.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from holdfast import runtime as real
from holdfast.bars import recovery
from holdfast.bars.backup import Backup, OnProgress, copy_store
from holdfast.bars.catalog import CATEGORIES, CATEGORY, Catalog, check_root
from holdfast.bars.commits import Commits
from holdfast.bars.group import Group, Item
from holdfast.bars.intake import Table
from holdfast.bars.reader import Bars
from holdfast.bars.times import Moment, span_of
from holdfast.bars.view import Pending, Reading
from holdfast.bars.wal import Damage, noted_ns
from holdfast.bars.write_back import WriteBack
from holdfast.disk import Disk, Lock, OsDisk, Path, local_path
from holdfast.errors import CorruptError, DiskFullError
from holdfast.formats import market_wal as fmt
from holdfast.group_commit import Submitted
from holdfast.handle import Handle
from holdfast.metrics import Metric
from holdfast.runtime import Runtime, Ticker

_LOG = logging.getLogger("holdfast")


class _OwnView:
    """See Source.  In a fork, copies of the owner's locks may never be released."""

    def __init__(self, lock: Lock, pending: Pending) -> None:
        self._lock, self._pending = lock, pending

    def reading(self) -> AbstractContextManager[Reading]:
        self._lock.refuse_fork()
        return self._pending.reading()


class BarStore(Bars):
    """The owner of a root: locks it, replays its logs, commits groups, answers queries.

    A store with damage in a log can be read, and not written, until it is opened with `salvage`.

    wal_size_max        bytes after which a log is full, and the next is begun
    pending_size_max    bytes of groups in memory; a writer that exceeds it flushes
    flush_ms            how often a thread flushes; None: when asked, and on close
    compress_ticks      whether payloads of ticks are compressed; None: as the file has it
    salvage             rename damaged logs, and use the groups in them that are valid
    open_files_max      how many year files are open at once

    >>> import numpy as np
    >>> from holdfast.disk import OsDisk
    >>> bars = np.array([(1609459200, 1.5)], [("Epoch", "<i8"), ("Close", "<f4")])
    >>> with BarStore(OsDisk(directory), create=True) as store:
    ...     tgid = store.write(bars, "1Min", "CLOSE", symbol="AAPL")
    ...     store.query("AAPL", "1Min", "CLOSE")["Close"].to_pylist()
    [1.5]
    """

    def __init__(
        self,
        disk: Disk,
        acquire: Callable[[], Lock] | None = None,
        *,
        create: bool = False,
        wal_size_max: int = 256 * 2**20,
        pending_size_max: int = 64 * 2**20,
        flush_ms: float | None = None,
        compress_ticks: bool | None = None,
        salvage: bool = False,
        open_files_max: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        runtime = runtime or Runtime()
        self._pending_size_max = pending_size_max
        self.damage: tuple[Damage, ...] = ()
        self.recovered: tuple[str, ...] = ()  # what recovery did
        self._ticker: Ticker | None = None
        is_new = check_root(disk, create=create)
        self._lock = (acquire or disk.lock)()
        try:
            if is_new and CATEGORY not in disk.list():
                disk.create(CATEGORY, CATEGORIES[0])
            catalog, handle = Catalog(disk), Handle(f"the bar store {disk}")
            self._commits = Commits(disk, self._lock, handle, catalog, runtime, wal_size_max)
            view = _OwnView(self._lock, self._commits.pending)
            super().__init__(disk, catalog, view, handle, runtime)
            self._write_back = WriteBack(
                disk,
                catalog,
                self._commits,
                runtime,
                size_max=pending_size_max,
                compress=compress_ticks,
                open_files_max=open_files_max or real.open_files_max() // 2,
            )
        except BaseException:
            self._lock.release()
            raise
        try:
            self._recover(salvage=salvage)
            disk.keep_reserve()
        except BaseException:
            self._release()
            raise
        if flush_ms is not None and self._handle.refusal is None:
            self._ticker = runtime.ticker(flush_ms, self._write_in_background)

    # Writing

    def write(
        self,
        bars: Table,
        timeframe: str,
        attributes: str,
        *,
        symbol: str | None = None,
        is_variable: bool = False,
    ) -> int:
        """Write rows for one symbol or many as one group, and return its tgid.

        Durable and visible when this returns.  Writers that wait at the same time are committed
        together.  Rows are Arrow, anything with `__arrow_c_stream__`, pandas, numpy or a dictionary
        of columns; see holdfast.bars.intake.
        """
        group = self.group()
        group.write(bars, timeframe, attributes, symbol=symbol, is_variable=is_variable)
        return group.commit()

    def submit(
        self,
        bars: Table,
        timeframe: str,
        attributes: str,
        *,
        symbol: str | None = None,
        is_variable: bool = False,
    ) -> Submitted:
        """Write rows as `write` does, without waiting: `result(timeout)` and `await` give the tgid.

        Invalid rows raise here.  Groups become durable and visible in the order of submission.
        """
        self._write_back_if_full()
        draft = self._commits.draft()
        draft.write(bars, timeframe, attributes, symbol=symbol, is_variable=is_variable)
        return self._commits.submit(draft.item)

    def group(self) -> Group:
        """Return a group to be filled, and committed, prepared or aborted."""
        return Group(self._commits.draft(), self._commits, self._write_back_if_full)

    def delete(
        self,
        symbols: str | Sequence[str],
        timeframe: str,
        attributes: str,
        *,
        start: Moment = None,
        stop: Moment = None,
        day: Moment = None,
    ) -> int:
        """Remove the rows with start <= time < stop as one group, and return how many there were.

        `day` removes the rows of one date, in UTC, instead.
        Durable when this returns.  Commits wait while the rows are looked up, so that those which
        others commit meanwhile stay.
        """
        draft, count = self._commits.draft(), 0
        span = span_of(start, stop, None, "last", day=day)
        names = self._names(symbols, timeframe, attributes)
        keys = [f"{name}/{timeframe}/{attributes}" for name in names]

        def look_up() -> Item:
            nonlocal count
            schema, found = self._rows(keys, span, ())
            for key, rows in found.items():
                if schema is not None and len(rows.times_ns):
                    draft.remove(key, rows.times_ns, span, schema)
                    count += len(rows.times_ns)
            return draft.item

        self._commits.commit_made(look_up)
        self._write_back_if_full()
        return count

    @property
    def undecided(self) -> tuple[int, ...]:
        """Return the tgids of prepared groups, including those of a previous process."""
        self._handle.check_read()
        return tuple(self._commits.undecided.groups)

    def resolve(self, tgid: int, *, commit: bool) -> None:
        """Commit or abort a prepared group; durable when this returns."""
        self._commits.resolve([tgid], commit=commit)

    def resolve_all(self, tgids: Sequence[int], *, commit: bool) -> None:
        """Decide on several prepared groups at once: they are shown together, in this order."""
        self._commits.resolve(tgids, commit=commit)

    def adopt(self, group: fmt.Group) -> int:
        """Prepare a group that another process has encoded, and return its tgid here.

        ValueError if it does not fit.
        """
        return self._commits.adopt(group)

    def flush(self) -> int:
        """Write all groups that are committed now to the year files; return how many there were.

        They were durable before; a flush lets the WAL files be removed.
        """
        is_full = self._lock.is_ours and self._disk.give_up_reserve()
        done = self._write_back.run()
        if is_full:
            self._disk.keep_reserve()
        return done

    def backup(self, path: Path, *, on_progress: OnProgress = lambda done, total: None) -> Backup:
        """Copy the store to a new directory, and return a report.  Durable when this returns.

        The copy has everything that was committed before the call, and what was committed up to
        one moment during it.  Write-back pauses; commits go on, until `pending_size_max` bytes
        wait for it.  `on_progress` gets files done, and files in all.  ExistsError if `path`
        exists.  If this fails, the store is unchanged; PATH.copying-ID may remain: remove it.
        """
        self._commits.check()
        parent, _, name = local_path(path).rpartition("/")
        if f"{parent}/{name}/".startswith(f"{self._disk}/"):
            raise ValueError(f"the backup cannot be in the store: name a path outside {self._disk}")
        target, id = OsDisk(parent or "/"), self._runtime.new_id().hex[:12]
        return self._write_back.alone.run(
            lambda: copy_store(self._disk, self._commits, target, name, id, on_progress)
        )

    def metrics(self) -> list[Metric]:
        """Return counters, gauges and latencies since the store was opened."""
        self._handle.check_read()
        return [*self._commits.metrics(), *self._write_back.metrics()]

    def close(self) -> None:
        """Write everything back and release the root.  Prepared groups stay undecided."""
        try:
            if self._lock.is_ours and not self._handle.is_closed:
                if self._ticker is not None:
                    self._ticker.close()
                self._commits.queue.close()
                if self._handle.refusal is None:
                    while not self._commits.finish():
                        self.flush()
        finally:
            self._handle.close()
            self._release()

    # Opening and closing

    def _recover(self, *, salvage: bool) -> None:
        found = recovery.look(self._disk, self._catalog)
        recovery.refuse_if_owned(found, self._runtime)
        logs = self._commits.logs
        logs.last_ns = max(found.last_ns, noted_ns(self._disk))  # no name comes again
        salvage_ns = logs.next_ns() if salvage else None
        try:
            found, recovered = recovery.recover(self._disk, self._catalog, found, salvage_ns)
        except DiskFullError as error:  # nothing was cut
            found, recovered = recovery.look(self._disk, self._catalog), []
            self._refuse_full(error)
        self.damage, self.recovered = tuple(found.damage), tuple(recovered)
        self._commits.recover(found)
        if self.damage:
            first = self.damage[0]
            why = f"{first.why}; the store is read-only until it is opened with salvage"
            self._handle.refuse(CorruptError(first.file, first.offset, why))
        if self._handle.refusal is None:
            try:
                self._commits.take_over(found)
                while self.flush():
                    pass
            except DiskFullError as error:
                self._refuse_full(error)

    def _refuse_full(self, error: DiskFullError) -> None:
        """Refuse writes: what opening must write does not fit.  All committed rows can be read."""
        _LOG.error("%s is read-only: %s", self._disk, error)
        self._handle.refusal = error

    def _write_back_if_full(self) -> None:
        if self._commits.pending_size >= self._pending_size_max:
            self.flush()

    def _write_in_background(self) -> None:
        try:
            self.flush()
        except Exception:
            _LOG.exception("%s: write-back has stopped; committed groups are safe", self._disk)
            assert self._ticker is not None
            self._ticker.close()

    def _release(self) -> None:
        self._write_back.close()
        self._commits.logs.close()
        self._lock.release()
