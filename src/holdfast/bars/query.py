"""From year files and the groups over them to rows: by symbol, by time, by column.

The year files are read first, then the overlay is taken, once for the whole query, and laid over
all of them: so a query shows each group whole or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from holdfast.bars import parts
from holdfast.bars.catalog import Catalog, year_path
from holdfast.bars.parts import Column, Ints, Part
from holdfast.bars.view import Overlay, Reading, new_schema
from holdfast.disk import Disk
from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats import bar_time, market_wal
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import TICKS_FIELD, Header, Schema

TIME_MIN_NS, TIME_STOP_NS = bar_time.year_start_ns(1970), bar_time.year_start_ns(2262)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows with start_ns <= time < stop_ns; of more than `limit` rows the first or the last."""

    start_ns: int = TIME_MIN_NS
    stop_ns: int = TIME_STOP_NS
    limit: int | None = None
    from_start: bool = False

    def years(self) -> range:
        return range(bar_time.year_of(self.start_ns), bar_time.year_of(self.stop_ns - 1) + 1)

    @property
    def tail(self) -> int | None:
        return None if self.from_start else self.limit


class Rows(NamedTuple):
    """The rows of one symbol, in order of time."""

    times_ns: Ints
    columns: list[Column]


@dataclass(slots=True)
class _YearRead:
    header: Header | Flaw
    part: Part | None = None
    first: int = 0  # nothing is missing from this interval on

    @property
    def schema(self) -> Schema | None:
        return self.header.schema if isinstance(self.header, Header) else None


@dataclass(slots=True)
class _BucketRead:
    key: str
    timeframe_ns: int
    years: dict[int, _YearRead] = field(default_factory=dict)
    schema: Schema | None = None  # if there are files, but none in the span
    from_ns: int = TIME_MIN_NS  # there may be more before this than was read


class AgainError(Exception):
    """Something has changed since the first look, or more must be read: begin again."""


_NO_FILE = Flaw(0, "no such file")


