"""A view of a root: the year files, and the committed groups that are not yet in them for sure.

A reader takes a view in two steps: it reads the year files between two looks at the groups.  Every
group that could have changed the files meanwhile is there at the second look, whole, and is laid
over what was read.  So a query shows all of a group or nothing of it during a write-back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.bars.catalog import Catalog, split_path
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import HEADER_SIZE, SLOT, Schema, schema_of
from holdfast.runtime import Runtime

Payloads = dict[int, bytes]  # by interval, as the year file has them
NEW_FILE = (fmt.NEW_FIXED_FILE, fmt.NEW_VARIABLE_FILE)


class Change:
    """A committed group, or the plan of a write-back: bytes, and the offsets to write them to."""

    def __init__(self, group: fmt.Group, log: str) -> None:
        self.group, self.log = group, log
        self.tgid = group.tgid
        self.is_done = False  # durable in the year files
        self.is_sound = True  # False after a check has found it invalid

    @cached_property
    def sets(self) -> list[fmt.WriteSet]:
        sets = fmt.decode_sets(self.group)
        if isinstance(sets, Flaw):
            raise CorruptError(self.log, sets.offset, sets.why)
        return sets

    @cached_property
    def by_path(self) -> dict[str, list[fmt.WriteSet]]:
        found: dict[str, list[fmt.WriteSet]] = {}
        for one in self.sets:
            found.setdefault(one.path, []).append(one)
        return found

    @cached_property
    def years(self) -> dict[str, set[int]]:
        """Return the years that this touches, by bucket."""
        found: dict[str, set[int]] = {}
        for path in self.by_path:
            named = split_path(path)
            if named is not None:
                found.setdefault(named.key, set()).add(named.year)
        return found

    @property
    def is_plan(self) -> bool:
        return bool(self.sets) and self.sets[0].kind == fmt.PLACED and not self.sets[0].path

    @cached_property
    def covers(self) -> frozenset[int]:
        """Return the tgids of the groups that this plan puts into files of ticks."""
        with suppress(CorruptError):  # recovery.check reports an invalid group
            return frozenset(self.sets[0].index.tolist()) if self.is_plan else frozenset()
        return frozenset()

    def payloads(self, path: str) -> Payloads:
        """Return what a plan puts into the intervals of a file."""
        placed = self.by_path.get(path, ())
        content = {int(one.index[0]): one.rows.tobytes() for one in placed if one.year == 0}
        found = {}
        for one in placed:
            if one.year != 0:
                intervals = (one.index - HEADER_SIZE) // SLOT.itemsize + 1
                slots = one.rows.reshape(-1).view(SLOT)
                for index, slot in zip(intervals.tolist(), slots.tolist(), strict=True):
                    found[index] = content[slot[1]] if slot[2] else b""
        return found


def complete(changes: Sequence[Change]) -> None:
    """Mark as done all changes that were written back together with one that is done, or before it.

    Groups are written to the files in order, together with the plan that covers them.  The log
    records all of them when all are durable, but a crash may leave only a part of these records.
    A plan may even outlive the log that has the groups and their records.
    """
    done = {change.tgid for change in changes if change.is_done}
    is_group_done = is_plan_done = False  # or a later one is
    for change in reversed(changes):
        if change.group.first_kind != fmt.PLACED:
            change.is_done = is_group_done = is_group_done or change.tgid in done
            continue
        is_plan_done |= is_group_done or change.tgid in done or bool(change.covers & done)
        change.is_done = is_plan_done
        if is_plan_done:
            done |= change.covers
    done = {change.tgid for change in changes if change.is_done}
    for change in changes:
        if change.group.first_kind == fmt.PLACED and change.covers & done:
            change.is_done = True


class Overlay:
    """The groups to lay over the files that a reader has read."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self._plans = [change for change in changes if change.is_plan]
        self._planned = frozenset[int]().union(*(plan.covers for plan in self._plans))

    def sets(self, path: str, *, is_variable: bool) -> list[fmt.WriteSet]:
        """Return sets in order of commit; of a file of ticks, only those that no plan covers."""
        found: list[fmt.WriteSet] = []
        for change in self.changes:
            if change.is_plan or (is_variable and change.tgid in self._planned):
                continue
            found += change.by_path.get(path, ())
        return found

    def payloads(self, path: str) -> Payloads:
        found: Payloads = {}
        for plan in self._plans:
            found.update(plan.payloads(path))
        return found

    def new_file(self, path: str) -> fmt.WriteSet | None:
        """Return the set that creates this file, if there is one."""
        for change in self.changes:
            for one in change.by_path.get(path, ()):
                if one.kind in NEW_FILE:
                    return one
        return None

    def years(self, key: str) -> set[int]:
        """Return the years of a bucket that these groups touch."""
        return set[int]().union(*(change.years.get(key, ()) for change in self.changes))

    @property
    def keys(self) -> set[str]:
        """Return all buckets that these groups touch."""
        return set[str]().union(*(change.years for change in self.changes))


