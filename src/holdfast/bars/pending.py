"""Groups that are committed in the log and not yet, or not for sure, in the year files.

A reader looks at the year files between two looks at these: every group that could have touched
the files meanwhile is here when it looks the second time, whole, and lies over what it has read.
So a query sees all of a group or nothing of it, whatever the write-back is doing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from holdfast import runtime
from holdfast.bars.catalog import split_path
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import HEADER_SIZE, SLOT

Payloads = dict[int, bytes]  # by interval, as the year file has them


class Change:
    """A committed group, or the plan of a write-back, which tells bytes and where they go."""

    def __init__(self, group: fmt.Group, log: str) -> None:
        self.group, self.log = group, log
        self.tgid = group.tgid
        self.is_done = False  # durable in the year files
        self.is_sound = True  # as far as anybody has looked

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
        """The years that this touches, by bucket."""
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
        """The tgids of the groups that this plan puts into files of many rows."""
        with suppress(CorruptError):  # of a group that makes no sense, replay.check tells it
            return frozenset(self.sets[0].index.tolist()) if self.is_plan else frozenset()
        return frozenset()

    def payloads(self, path: str) -> Payloads:
        """What a plan puts into the intervals of a file."""
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
    """Mark what must be done, because something is of which the log says so.

    Groups go to the files in order, together with the plan that covers them; and of them all the
    log is told when all are durable.  It may be that only a part of what it was told is left.
    """
    groups = [change for change in changes if change.group.first_kind != fmt.PLACED]
    plans = [change for change in changes if change.group.first_kind == fmt.PLACED]
    done = {change.tgid for change in changes if change.is_done}
    if not done:
        return
    for plan in plans:
        if plan.tgid in done or plan.covers & done:
            plan.is_done = True
            done |= plan.covers
    last = max((at for at, one in enumerate(groups) if one.tgid in done), default=-1)
    for group in groups[: last + 1]:
        group.is_done = True
    done = {group.tgid for group in groups[: last + 1]}
    for plan in plans:
        plan.is_done = plan.is_done or bool(plan.covers & done)


class Overlay:
    """What lies over the files that a reader has read."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self._plans = [change for change in changes if change.is_plan]
        self._planned = frozenset[int]().union(*(plan.covers for plan in self._plans))

    def sets(self, path: str, *, is_variable: bool) -> list[fmt.WriteSet]:
        """In order of commit; of a file of many rows, only those that no plan has taken in."""
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
        """The set that makes this file, if it is to be made."""
        for change in self.changes:
            for one in change.by_path.get(path, ()):
                if one.kind in (fmt.NEW_FIXED_FILE, fmt.NEW_VARIABLE_FILE):
                    return one
        return None

    def years(self, key: str) -> set[int]:
        """The years of a bucket that these groups touch."""
        return set[int]().union(*(change.years.get(key, ()) for change in self.changes))

    @property
    def keys(self) -> set[str]:
        """All buckets that these groups touch."""
        return set[str]().union(*(change.years for change in self.changes))


class Reading(Protocol):
    """Between two looks."""

    def overlay(self) -> Overlay:
        """The second look, after all files were read."""
        ...


class Pending:
    """The changes of an owner, in order of commit."""

    def __init__(self) -> None:
        self._mutex = runtime.reentrant_lock()  # a signal handler may write
        self._changes: list[Change] = []  # those done and still wanted by a reader included
        self._dropped = 0  # how many were before the first of these
        self._readers: dict[int, int] = {}  # the first change that each wants
        self._next_reader = 0

    def add(self, *changes: Change) -> None:
        with self._mutex:
            self._changes += changes

    def waiting(self) -> list[Change]:
        """Those that are not done."""
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
            yield _OwnReading(self, number)
        finally:
            with self._mutex:
                del self._readers[number]
                self._drop()

    def overlay(self, reader: int) -> Overlay:
        with self._mutex:
            return Overlay(self._changes[self._readers[reader] - self._dropped :])

    def _drop(self) -> None:
        wanted = min(self._readers.values(), default=self._dropped + len(self._changes))
        count = 0
        while count < wanted - self._dropped and self._changes[count].is_done:
            count += 1
        del self._changes[:count]
        self._dropped += count


class _OwnReading:
    def __init__(self, pending: Pending, number: int) -> None:
        self._pending, self._number = pending, number

    def overlay(self) -> Overlay:
        return self._pending.overlay(self._number)


class Placed(NamedTuple):
    """What a plan puts into one file."""

    year: int
    payloads: Payloads  # here by their offsets in the file
    offsets: npt.NDArray[np.int64]  # of the slots
    slots: npt.NDArray[np.void]


def encode_plan(covers: Sequence[int], files: dict[str, Placed]) -> tuple[bytes, int]:
    """The sets of a plan, and how many.  A payload's set has year 0: so it is told from slots."""
    parts = [fmt.encode_set(fmt.encode_place(fmt.PLACED, "", 0, 0), list(covers), b"", 0)]
    for path, placed in files.items():
        place = fmt.encode_place(fmt.PLACED, path, 0, 0)
        for offset, payload in placed.payloads.items():
            parts.append(fmt.encode_set(place, [offset], payload, len(payload)))
        place = fmt.encode_place(fmt.PLACED, path, placed.year, 0)
        parts.append(fmt.encode_set(place, placed.offsets, placed.slots.tobytes(), 24))
    return b"".join(parts), len(parts)
