"""One state of a root, pinned by whoever plans a large read, and read later by many others.

Nobody is kept from writing meanwhile, and year files are written in place.  So a pin says of every
file when it was last changed, and of the logs how far they went; it carries the groups that were
not in the files for sure.  Who reads a file of a pin looks afterwards: has it changed?  If so, the
logs tell by what.  Groups of the pin itself lie over it anyway, and bars behind the last that there
was are left out; but where a later group has replaced something, or may have, ChangedError is
raised.  A row that is shown is as it was when the pin was made, always.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.bars import parts, replay
from holdfast.bars.catalog import Catalog, YearPath, split_path, year_path
from holdfast.bars.guest import BarReader
from holdfast.bars.pending import Change, Overlay, Reading
from holdfast.bars.query import AgainError, Query, Rows, Span, new_schema
from holdfast.disk import Disk
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import bar_time
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import Header, Schema, schema_of

UNSURE = -1
_TRIES = 100
_NEW = (fmt.NEW_FIXED_FILE, fmt.NEW_VARIABLE_FILE)


class Stamp(NamedTuple):
    """When a file was changed, and what it takes up; with UNSURE it has perhaps changed since."""

    changed_ns: int
    size: int
    used: int  # bytes that are no holes, as far as is known: they are counted late

    def vouches_for(self, now: "Stamp | None") -> bool:
        """Nothing was written meanwhile."""
        return now is not None and self[:2] == now[:2] and self.changed_ns != UNSURE


Stamps = Callable[[str], Stamp | None]  # by a file's name; None if it is not there


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A year of a bucket."""

    key: str
    year: int
    stamp: Stamp | None  # none: it was not there, and all of it is in groups
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
        tgids = [int.from_bytes(body[:8], "little", signed=True) for body in self.groups]
        return [
            Change(fmt.Group(0, tgid, body), "a pin")
            for tgid, body in zip(tgids, self.groups, strict=True)
        ]

    def split(self, parts: Sequence[Sequence[PinnedFile]]) -> "list[Pin]":
        """The same state of some of the files each."""
        where = {file.path: number for number, part in enumerate(parts) for file in part}
        groups = _carried(self.changes(), where, len(parts))
        return [
            replace(self, files=tuple(part), groups=own)
            for part, own in zip(parts, groups, strict=True)
        ]


