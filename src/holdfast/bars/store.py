"""A bar store, open for writing.  The page: docs/bars.md

Invariants:
1. A group is visible only after the sync that made it durable.
2. A year file is changed only by groups that are in the log; and the log lets go of a group only
   when the year files are synced.
3. After a failed write or sync nothing is written until the store is reopened.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from holdfast import runtime
from holdfast.bars import replay, write_back
from holdfast.bars.catalog import Catalog
from holdfast.bars.files import Files
from holdfast.bars.group import Group, Item
from holdfast.bars.intake import Table
from holdfast.bars.logs import Logs
from holdfast.bars.pending import Change, Pending, Placed, Reading, encode_plan
from holdfast.bars.reader import Bars
from holdfast.bars.tables import Moment, span_of
from holdfast.bars.undecided import Undecided, brought
from holdfast.bars.wal import Damage, Wal
from holdfast.disk import Disk
from holdfast.errors import CorruptError, HoldfastError, PoisonedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import Schema
from holdfast.group_commit import Alone, GroupCommit

_LOG = logging.getLogger("holdfast")
_CLOSED = "the store is closed"


class BarStore(Bars):
    """The owner of a root: locks it, replays its logs, commits groups, answers queries.

    With damage in a log it can be read, and not written, until it is opened with `salvage`.

    >>> import numpy as np
    >>> from holdfast.disk import OsDisk
    >>> bars = np.array([(1609459200, 1.5)], [("Epoch", "<i8"), ("Close", "<f4")])
    >>> with BarStore(OsDisk(directory)) as store:
    ...     tgid = store.write(bars, "1Min", "CLOSE", symbol="AAPL")
    ...     store.query("AAPL", "1Min", "CLOSE")["Close"].to_pylist()
    [1.5]
    """

    def __init__(
        self,
        disk: Disk,
        *,
        wal_size_max: int = 256 * 2**20,
        pending_size_max: int = 64 * 2**20,
        write_back_ms: float | None = None,
        compress_ticks: bool | None = None,
        salvage: bool = False,
        open_files_max: int | None = None,
        now_ns: Callable[[], int] = runtime.now_ns,
        pid: int | None = None,
        was_running: replay.WasRunning = runtime.was_running,
    ) -> None:
        self._pending_size_max, self._compress = pending_size_max, compress_ticks
        self._pid = runtime.own_pid() if pid is None else pid
        self._pending, self._places = Pending(), dict[tuple[str, int], bytes]()
        self._pending_size = 0
        self._logs = Logs(disk, self._pid, wal_size_max, now_ns)
        self._undecided = Undecided()
        self._refusal: str | None = None
        self._commits = GroupCommit(self._commit)
        self._writing_back = Alone()
        self._files = Files(disk, open_files_max or runtime.open_files_max() // 2)
        self.damage: tuple[Damage, ...] = ()
        self.mended: tuple[str, ...] = ()  # what recovery did
        self._lock = disk.lock()
        try:
            super().__init__(disk, Catalog(disk))
            self._volume = disk.volume()
            self._recover(was_running, salvage=salvage)
        except BaseException:
            self._let_go()
            raise
        self._writer: runtime.Ticker | None = None
        if write_back_ms is not None and not self.damage:
            self._writer = runtime.ThreadTicker(write_back_ms, self._write_in_background)

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
        """Write rows for one symbol or many as one group, durable and visible when this returns.

        Writers who wait together are committed together.  Returns the tgid.
        """
        group = self.group()
        group.write(bars, timeframe, attributes, symbol=symbol, is_variable=is_variable)
        return group.commit()

    def group(self) -> Group:
        """A group to be filled, and committed, prepared or aborted."""
        return Group(self, self._catalog, self._places)

    def delete(
        self,
        symbols: str | Sequence[str],
        timeframe: str,
        attributes: str,
        *,
        start: Moment = None,
        end: Moment = None,
    ) -> int:
        """Remove rows, as one group; durable when this returns.  How many rows that were.

        Which rows is decided as in a query; what others commit meanwhile stays.
        """
        span = span_of(start, end, None, "last")
        names = self._names(symbols, timeframe, attributes)
        keys = [f"{name}/{timeframe}/{attributes}" for name in names]
        schema, found = self._rows(keys, span, ())
        group, count = self.group(), 0
        for key, rows in found.items():
            if schema is not None and len(rows.times_ns):
                group.remove(key, rows.times_ns, span, schema)
                count += len(rows.times_ns)
        group.commit()
        return count

    @property
    def undecided(self) -> tuple[int, ...]:
        """The tgids of groups that are prepared, perhaps by a process that died."""
        return tuple(self._undecided.groups)

    def resolve(self, tgid: int, *, commit: bool) -> None:
        """Decide on a prepared group."""
        self.resolve_all([tgid], commit=commit)

    def resolve_all(self, tgids: Sequence[int], *, commit: bool) -> None:
        """Decide on several prepared groups at once: they are shown together, in this order."""
        if tgids:
            self._alone(lambda: self._resolve(tgids, commit))

    def adopt(self, group: fmt.Group) -> int:
        """Prepare a group that another process has encoded; return its tgid here.

        ValueError if it does not fit.
        """
        return self._alone(lambda: self._adopt(group))

    def commit_item(self, item: Item) -> None:
        """For Group."""
        if not item.count:
            return
        self._commits.submit(item)
        if item.error is not None:
            raise item.error
        if self._pending_size >= self._pending_size_max:
            self.write_back()

    def prepare_item(self, item: Item) -> None:
        """For Group."""
        self._alone(lambda: self._prepare(item))
        if item.error is not None:
            raise item.error

    def _commit(self, items: Sequence[Item]) -> None:
        self._guarded(lambda: self._commit_all(items))

    def _commit_all(self, items: Sequence[Item]) -> None:
        fresh: dict[str, Schema] = {}
        good = [item for item in items if self._fits(item, fresh)]
        if not good:
            return
        tgid = self._logs.next_ns()
        sets = b"".join([part for item in good for part in item.parts])
        messages = replay.committed(tgid, sets, sum(item.count for item in good))
        wal = self._wal()
        wal.append(b"".join(messages))
        # Durable, so now visible.  Had the sync failed, readers would have seen nothing.
        self._show([fmt.Group(0, tgid, messages[1][9:-16])], wal)
        for item in good:
            item.tgid = tgid
            for new in item.new_files.values():
                self._catalog.add(new.key, new.year, new.schema)

    def _prepare(self, item: Item) -> None:
        if not self._fits(item, {}):
            return
        tgid = item.tgid = self._logs.next_ns()
        sets = b"".join([fmt.encode_decision(), *item.parts])
        messages = replay.intended(tgid, sets, item.count + 1)
        self._wal().append(b"".join(messages))
        self._undecided.add(fmt.Group(0, tgid, messages[1][9:-16]))

    def _adopt(self, staged: fmt.Group) -> int:
        tgid = self._logs.next_ns()
        group = staged._replace(tgid=tgid)
        self._undecided.refuse_other(brought(group), self._catalog, {})
        for damage in replay.check((), self._disk, self._catalog, [Change(group, "staged")]):
            raise ValueError(damage.why)
        self._wal().append(replay.intended_again(group))
        self._undecided.add(group)
        return tgid

    def _resolve(self, tgids: Sequence[int], commit: bool) -> None:
        for tgid in tgids:
            if tgid not in self._undecided.groups:
                raise HoldfastError(f"no undecided group {tgid}")
        wal, status = self._wal(), fmt.COMPLETE if commit else fmt.ABORTED
        messages = replay.committed(self._logs.next_ns(), fmt.encode_decision(tgids, status), 1)
        wal.append(b"".join([*messages, *(fmt.encode_info(t, fmt.WAL, status) for t in tgids)]))
        groups = [self._undecided.pop(tgid) for tgid in tgids]
        if commit:
            self._show(groups, wal)
            sets = [one for group in groups for one in Change(group, wal.name).sets]
            for schema, key, year in write_back.new_files(sets):
                self._catalog.add(key, year, schema)

    def _fits(self, item: Item, fresh: dict[str, Schema]) -> bool:
        """Does it, beside the buckets that others bring who are committed together with it?"""
        new = {one.key: one.schema for one in item.new_files.values()}
        try:
            self._undecided.refuse_other(new, self._catalog, fresh)
        except ValueError as error:
            item.error = error
            return False
        fresh |= new
        return True

    def _show(self, groups: Sequence[fmt.Group], wal: Wal) -> None:
        self._pending.add(*(Change(group, wal.name) for group in groups))
        self._pending_size += sum(len(group.body) for group in groups)

    def _wal(self) -> Wal:
        """The log to write to; what is prepared is in it."""
        prepared = self._undecided.groups.values()
        return self._logs.active(lambda: map(replay.intended_again, prepared))

    # Writing back

    def write_back(self) -> int:
        """What the background writer does: all that is committed now goes to the year files.

        Returns how many groups that were.  They go in steps, because a group may be large.
        """
        return self._writing_back.run(self._write_back_all)

    def _write_back_all(self) -> int:
        wanted, done = len(self._pending.waiting()), 0
        while (step := self._guarded(self._write_back)) and (done := done + step) < wanted:
            pass
        return done

    def _write_in_background(self) -> None:
        try:
            self.write_back()
        except Exception:
            _LOG.exception("%s: no more is written back; what is committed is safe", self._disk)
            assert self._writer is not None
            self._writer.close()

    def _write_back(self) -> int:
        changes = self._pending.waiting()
        plans = [change for change in changes if change.is_plan]
        if plans:  # of an earlier life: it is carried out as it is
            covered = plans[0].covers
            changes = [change for change in changes if change.tgid in covered] + plans[:1]
        else:
            changes = write_back.first_of(changes, self._pending_size_max)
        if not changes:
            self._alone(self._remove_finished)
            return 0
        batch = write_back.Batch(changes)
        write_back.make_files(batch, self._catalog, self._files)
        if not plans:
            placed = write_back.plan_ticks(batch, self._disk, self._files, self._compress)
            if placed:
                plan = self._log_plan([change.tgid for change in changes], placed)
                batch = write_back.Batch([*changes, plan])
        write_back.collect(batch, self._catalog, self._files)
        batch.data.carry_out(self._files)
        self._volume.sync()
        batch.index.carry_out(self._files)
        self._volume.sync()
        self._alone(lambda: self._tell(batch.changes))
        self._pending.retire(batch.changes)
        self._alone(self._remove_finished)
        return len(changes)

    def _tell(self, changes: Sequence[Change]) -> None:
        self._logs.tell(changes)
        self._pending_size -= sum(len(one.group.body) for one in changes if not one.is_plan)

    def _remove_finished(self) -> None:
        self._logs.remove_finished({change.log for change in self._pending.waiting()})

    def _log_plan(self, covers: list[int], placed: dict[str, Placed]) -> Change:
        def log() -> Change:
            tgid = self._logs.next_ns()
            sets, count = encode_plan(covers, placed)
            messages = replay.committed(tgid, sets, count)
            wal = self._wal()
            wal.append(b"".join(messages))
            plan = Change(fmt.Group(0, tgid, messages[1][9:-16]), wal.name)
            self._pending.add(plan)
            return plan

        return self._alone(log)

    # Opening and closing

    def _recover(self, was_running: replay.WasRunning, *, salvage: bool) -> None:
        found = replay.look(self._disk, self._catalog)
        replay.refuse_if_owned(found, self._pid, was_running)
        self._logs.last_ns = found.last_ns
        found, mended = replay.mend_all(
            self._disk, self._catalog, found, self._logs.next_ns() if salvage else None
        )
        self.damage, self.mended = tuple(found.damage), tuple(mended)
        for change in found.changes():
            self._pending.add(change)
            self._pending_size += 0 if change.is_plan else len(change.group.body)
        self._undecided = Undecided(found.undecided().values())
        if not self.damage:
            self._replay(found)

    def _replay(self, found: replay.Found) -> None:
        for one in found.logs:
            self._logs.adopt(one.log.name, one.size)
        if self._undecided.groups:
            self._wal()  # carried over before the logs that hold them go
        while self.write_back():
            pass

    def close(self) -> None:
        """Write everything back, and let the root go.  Prepared groups stay undecided."""
        if self._writer is not None and self._lock.is_ours:
            self._writer.close()
        try:
            if self._refusal is None and not self.damage and self._lock.is_ours:
                while not self._alone(self._finish):
                    self.write_back()
        finally:
            self._refusal = _CLOSED
            self._let_go()

    def _finish(self) -> bool:
        """Close the logs; False if there is something to be written back before."""
        if self._pending.waiting():  # others may go on committing until this is done
            return False
        self._remove_finished()
        self._logs.finish(is_wanted=bool(self._undecided.groups))
        self._refusal = _CLOSED
        return True

    def _let_go(self) -> None:
        self._files.close()
        self._logs.close()
        if hasattr(self, "_volume"):
            self._volume.close()
        self._lock.release()

    def _alone(self, step: Callable[[], runtime.Result]) -> runtime.Result:
        """Do something with the logs: while nobody else does, and if that is allowed at all."""
        return self._commits.exclusively(lambda: self._guarded(step))

    def _guarded(self, step: Callable[[], runtime.Result]) -> runtime.Result:
        self._refuse_if_unwritable()
        try:
            return step()
        except BaseException as error:
            refused = isinstance(error, HoldfastError | ValueError)  # and nothing was written
            failed = not refused or isinstance(error, OSError | PoisonedError)
            if failed and self._refusal is None:
                self._refusal = f"an earlier write failed ({error!r}); close and reopen the store"
            raise

    def _refuse_if_unwritable(self) -> None:
        if self.damage:
            damage = self.damage[0]
            why = f"{damage.why}; the store is read-only until it is opened with salvage"
            raise CorruptError(damage.file, damage.offset, why)
        if self._refusal == _CLOSED:
            raise HoldfastError(self._refusal)
        if self._refusal is not None:
            raise PoisonedError(self._refusal)
        self._lock.check()

    # Reading

    def _reading(self) -> AbstractContextManager[Reading]:
        self._lock.refuse_fork()  # its copies of our locks may never be free
        return self._pending.reading()
