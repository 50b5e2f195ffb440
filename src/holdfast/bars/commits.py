"""The commit path of a bar store: groups go to the log, and are shown when they are durable.

Invariants:
1. A group is visible only after the sync that made it durable.
2. After a failed write or sync nothing is written until the store is reopened.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from holdfast.bars import recovery
from holdfast.bars.catalog import Catalog
from holdfast.bars.group import Draft, Item
from holdfast.bars.view import Change, Pending, Placed, Undecided, brought, encode_plan, new_files
from holdfast.bars.wal import Logs, Wal
from holdfast.disk import Disk, Lock
from holdfast.errors import HoldfastError, PoisonedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import Schema
from holdfast.group_commit import GroupCommit, Submitted
from holdfast.handle import Handle
from holdfast.metrics import Histogram, Metric
from holdfast.runtime import Runtime

Result = TypeVar("Result")


class Commits:
    """Commits groups, one write for all that wait, and decides on those that are prepared."""

    def __init__(
        self,
        disk: Disk,
        lock: Lock,
        handle: Handle,
        catalog: Catalog,
        runtime: Runtime,
        wal_size_max: int,
    ) -> None:
        self._disk, self._lock, self._handle, self._catalog = disk, lock, handle, catalog
        self._monotonic = runtime.monotonic
        self._places: dict[tuple[str, int], bytes] = {}
        self.pending, self.undecided = Pending(runtime), Undecided()
        self.pending_size = 0  # bytes of groups that are not in the year files
        self.logs = Logs(disk, lock, runtime, wal_size_max)
        self.queue = GroupCommit(self._commit, runtime)
        self._seconds, self._group_count, self._byte_count = Histogram(), 0, 0

    def check(self) -> None:
        """Raise unless the store may be written."""
        self._handle.check_write()
        try:
            self._lock.check()
        except OSError as error:  # later groups must not be committed without this one
            self._handle.poison("a check of the owner", error)
            raise

    def draft(self) -> Draft:
        """Return a new draft; raise if the store cannot be written."""
        self.check()
        return Draft(self._catalog, self._places)

    def commit(self, item: Item) -> None:
        """Commit an item: it is durable and visible when this returns."""
        if item.count:
            self.queue.commit(item)
            item.outcome()

    def commit_made(self, make: Callable[[], Item]) -> None:
        """Commit an item that is made while no other commit runs, from what is visible then."""

        def commit() -> Item:
            item = make()
            if item.count:
                self._commit([item])
            return item

        self.queue.exclusively(commit).outcome()

    def submit(self, item: Item) -> Submitted:
        """Queue an item for the next commit, without waiting for it."""
        return self.queue.submit(item, Item.outcome)

    def prepare(self, item: Item) -> None:
        """Prepare an item: it is durable when this returns, and visible after `resolve`."""
        self.alone(lambda: self._prepare(item))
        item.outcome()

    def resolve(self, tgids: Sequence[int], *, commit: bool) -> None:
        """Decide on prepared groups at once: they are shown together, in this order."""
        if tgids:
            self.alone(lambda: self._resolve(tgids, commit))

    def adopt(self, group: fmt.Group) -> int:
        """Prepare a group that another process has encoded; ValueError if it does not fit."""
        return self.alone(lambda: self._adopt(group))

    def log_plan(self, covers: list[int], placed: dict[str, Placed]) -> Change:
        """Put the plan of a write-back into the log, and return it."""

        def log() -> Change:
            wal = self._wal()
            plan = fmt.encode_write(self.logs.next_ns(), *encode_plan(covers, placed))
            wal.append(plan.messages)
            change = Change(plan.group, wal.name)
            self.pending.add(change)
            return change

        return self.alone(log)

    def retire(self, changes: Sequence[Change]) -> None:
        """Record that these are durable in the year files."""

        def record() -> None:
            self.logs.record_done(changes)
            self.pending_size -= sum(len(one.group.body) for one in changes if not one.is_plan)

        self.alone(record)
        self.pending.retire(changes)

    def remove_finished(self) -> None:
        """Remove full logs of which everything is in the year files."""
        self.alone(self._remove_finished)

    def recover(self, found: recovery.Found) -> None:
        """Show the groups that a previous owner left in the logs."""
        self.show(found.changes())
        self.undecided = Undecided(found.undecided().values())

    def take_over(self, found: recovery.Found) -> None:
        """Own the logs that were found; prepared groups are carried over into a new one."""
        for one in found.logs:
            self.logs.adopt(one.log.name, one.size)
        if self.undecided.groups:
            self._wal()

    def finish(self) -> bool:
        """Close the logs and the store; False if there are groups to write back before."""
        return self.alone(self._finish)

    def show(self, changes: Iterable[Change]) -> None:
        """Make committed groups visible."""
        for change in changes:
            self.pending.add(change)
            self.pending_size += 0 if change.is_plan else len(change.group.body)

    def alone(self, step: Callable[[], Result]) -> Result:
        """Run a step that uses the logs while no commit runs, if the store may be written."""
        return self.queue.exclusively(lambda: self.guarded(step))

    def guarded(self, step: Callable[[], Result]) -> Result:
        """Run a step if the store may be written; if it fails, poison the store."""
        self.check()
        try:
            return step()
        except BaseException as error:
            self._poison_if_failed(error)
            raise

    def metrics(self) -> list[Metric]:
        waiting = len(self.pending.waiting())
        return [
            Metric("groups_total", "counter", self._group_count, "groups committed"),
            Metric("group_bytes_total", "counter", self._byte_count, "bytes of groups committed"),
            Metric("waiting_groups", "gauge", waiting, "groups not yet in the year files"),
            Metric("waiting_bytes", "gauge", self.pending_size, "bytes of these groups"),
            Metric("undecided_groups", "gauge", len(self.undecided.groups), "prepared groups"),
            Metric("log_bytes", "gauge", self.logs.size, "bytes in write-ahead logs"),
            self._seconds.metric("commit_seconds", "time that one commit of a group takes"),
        ]

    def _poison_if_failed(self, error: BaseException) -> None:
        refused = isinstance(error, HoldfastError | ValueError)  # and nothing was written
        if not refused or isinstance(error, OSError | PoisonedError):
            self._handle.poison("a write", error)

    def _commit(self, items: Sequence[Item]) -> None:
        self.check()
        began = self._monotonic()
        try:
            self._commit_all(items)
        except BaseException as error:
            self._poison_if_failed(error)
            raise
        self._seconds.observe(self._monotonic() - began)

    def _commit_all(self, items: Sequence[Item]) -> None:
        fresh: dict[str, Schema] = {}
        good = [item for item in items if item.count and self._fits(item, fresh)]
        if not good:
            return
        wal = self._wal()
        tgid = self.logs.next_ns()
        sets = b"".join([part for item in good for part in item.parts])
        messages, group = fmt.encode_write(tgid, sets, sum(item.count for item in good))
        wal.append(messages)
        # Durable, so now visible.  If the sync fails, readers see nothing.
        self.pending.add(Change(group, wal.name))
        self.pending_size += len(group.body)
        self._group_count += 1
        self._byte_count += len(group.body)
        for item in good:
            item.tgid = tgid
            for new in item.new_files.values():
                self._catalog.add(new.key, new.year, new.schema)

    def _prepare(self, item: Item) -> None:
        if not self._fits(item, {}):
            return
        wal = self._wal()
        tgid = self.logs.next_ns()
        sets = b"".join([fmt.encode_decision(), *item.parts])
        messages, group = fmt.encode_write(tgid, sets, item.count + 1, fmt.INTENDED)
        wal.append(messages)
        self.undecided.add(group)
        item.tgid = tgid

    def _adopt(self, staged: fmt.Group) -> int:
        self.undecided.refuse_other(brought(staged), self._catalog, {})
        for damage in recovery.check((), self._disk, self._catalog, [Change(staged, "staged")]):
            raise ValueError(damage.why)
        wal = self._wal()
        group = staged._replace(tgid=self.logs.next_ns())
        wal.append(fmt.rewrite(group, fmt.INTENDED))
        self.undecided.add(group)
        return group.tgid

    def _resolve(self, tgids: Sequence[int], commit: bool) -> None:
        for tgid in tgids:
            if tgid not in self.undecided.groups:
                raise HoldfastError(f"no undecided group {tgid}; see `undecided` for those left")
        wal, status = self._wal(), fmt.COMPLETE if commit else fmt.ABORTED
        decision = fmt.encode_write(self.logs.next_ns(), fmt.encode_decision(tgids, status), 1)
        infos = [fmt.encode_info(tgid, fmt.WAL, status) for tgid in tgids]
        wal.append(b"".join([decision.messages, *infos]))
        changes = [Change(self.undecided.pop(tgid), wal.name) for tgid in tgids]
        if commit:
            self.show(changes)
            for schema, key, year in new_files(one for change in changes for one in change.sets):
                self._catalog.add(key, year, schema)

    def _fits(self, item: Item, fresh: dict[str, Schema]) -> bool:
        """Check an item against new buckets of items that are committed together with it."""
        new = {one.key: one.schema for one in item.new_files.values()}
        try:
            self.undecided.refuse_other(new, self._catalog, fresh)
        except ValueError as error:
            item.error = error
            return False
        fresh |= new
        return True

    def _wal(self) -> Wal:
        """Return the log to write to; a new one begins with the prepared groups."""
        prepared = self.undecided.groups.values()
        return self.logs.active(lambda: (fmt.rewrite(one, fmt.INTENDED) for one in prepared))

    def _remove_finished(self) -> None:
        self.logs.remove_finished({change.log for change in self.pending.waiting()})

    def _finish(self) -> bool:
        if self.pending.waiting():  # others may go on committing until this is done
            return False
        self._remove_finished()
        self.logs.finish(is_wanted=bool(self.undecided.groups))
        self._handle.close()
        return True
