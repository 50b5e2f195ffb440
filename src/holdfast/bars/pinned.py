"""One state of a root, pinned by the planner of a large read, and read later by many processes.

Owners continue to write meanwhile, and they write year files in place.  So a pin records when each
file was last changed and how long the logs were.  It carries the groups that may not be in the
files.  A process that reads a file of a pin checks afterwards whether the file has changed; the
logs then show which groups changed it.  Groups of the pin are laid over the file in any case.  Bars
after the last one of the pin, and ticks of later groups, are left out.  If a later group may have
replaced a row, ChangedError is raised.  So a read returns every row in the state of the pin.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from holdfast.bars import parts
from holdfast.bars.catalog import Catalog, YearPath, split_path, year_path
from holdfast.bars.query import AgainError, Query, Rows, Span
from holdfast.bars.reader import BarReader
from holdfast.bars.view import NEW_FILE, Change, Overlay, Reading, new_schema
from holdfast.disk import Disk
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import bar_time
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import Header, Schema, schema_of

UNSURE = -1
_TRIES = 100


class Stamp(NamedTuple):
    """When a file was last changed, and its size; with UNSURE it may have changed since."""

    changed_ns: int
    size: int
    used: int  # bytes without holes, about: the file system counts them late

    def vouches_for(self, now: "Stamp | None") -> bool:
        """Return whether the file has not been written since this stamp."""
        return now is not None and self[:2] == now[:2] and self.changed_ns != UNSURE


Stamps = Callable[[str], Stamp | None]  # by the name of a file; None if it is missing


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A year of a bucket."""

    key: str
    year: int
    stamp: Stamp | None  # None: the file was missing, and all of its rows are in groups
    last: int | None  # if known: no later interval held anything

    @property
    def path(self) -> str:
        return year_path(self.key, self.year)

    @property
    def used(self) -> int:
        return self.stamp.used if self.stamp else 0


@dataclass(frozen=True, slots=True)
class Pin:
    """Can be pickled, and cut into parts."""

    columns: tuple[tuple[str, int], ...]
    is_variable: bool
    span: Span
    files: tuple[PinnedFile, ...]
    groups: tuple[bytes, ...]  # what lies over these files, in order of commit
    logs: tuple[tuple[str, int], ...]  # names, oldest first, and how far each was read

    @property
    def schema(self) -> Schema:
        return schema_of(self.columns, self.is_variable)

    def changes(self) -> list[Change]:
        return [Change(fmt.group_of(body), "a pin") for body in self.groups]

    def split(self, parts: Sequence[Sequence[PinnedFile]]) -> "list[Pin]":
        """Split a pin into pins of some of its files each."""
        where = {file.path: number for number, part in enumerate(parts) for file in part}
        groups = _carried(self.changes(), where, len(parts))
        return [
            replace(self, files=tuple(part), groups=own)
            for part, own in zip(parts, groups, strict=True)
        ]


def take_pin(
    reader: BarReader,
    symbols: Collection[str] | None,
    timeframe: str,
    attributes: str,
    *,
    span: Span,
    stamps: Stamps,
    years: Collection[int] | None = None,
) -> Pin | None:
    """Pin the current state of these symbols, or of all; None if there is no such bucket."""
    ending = f"/{timeframe}/{attributes}"
    bar_time.parse_timeframe(timeframe)
    return reader._settled(
        lambda reading: _pin(reader, symbols, ending, span, years, stamps, reading)
    )


def schema_of_any(
    reader: BarReader, symbols: Collection[str] | None, timeframe: str, attributes: str
) -> Schema | None:
    """Return the columns of the first of these buckets that exists."""
    for symbol in sorted(symbols) if symbols is not None else reader.symbols():
        if schema := reader.schema(symbol, timeframe, attributes):
            return schema
    return None


def changes_since(reader: BarReader, pin: Pin) -> list[Change] | None:
    """Return the groups that were committed after a pin; None if their logs may be removed.

    Logs are removed oldest first: while the newest of the pin is there, all later ones are.
    """
    reader._logs.refresh()
    if not pin.logs or pin.logs[-1][0] not in reader._logs:
        return None
    return reader._logs.changes_after(dict(pin.logs))


