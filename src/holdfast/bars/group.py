"""A transaction group: writes and removals that happen together or not at all.

commit: durable and visible when it returns.  prepare: durable; visible after a commit, discarded
after an abort.  After a crash a prepared group is among the store's undecided groups.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from holdfast.bars import intake
from holdfast.bars.catalog import Catalog, make_key, year_path
from holdfast.bars.query import Span
from holdfast.errors import HoldfastError
from holdfast.formats import bar_time
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import HEADER_SIZE, NEW_YEAR_ROOM, Schema

if TYPE_CHECKING:
    from holdfast.bars.commits import Commits


class NewFile:
    """A year file that a group creates."""

    __slots__ = ("key", "path", "schema", "year")

    def __init__(self, key: str, year: int, schema: Schema) -> None:
        self.key, self.year, self.schema = key, year, schema
        self.path = year_path(key, year)

    def encode(self, per_day: int) -> bytes:
        kind = fmt.NEW_VARIABLE_FILE if self.schema.is_variable else fmt.NEW_FIXED_FILE
        columns = fmt.encode_columns(self.schema.columns)
        place = fmt.encode_place(kind, self.path, self.year, per_day)
        return fmt.encode_set(place, [0], columns, len(columns))


class Item:
    """What a group passes to the thread that commits."""

    __slots__ = ("count", "error", "new_files", "parts", "tgid")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.count = 0
        self.new_files: dict[str, NewFile] = {}
        self.tgid = 0
        self.error: ValueError | None = None

    def outcome(self) -> int:
        """Return the tgid, or raise why the group was refused."""
        if self.error is not None:
            raise self.error
        return self.tgid


class Draft:
    """Rows to write and to remove, checked against the catalog and encoded."""

    def __init__(self, catalog: Catalog, places: dict[tuple[str, int], bytes]) -> None:
        self._catalog, self._places = catalog, places
        self.item = Item()

    def write(
        self,
        bars: intake.Table,
        timeframe: str,
        attributes: str,
        *,
        symbol: str | None = None,
        is_variable: bool = False,
    ) -> None:
        """Add rows for one symbol, or for many; see holdfast.bars.intake for what they may be."""
        rows = intake.take_in(bars, symbol)
        if not len(rows.times_ns):
            return
        timeframe_ns = bar_time.parse_timeframe(timeframe)
        years, index = bar_time.locate(rows.times_ns, timeframe_ns)
        order, bounds = intake.cut(rows.codes, years)
        keys = [make_key(name, timeframe, attributes) for name in rows.symbols]
        schemas = self._schemas(keys, rows, is_variable=is_variable)
        starts = order[bounds[:-1]]
        owners, in_year = rows.codes[starts].tolist(), years[starts].tolist()
        per_day = bar_time.intervals_per_day(timeframe_ns)
        ticks = bar_time.encode_ticks(rows.times_ns, timeframe_ns) if is_variable else None
        kinds = dict.fromkeys(schemas)
        for schema in kinds:
            _refuse_new_year(schema, index)
            stored = intake.stored_rows(rows.columns, schema, ticks)
            mine = list(range(len(owners)))
            if len(kinds) > 1:
                mine = [at for at in mine if schemas[owners[at]] is schema]
            picked, cuts = intake.pick(order, bounds, mine)
            known = self._places.get
            places = [
                known((keys[owners[at]], in_year[at]))
                or self._place(keys[owners[at]], in_year[at], schema, per_day)
                for at in mine
            ]
            self.item.parts.append(fmt.encode_sets(places, cuts, index[picked], stored[picked]))
            self.item.count += len(places)

    def remove(self, key: str, times_ns: intake.Ints, span: Span, schema: Schema) -> None:
        """Remove these rows of a bucket: all that it has in this span."""
        timeframe_ns = bar_time.parse_timeframe(key.split("/")[1])
        per_day = bar_time.intervals_per_day(timeframe_ns)
        years, index = bar_time.locate(times_ns, timeframe_ns)
        for year in np.unique(years).tolist():
            place = fmt.encode_place(fmt.REMOVED, year_path(key, year), year, per_day)
            gone, spans, width = np.unique(index[years == year]), b"", 0
            if schema.is_variable:
                starts = bar_time.interval_starts(gone, year, timeframe_ns).tolist()
                ticks = [
                    bar_time.tick_span(span.start_ns, span.stop_ns, begin, timeframe_ns)
                    for begin in starts
                ]
                spans, width = np.array(ticks, "<u4").tobytes(), 8
            self.item.parts.append(fmt.encode_set(place, gone, spans, width))
            self.item.count += 1

    def _schemas(self, keys: list[str], rows: intake.Rows, *, is_variable: bool) -> list[Schema]:
        """Return the columns of each bucket: its own, or those of the rows if it is new."""
        fresh: Schema | None = None
        found = self._catalog.schemas(keys)
        if None in found:
            fresh = intake.schema_for(rows.columns, is_variable=is_variable)
        schemas = [schema or fresh for schema in found]
        for other in {schema for schema in schemas if schema and schema.is_variable != is_variable}:
            kind = "many rows" if other.is_variable else "one row"
            raise ValueError(f"{keys[schemas.index(other)]} has {kind} per interval")
        return [schema for schema in schemas if schema is not None]

    def _place(self, key: str, year: int, schema: Schema, per_day: int) -> bytes:
        """Return the head of a file's sets; heads of existing files are cached."""
        path = year_path(key, year)
        kind = fmt.VARIABLE if schema.is_variable else fmt.FIXED
        place = fmt.encode_place(kind, path, year, per_day)
        if year in self._catalog.years(key):
            self._places[key, year] = place
        elif path not in self.item.new_files:
            new = self.item.new_files[path] = NewFile(key, year, schema)
            self.item.parts.append(new.encode(per_day))
            self.item.count += 1
        return place