Reading: TypeAlias = Callable[[], Overlay]  # takes the second look, after all files were read


class Source(Protocol):
    """Where a reader looks for groups: the owner's memory, or the logs."""

    def reading(self) -> AbstractContextManager[Reading]:
        """Take the first look; groups that are there now stay until the block ends."""
        ...


class Pending:
    """The changes of an owner, in order of commit."""

    def __init__(self, runtime: Runtime) -> None:
        self._mutex = runtime.reentrant_lock()  # a signal handler may write
        self._changes: list[Change] = []  # those done and still wanted by a reader included
        self._dropped = 0  # how many were before the first of these
        self._readers: dict[int, int] = {}  # the first change that each wants
        self._next_reader = 0

    def add(self, *changes: Change) -> None:
        with self._mutex:
            self._changes += changes

    def waiting(self) -> list[Change]:
        """Return the changes that are not done."""
        with self._mutex:
            return [change for change in self._changes if not change.is_done]

    def retire(self, changes: Sequence[Change]) -> None:
        with self._mutex:
            for change in changes:
                change.is_done = True
            self._drop()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self._mutex:
            number = self._next_reader = self._next_reader + 1
            done = 0
            for change in self._changes:
                if not change.is_done:
                    break
                done += 1
            self._readers[number] = self._dropped + done
        try:
            yield lambda: self._overlay(number)
        finally:
            with self._mutex:
                del self._readers[number]
                self._drop()

    def _overlay(self, reader: int) -> Overlay:
        with self._mutex:
            return Overlay(self._changes[self._readers[reader] - self._dropped :])

    def _drop(self) -> None:
        wanted = min(self._readers.values(), default=self._dropped + len(self._changes))
        count = 0
        while count < wanted - self._dropped and self._changes[count].is_done:
            count += 1
        del self._changes[:count]
        self._dropped += count


class Placed(NamedTuple):
    """What a plan puts into one file."""

    year: int
    payloads: Payloads  # here by their offsets in the file
    offsets: npt.NDArray[np.int64]  # of the slots
    slots: npt.NDArray[np.void]


def encode_plan(covers: Sequence[int], files: dict[str, Placed]) -> tuple[bytes, int]:
    """Encode the sets of a plan, and count them.  Year 0 marks the sets of payloads."""
    parts = [fmt.encode_set(fmt.encode_place(fmt.PLACED, "", 0, 0), list(covers), b"", 0)]
    for path, placed in files.items():
        place = fmt.encode_place(fmt.PLACED, path, 0, 0)
        for offset, payload in placed.payloads.items():
            parts.append(fmt.encode_set(place, [offset], payload, len(payload)))
        place = fmt.encode_place(fmt.PLACED, path, placed.year, 0)
        parts.append(fmt.encode_set(place, placed.offsets, placed.slots.tobytes(), 24))
    return b"".join(parts), len(parts)


def new_schema(new: fmt.WriteSet) -> Schema:
    """Return the columns of the file that this set creates."""
    columns, _ = fmt.decode_columns(new.rows.tobytes())
    return schema_of(columns, new.kind == fmt.NEW_VARIABLE_FILE)


def new_files(sets: Iterable[fmt.WriteSet]) -> Iterator[tuple[Schema, str, int]]:
    """Yield columns, bucket and year of the files that these sets create."""
    for one in sets:
        named = split_path(one.path)
        if named is not None and one.kind in NEW_FILE:
            yield new_schema(one), named.key, named.year


class Undecided:
    """Groups that are prepared: durable, and neither committed nor aborted.

    They may bring new buckets; no other group may bring the same with other columns.
    """

    def __init__(self, groups: Iterable[fmt.Group] = ()) -> None:
        self.groups: dict[int, fmt.Group] = {}
        self._brought: dict[str, dict[int, Schema]] = {}  # by bucket, by tgid
        for group in groups:
            self.add(group)

    def add(self, group: fmt.Group) -> None:
        self.groups[group.tgid] = group
        for key, schema in brought(group).items():
            self._brought.setdefault(key, {})[group.tgid] = schema

    def pop(self, tgid: int) -> fmt.Group:
        group = self.groups.pop(tgid)
        for key in brought(group):
            del self._brought[key][tgid]
        return group

    def refuse_other(
        self, new: Mapping[str, Schema], catalog: Catalog, fresh: Mapping[str, Schema]
    ) -> None:
        """Raise ValueError if a new bucket was created with other columns meanwhile."""
        for key, schema in new.items():
            known = catalog.schema(key) or fresh.get(key)
            known = known or next(iter(self._brought.get(key, {}).values()), None)
            if known is not None and known is not schema:
                raise ValueError(f"{key} was created with other columns meanwhile")


def brought(group: fmt.Group) -> dict[str, Schema]:
    """Return the buckets that a group would create, or would add a year to."""
    return {key: schema for schema, key, _ in new_files(Change(group, "a prepared group").sets)}