def _pin(
    reader: BarReader,
    symbols: Collection[str] | None,
    ending: str,
    span: Span,
    years: Collection[int] | None,
    stamps: Stamps,
    reading: Reading,
) -> Pin | None:
    within = [year for year in span.years() if years is None or year in years]
    found: dict[tuple[str, int], PinnedFile] = {}
    schemas: dict[str, Schema | None] = {}
    for symbol in reader._catalog.symbols() if symbols is None else symbols:
        key = symbol + ending
        for year in reader._catalog.years(key):
            schemas[key] = None
            if year in within:
                stamp = stamps(year_path(key, year))
                last = _last(reader, key, year) if len(reader._logs) else None
                found[key, year] = PinnedFile(key, year, stamp, last)
    overlay = reading()
    logs = tuple((content.name, content.stop) for content in reader._logs.contents())
    for (key, year), new in _touched(overlay).items():
        if key.endswith(ending) and (symbols is None or key.split("/")[0] in symbols):
            schemas[key] = new_schema(new) if new is not None else schemas.get(key)
            if year in within:
                found.setdefault((key, year), PinnedFile(key, year, None, None))
    schema = _one_schema(reader._catalog, schemas)
    if schema is None:
        return None
    files = tuple(found[name] for name in sorted(found))
    (groups,) = _carried(overlay.changes, {file.path: 0 for file in files}, 1)
    return Pin(schema.columns, schema.is_variable, span, files, groups, logs)


def _last(reader: BarReader, key: str, year: int) -> int | None:
    """Return the last interval of a file that holds a bar; None if that is not known."""
    path = year_path(key, year)
    with closing(reader._disk.open(path)) as file:
        header = reader._catalog.header(file, path)
        if isinstance(header, Flaw) or header.schema.is_variable:
            return None
        part, _ = parts.read_tail(file, header, header.first_index, header.last_index, (), 1)
        return int(part.index[-1]) if len(part.index) else -1


def _one_schema(catalog: Catalog, schemas: dict[str, Schema | None]) -> Schema | None:
    found: Schema | None = None
    first = ""
    for key, brought in schemas.items():
        schema = brought or catalog.schema(key)
        if found is not None and schema is not found:
            raise ValueError(f"{key} has other columns than {first}: read them separately")
        found, first = schema, key
    return found


def read_pinned(
    disk: Disk, pin: Pin, file: PinnedFile, columns: Sequence[str], stamps: Stamps
) -> Rows:
    """Return the rows of one file of a pin; ChangedError if that state no longer exists."""
    since = _Since()
    for _ in range(_TRIES):
        trouble = None
        try:
            rows = _read(disk, pin, file, columns, since)
        except CorruptError as error:  # or the owner is just writing it again
            trouble = error
        now = stamps(file.path)
        if file.stamp.vouches_for(now) if file.stamp else now is None:
            known = since
        else:  # a plan is in the log before it is in the file: look after the file was read
            known = _look(disk, pin, file)
        if len(known.plans) == len(since.plans):
            if trouble is not None:
                raise trouble
            return rows
        since = known
    raise ChangedError(f"{file.path} was written during every attempt to read it: load it again")


@dataclass(frozen=True, slots=True)
class _Since:
    """What was written to a file of ticks after the pin: whole intervals, and the ticks in them."""

    plans: tuple[Change, ...] = ()
    ticks: tuple[fmt.WriteSet, ...] = ()


def _look(disk: Disk, pin: Pin, file: PinnedFile) -> _Since:
    with BarReader(disk) as reader:
        later = changes_since(reader, pin)
    if later is None:
        raise ChangedError(
            f"{file.path} was written after the read was planned, and the logs no longer show "
            "which groups did it: load it again"
        )
    plans = tuple(one for one in later if one.is_plan and file.path in one.by_path)
    covered = frozenset[int]().union(*(plan.covers for plan in plans))
    ticks: list[fmt.WriteSet] = []
    for change in later:
        sets = () if change.is_plan else change.by_path.get(file.path, ())
        if pin.is_variable and change.tgid not in covered:
            continue  # it is not in the file yet
        for one in sets:
            if _replaces(one, file, is_variable=pin.is_variable):
                raise ChangedError(
                    f"{file.path}: rows were replaced since the read was planned: load it again"
                )
            ticks += [one] if one.kind == fmt.VARIABLE else []
    return _Since(plans, tuple(ticks))