class PinningReader(BarReader):
    """A guest that can pin what it sees."""

    def pin(
        self,
        symbols: Collection[str] | None,
        timeframe: str,
        attributes: str,
        *,
        span: Span,
        stamps: Stamps,
        years: Collection[int] | None = None,
    ) -> Pin | None:
        """What there is now of these symbols, or of all; None if there is no such bucket."""
        ending = f"/{timeframe}/{attributes}"
        bar_time.parse_timeframe(timeframe)
        for _ in range(_TRIES):
            try:
                with self._watch() as reading:
                    return self._pin(symbols, ending, span, years, stamps, reading)
            except AgainError:
                continue
        raise ChangedError(f"{self._disk} changes faster than it can be looked at; try again")

    def schema_of_any(
        self, symbols: Collection[str] | None, timeframe: str, attributes: str
    ) -> Schema | None:
        """The columns of the first of these buckets that is there."""
        for symbol in sorted(symbols) if symbols is not None else self.symbols():
            if schema := self.schema(symbol, timeframe, attributes):
                return schema
        return None

    def later(self, pin: Pin) -> list[Change] | None:
        """The groups that were committed after a pin; None if their logs may be gone.

        Logs go oldest first: while the newest of the pin is there, all later ones are.
        """
        self._refresh()
        if not pin.logs or pin.logs[-1][0] not in self._logs:
            return None
        stops, found = dict(pin.logs), list[Change]()
        for watched in sorted(self._logs.values(), key=lambda one: one.log.created_ns):
            log, data = watched.log, watched.file.read_at(0, watched.size)
            known = replay.read_log(log, data[: stops.get(log.name, 0)], self._disk, self._catalog)
            whole = replay.read_log(log, data, self._disk, self._catalog)
            found += whole.content.changes[len(known.content.changes) :]
        return found

    def _pin(
        self,
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
        for symbol in self._catalog.symbols() if symbols is None else symbols:
            key = symbol + ending
            for year in self._catalog.years(key):
                schemas[key] = None
                if year in within:
                    stamp = stamps(year_path(key, year))
                    found[key, year] = PinnedFile(key, year, stamp, self._last(key, year))
        overlay = reading.overlay()
        logs = tuple((content.name, content.stop) for content in self._contents())
        for (key, year), new in _touched(overlay).items():
            if key.endswith(ending) and (symbols is None or key.split("/")[0] in symbols):
                schemas[key] = new_schema(new) if new is not None else schemas.get(key)
                if year in within:
                    found.setdefault((key, year), PinnedFile(key, year, None, None))
        schema = self._one_schema(schemas)
        if schema is None:
            return None
        files = tuple(found[name] for name in sorted(found))
        (groups,) = _carried(overlay.changes, {file.path: 0 for file in files}, 1)
        return Pin(schema.columns, schema.is_variable, span, files, groups, logs)

    def _last(self, key: str, year: int) -> int | None:
        """The last interval of a file that holds anything; only if somebody may be writing."""
        if not self._logs:
            return None
        path = year_path(key, year)
        file = self._disk.open(path)
        try:
            header = self._catalog.header(file, path)
            if isinstance(header, Flaw) or header.schema.is_variable:
                return None
            part, _ = parts.read_tail(file, header, header.first_index, header.last_index, (), 1)
            return int(part.index[-1]) if len(part.index) else -1
        finally:
            file.close()

    def _one_schema(self, schemas: dict[str, Schema | None]) -> Schema | None:
        found: Schema | None = None
        first = ""
        for key, brought in schemas.items():
            schema = brought or self._catalog.schema(key)
            if found is not None and schema is not found:
                raise ValueError(f"{key} has other columns than {first}: read them apart")
            found, first = schema, key
        return found


def read_pinned(
    disk: Disk, pin: Pin, file: PinnedFile, columns: Sequence[str], stamps: Stamps
) -> Rows:
    """The rows of one file of a pin.  ChangedError if they are not to be had any more."""
    changes, trouble = pin.changes(), None
    try:
        rows = _read(disk, pin, file, columns, changes)
    except CorruptError as error:  # or is it only that someone is writing it anew?
        trouble = error
    now = stamps(file.path)
    if file.stamp.vouches_for(now) if file.stamp else now is None:
        if trouble is not None:
            raise trouble
        return rows
    plans = _plans_since(disk, pin, file)
    if plans:  # what they put into the file must not be laid over it once more
        return _read(disk, pin, file, columns, [*changes, *plans])
    if trouble is not None:
        raise trouble
    return rows


def _plans_since(disk: Disk, pin: Pin, file: PinnedFile) -> list[Change]:
    with PinningReader(disk) as guest:
        later = guest.later(pin)
    if later is None:
        raise ChangedError(
            f"{file.path} was written to since the read was planned, and the log does not say "
            "any more by whom: load it again"
        )
    plans = []
    for change in later:
        if change.is_plan and file.path in change.by_path:
            plans.append(change)
        elif any(_replaces(one, file) for one in change.by_path.get(file.path, ())):
            raise ChangedError(
                f"{file.path}: rows were replaced since the read was planned: load it again"
            )
    return plans


def _replaces(one: fmt.WriteSet, file: PinnedFile) -> bool:
    """Could this have changed what was there?"""
    if one.kind in _NEW:
        return False
    return file.last is None or (one.count > 0 and int(one.index.min()) <= file.last)


def _read(
    disk: Disk, pin: Pin, file: PinnedFile, columns: Sequence[str], changes: Sequence[Change]
) -> Rows:
    start_ns = bar_time.year_start_ns(file.year)
    end_ns = bar_time.year_start_ns(file.year + 1) - 1
    span = Span(max(pin.span.start_ns, start_ns), min(pin.span.end_ns, end_ns))
    query = _PinnedQuery(disk, _PinnedCatalog(disk, file), span, columns)
    query.last = file.last
    for _ in range(_TRIES):
        try:
            schema, found = query.rows([file.key], _Fixed(Overlay(changes)))
        except AgainError:
            continue
        if schema is not pin.schema:
            raise ChangedError(f"{file.path} has other columns now: load it again")
        return found[file.key]
    raise ChangedError(f"{file.path} is being made anew all the time: load it again")


class _PinnedCatalog(Catalog):
    """Knows of one file."""

    def __init__(self, disk: Disk, file: PinnedFile) -> None:
        super().__init__(disk)
        self._years[file.key] = frozenset({file.year} if file.stamp else ())


class _PinnedQuery(Query):
    """Sees no bars behind the last that there was."""

    last: int | None = None

    def _bounds(self, header: Header) -> tuple[int, int]:
        first, last = super()._bounds(header)
        return first, last if self.last is None else min(last, self.last)


class _Fixed:
    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def overlay(self) -> Overlay:
        return self._overlay


def _touched(overlay: Overlay) -> dict[YearPath, fmt.WriteSet | None]:
    """The files that these groups concern, and what makes them if they are new."""
    found: dict[YearPath, fmt.WriteSet | None] = {}
    for change in overlay.changes:
        for one in change.sets:
            named = split_path(one.path)
            if named is not None and (one.kind in _NEW or named not in found):
                found[named] = one if one.kind in _NEW else None
    return found


def _carried(
    changes: Iterable[Change], where: Mapping[str, int], count: int
) -> list[tuple[bytes, ...]]:
    """Of these groups, what concerns the files of each of so many parts."""
    found: list[list[bytes]] = [[] for _ in range(count)]
    for change in changes:
        kept: dict[int, list[fmt.WriteSet]] = {}
        for one in change.sets:
            if one.path in where:
                kept.setdefault(where[one.path], []).append(one)
        for number, sets in kept.items():
            if change.is_plan:
                sets = [change.sets[0], *sets]
            data = b"".join(_encode(one) for one in sets)
            found[number].append(fmt.encode_group(change.tgid, data, len(sets))[9:-16])
    return [tuple(groups) for groups in found]


def _encode(one: fmt.WriteSet) -> bytes:
    place = fmt.encode_place(one.kind, one.path, one.year, one.intervals)
    return fmt.encode_set(place, one.index, one.rows.tobytes(), one.width)