class Query:
    """One reading of some buckets."""

    def __init__(
        self, disk: Disk, catalog: Catalog, span: Span, columns: Sequence[str] | None
    ) -> None:
        self._disk, self._catalog, self._span, self._names = disk, catalog, span, columns
        self._within = span.years()
        self._reads_all = span.tail is None

    def rows(self, keys: Iterable[str], reading: Reading) -> tuple[Schema | None, dict[str, Rows]]:
        """Return the one schema of these buckets, and the rows of those that exist."""
        tail = None if self._reads_all else self._span.tail
        found = [self._read(key, tail) for key in keys]
        overlay = reading()
        schema: Schema | None = None
        result: dict[str, Rows] = {}
        for bucket in found:
            years = overlay.years(bucket.key)
            own = self._schema_of(bucket, years, overlay)
            if own is None:
                continue
            if schema is not None and own is not schema:
                raise ValueError(f"{bucket.key} has other columns than {next(iter(result))}")
            schema = own
            result[bucket.key] = self._finish(bucket, schema, years, overlay)
        return schema, result

    # The first look: files

    def _read(self, key: str, tail: int | None) -> _BucketRead:
        bucket = _BucketRead(key, bar_time.parse_timeframe(key.split("/")[1]))
        years = [year for year in self._catalog.years(key) if year in self._within]
        wanted = tail
        for year in sorted(years, reverse=True):
            if wanted is not None and wanted <= 0:
                bucket.from_ns = max(bucket.from_ns, bar_time.year_start_ns(year + 1))
                break
            read = bucket.years[year] = self._read_year(key, year, wanted)
            if read.part is not None and wanted is not None:
                wanted -= len(read.part.index)
                bucket.from_ns = self._read_from(read)
        if not bucket.years and self._catalog.years(key):
            bucket.schema = self._catalog.schema(key)
        return bucket

    def _read_from(self, read: _YearRead) -> int:
        assert isinstance(read.header, Header)
        if read.first <= self._bounds(read.header)[0]:
            return TIME_MIN_NS
        year, timeframe_ns = read.header.year, read.header.timeframe_ns
        return bar_time.interval_start(read.first, year, timeframe_ns)

    def _bounds(self, header: Header) -> tuple[int, int]:
        year, timeframe_ns, span = header.year, header.timeframe_ns, self._span
        # The first interval that starts in the span; of ticks, the one that the start lies in.
        low = span.start_ns if header.schema.is_variable else span.start_ns + timeframe_ns - 1
        first = bar_time.index_of(low, year, timeframe_ns)
        last = bar_time.index_of(span.stop_ns - 1, year, timeframe_ns)
        return max(first, header.first_index), min(last, header.last_index)

    def _read_year(self, key: str, year: int, tail: int | None) -> _YearRead:
        path = year_path(key, year)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return _YearRead(_NO_FILE)
        try:
            header = self._catalog.header(file, path)
            if isinstance(header, Flaw):  # it may be in creation; then the overlay has it
                return _YearRead(header)
            first, last = self._bounds(header)
            names = () if header.schema.is_variable else self._chosen(header.schema)
            if tail is None:
                part = parts.read_part(file, header, first, last, names)
            else:
                part, first = parts.read_tail(file, header, first, last, names, tail)
            return _YearRead(header, part, first)
        finally:
            file.close()

    def _chosen(self, schema: Schema) -> Sequence[str]:
        if self._names is None:
            return schema.names
        for name in self._names:
            if name not in schema.names:
                raise ValueError(f"no column {name!r}; there are {', '.join(schema.names)}")
        return self._names

    # The second look: groups

    def _schema_of(self, bucket: _BucketRead, years: set[int], overlay: Overlay) -> Schema | None:
        """Return the columns of a bucket; files that are still being created do not count."""
        schema = None
        for year in sorted(bucket.years.keys() | years):
            path, read = year_path(bucket.key, year), bucket.years.get(year)
            header = read.header if read is not None else None
            new = overlay.new_file(path)
            if new is not None:
                own = new_schema(new)
                if read is not None and read.schema is not own and header is not _NO_FILE:
                    # Half made, or being made again, and then what else is in it counts.
                    header = Header(year, bucket.timeframe_ns, own)
                    self._catalog.expected[path] = header
                    raise AgainError
            elif isinstance(header, Flaw):
                raise CorruptError(path, header.offset, header.why)
            elif isinstance(header, Header):
                own = header.schema
                self._catalog.trust(path, header)
            else:
                continue
            if schema is not None and own is not schema:
                raise UnsupportedError(f"{path} has other columns than an earlier year")
            schema = own
        return schema or bucket.schema

    def _finish(
        self, bucket: _BucketRead, schema: Schema, years: set[int], overlay: Overlay
    ) -> Rows:
        within = self._within
        found = [
            self._finish_year(bucket, schema, year, overlay)
            for year in sorted(bucket.years.keys() | {year for year in years if year in within})
        ]
        if len(found) == 1:
            times, columns = found[0]
        else:
            names = self._chosen(schema)
            times = np.concatenate([_NO_TIMES, *(rows.times_ns for rows in found)])
            columns = [
                np.concatenate(
                    [np.empty(0, schema.row[name]), *(rows.columns[at] for rows in found)]
                )
                for at, name in enumerate(names)
            ]
        count, limit = len(times), self._span.limit
        known = int((times >= bucket.from_ns).sum()) if bucket.from_ns > TIME_MIN_NS else count
        if not self._reads_all and bucket.from_ns > TIME_MIN_NS and known < (limit or 0):
            self._reads_all = True  # so many of the last rows are removed
            raise AgainError
        if limit is not None and count > limit:
            kept = slice(0, limit) if self._span.from_start else slice(count - limit, count)
            times, columns = times[kept], [column[kept] for column in columns]
        return Rows(times, columns)

    def _finish_year(
        self, bucket: _BucketRead, schema: Schema, year: int, overlay: Overlay
    ) -> Rows:
        path = year_path(bucket.key, year)
        names, timeframe_ns = self._chosen(schema), bucket.timeframe_ns
        read = bucket.years.get(year)
        part = parts.empty_part(schema, names) if read is None or read.part is None else read.part
        sets = [
            one
            for one in overlay.sets(path, is_variable=schema.is_variable)
            if one.kind in (market_wal.FIXED, market_wal.VARIABLE, market_wal.REMOVED)
        ]
        span = self._span
        if not schema.is_variable:
            frame = parts.overlaid(part, schema, names, sets, path)
            times = bar_time.interval_starts(frame.index, year, timeframe_ns)
            return _within(times, frame.columns, span) if sets else Rows(times, frame.columns)
        ticks = self._ticks(part, schema, sets, overlay, path)
        times = bar_time.interval_starts(ticks.index, year, timeframe_ns)
        times = times + bar_time.decode_ticks(ticks.rows[TICKS_FIELD], timeframe_ns)
        columns: list[Column] = [np.ascontiguousarray(ticks.rows[name]) for name in names]
        return _within(times, columns, span)

    def _ticks(
        self,
        part: Part,
        schema: Schema,
        sets: Sequence[market_wal.WriteSet],
        overlay: Overlay,
        path: str,
    ) -> parts.Ticks:
        return parts.overlaid_ticks(part, schema, sets, overlay.payloads(path), path)


_NO_TIMES: Ints = np.empty(0, np.int64)


def _within(times: Ints, columns: list[Column], span: Span) -> Rows:
    if not len(times) or (times[0] >= span.start_ns and times[-1] < span.stop_ns):
        return Rows(times, columns)
    kept = (times >= span.start_ns) & (times < span.stop_ns)
    return Rows(times[kept], [column[kept] for column in columns])