def _replaces(one: fmt.WriteSet, file: PinnedFile, *, is_variable: bool) -> bool:
    """Return whether this may have replaced or removed a row.  Ticks are only added."""
    if one.kind in NEW_FILE or (is_variable and one.kind == fmt.VARIABLE):
        return False
    return file.last is None or (one.count > 0 and int(one.index.min()) <= file.last)


def _read(disk: Disk, pin: Pin, file: PinnedFile, columns: Sequence[str], since: _Since) -> Rows:
    changes = [*pin.changes(), *since.plans]  # what is in a plan is not laid over the file again
    start_ns = bar_time.year_start_ns(file.year)
    stop_ns = bar_time.year_start_ns(file.year + 1)
    span = Span(max(pin.span.start_ns, start_ns), min(pin.span.stop_ns, stop_ns))
    query = _PinnedQuery(disk, _PinnedCatalog(disk, file), span, columns)
    query.last, query.later = file.last, since.ticks
    for _ in range(_TRIES):
        try:
            schema, found = query.rows([file.key], lambda: Overlay(changes))
        except AgainError:
            continue
        if schema is not pin.schema:
            raise ChangedError(f"{file.path} has other columns now: load it again")
        return found[file.key]
    raise ChangedError(
        f"{file.path} was created again during every attempt to read it: load it again"
    )


class _PinnedCatalog(Catalog):
    """A catalog of one file."""

    def __init__(self, disk: Disk, file: PinnedFile) -> None:
        super().__init__(disk)
        self._years[file.key] = frozenset({file.year} if file.stamp else ())


class _PinnedQuery(Query):
    """A query that ends at the last bar of the pin, and leaves out later ticks."""

    last: int | None = None
    later: tuple[fmt.WriteSet, ...] = ()

    def _bounds(self, header: Header) -> tuple[int, int]:
        first, last = super()._bounds(header)
        return first, last if self.last is None else min(last, self.last)

    def _ticks(
        self,
        part: parts.Part,
        schema: Schema,
        sets: Sequence[fmt.WriteSet],
        overlay: Overlay,
        path: str,
    ) -> parts.Ticks:
        found = super()._ticks(part, schema, sets, overlay, path)
        if not self.later:
            return found
        index = np.concatenate([one.index for one in self.later])
        rows = np.concatenate([parts.stored_rows(one, schema) for one in self.later])
        earlier = parts.taken_out(found, parts.Ticks(index, rows))
        if earlier is None:
            raise ChangedError(
                f"{path}: ticks were removed since the read was planned: load it again"
            )
        return earlier


def _touched(overlay: Overlay) -> dict[YearPath, fmt.WriteSet | None]:
    """Return the files that these groups concern, and the sets that create new ones."""
    found: dict[YearPath, fmt.WriteSet | None] = {}
    for change in overlay.changes:
        for one in change.sets:
            named = split_path(one.path)
            if named is not None and (one.kind in NEW_FILE or named not in found):
                found[named] = one if one.kind in NEW_FILE else None
    return found


def _carried(
    changes: Iterable[Change], where: Mapping[str, int], count: int
) -> list[tuple[bytes, ...]]:
    """Return for each part the groups that concern its files."""
    found: list[list[bytes]] = [[] for _ in range(count)]
    for change in changes:
        kept: dict[int, list[fmt.WriteSet]] = {}
        for one in change.sets:
            if one.path in where:
                kept.setdefault(where[one.path], []).append(one)
        for number, sets in kept.items():
            if change.is_plan:
                sets = [change.sets[0], *sets]
            data = b"".join(fmt.encode_again(one) for one in sets)
            group = fmt.encode_write(change.tgid, data, len(sets)).group
            found[number].append(bytes(group.body))
    return [tuple(groups) for groups in found]