class Group:
    """Writes and removals that happen together or not at all.  For one thread."""

    def __init__(
        self, draft: Draft, commits: "Commits", when_committed: Callable[[], None]
    ) -> None:
        self._draft, self._commits, self._when_committed = draft, commits, when_committed
        self._state = "open"

    @property
    def tgid(self) -> int:
        """Return the id of the group; 0 before it is durable."""
        return self._draft.item.tgid

    def write(
        self,
        bars: intake.Table,
        timeframe: str,
        attributes: str,
        *,
        symbol: str | None = None,
        is_variable: bool = False,
    ) -> None:
        """Add rows for one symbol, or for many; see holdfast.bars.intake for what they may be."""
        self._refuse_unless("open")
        self._commits.check()
        self._draft.write(bars, timeframe, attributes, symbol=symbol, is_variable=is_variable)

    def commit(self) -> int:
        """Make the group durable and visible, and return its tgid."""
        if self._state == "prepared":
            self._commits.resolve([self.tgid], commit=True)
        else:
            self._refuse_unless("open")
            self._state = "failed"
            self._commits.commit(self._draft.item)
        self._state = "committed"
        self._when_committed()
        return self.tgid

    def prepare(self) -> int:
        """Make the group durable, to be visible when it is committed; return its tgid."""
        self._refuse_unless("open")
        self._state = "failed"
        self._commits.prepare(self._draft.item)
        self._state = "prepared"
        return self.tgid

    def abort(self) -> None:
        """Discard the group; nothing of it is ever visible."""
        if self._state == "prepared":
            self._commits.resolve([self.tgid], commit=False)
        else:
            self._refuse_unless("open")
        self._state = "aborted"

    def _refuse_unless(self, state: str) -> None:
        if self._state != state:
            raise HoldfastError(f"the group is {self._state}; start another with store.group()")


def _refuse_new_year(schema: Schema, index: bar_time.Ints) -> None:
    if schema.record_size > NEW_YEAR_ROOM and int(index.min()) == 0:
        why = (
            f"a daily bar of 1 January has {schema.record_size} bytes, and at most {NEW_YEAR_ROOM}"
        )
        raise ValueError(f"{why} fit: it is stored in the header of {HEADER_SIZE} bytes")
