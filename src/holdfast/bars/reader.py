"""Read a bar store, beside a live owner or without one.

A query returns the rows that are committed and durable, each group whole or not at all.  A reader
takes no lock and changes nothing: it reads the logs, then the year files, then the logs again (see
holdfast.bars.view), and syncs a log before it shows anything of it.

The page: docs/bars.md
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast.bars import recovery
from holdfast.bars.catalog import Catalog, check_root, split_path
from holdfast.bars.intake import names_of
from holdfast.bars.query import AgainError, Query, Rows, Span
from holdfast.bars.status import BarsStatus, status_of
from holdfast.bars.tables import Rules, resampled, table_of
from holdfast.bars.times import Moment, span_of
from holdfast.bars.verify import BarsVerdict, verify_bars
from holdfast.bars.view import Change, Overlay, Reading, Source, complete, new_files
from holdfast.bars.wal import Content, Damage, LogName, find_logs, noted
from holdfast.disk import Disk, File
from holdfast.errors import ChangedError
from holdfast.formats.bar_time import parse_timeframe
from holdfast.formats.year_file import Schema
from holdfast.handle import Closing, Handle, status_html
from holdfast.metrics import Metric
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

_Read = TypeVar("_Read")
_ATTEMPTS_MAX = 1000
_LISTINGS_MAX = 100


class Bars(Closing):
    """The reading part of BarStore and BarReader.  Every call raises ClosedError after close."""

    def __init__(
        self, disk: Disk, catalog: Catalog, source: Source, handle: Handle, runtime: Runtime
    ) -> None:
        self._disk, self._catalog, self._source, self._handle = disk, catalog, source, handle
        self._runtime = runtime

    def query(
        self,
        symbols: str | Sequence[str],
        timeframe: str,
        attributes: str,
        *,
        start: Moment = None,
        stop: Moment = None,
        day: Moment = None,
        columns: str | Sequence[str] | None = None,
        limit: int | None = None,
        take: Literal["first", "last"] = "last",
        resample: str | None = None,
        rules: Rules | None = None,
    ) -> "pa.Table":
        """Return rows of some symbols, or with "*" of all, by symbol and time, as an Arrow table.

        Rows with start <= time < stop; the time of a bar is the start of its interval.  A date
        is its midnight, in UTC; `day` takes the rows of one date instead.  Of more than `limit`
        rows of a symbol the first or the last are taken.  `resample` joins bars to a
        longer timeframe; `rules` says how for columns other than Open, High, Low, Close and
        Volume: first, max, min, last, sum or mean.

        Missing symbols are left out; ValueError if all are missing.
        """
        columns = [columns] if isinstance(columns, str) else columns
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be at least 0, not {limit}")
        span = span_of(start, stop, limit if resample is None else None, take, day=day)
        names = self._names(symbols, timeframe, attributes)
        keys = {f"{name}/{timeframe}/{attributes}": name for name in names}
        schema, found = self._rows(list(keys), span, columns)
        if schema is None:
            raise ValueError(f"no bars of {symbols} in {timeframe}/{attributes}")
        chosen = tuple(columns) if columns is not None else schema.names
        rows = {keys[key]: rows for key, rows in found.items()}
        if resample is not None:
            step_ns, own_ns = parse_timeframe(resample), parse_timeframe(timeframe)
            rows = resampled(rows, chosen, own_ns, step_ns, rules or {}, limit, take)
        return table_of(rows, chosen, schema)

    def latest(self, symbols: str | Sequence[str], timeframe: str, attributes: str) -> "pa.Table":
        """Return the last row of each of these symbols."""
        return self.query(symbols, timeframe, attributes, limit=1)

    def symbols(self, timeframe: str | None = None, attributes: str | None = None) -> list[str]:
        """Return all symbols, or those that have such a bucket."""
        if not timeframe and not attributes:
            names, overlay = self._listed(lambda: self._catalog.symbols())
            return sorted({*names, *(key.split("/")[0] for key in overlay.keys)})
        found = set()
        for key in self.buckets():
            symbol, *others = key.split("/")
            if timeframe in (None, others[0]) and attributes in (None, others[1]):
                found.add(symbol)
        return sorted(found)

    def buckets(self) -> list[str]:
        """Return SYMBOL/TIMEFRAME/ATTRIBUTES of every bucket."""
        catalog = self._catalog
        names, overlay = self._listed(
            lambda: [key for name in catalog.symbols() for key in catalog.buckets(name)]
        )
        return sorted({*names, *overlay.keys})

    def schema(self, symbol: str, timeframe: str, attributes: str) -> Schema | None:
        """Return the columns of a bucket; None if it is missing."""
        span = span_of(None, None, 0, "last")
        return self._rows([f"{symbol}/{timeframe}/{attributes}"], span, None)[0]

    def status(self) -> BarsStatus:
        """Return a summary of the store, from names, headers and logs."""
        self._handle.check_read()
        return status_of(self._disk, self._runtime)

    def verify(
        self, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> BarsVerdict:
        """Read every group and every year file from end to end, and return what was found.

        `on_progress` gets files done, and files in all.
        """
        self._handle.check_read()
        return verify_bars(self._disk, self._runtime, on_progress)

    def metrics(self) -> list[Metric]:
        """Return what can be measured without owning the store: the gauges of its status."""
        return self.status().metrics()

    def _repr_html_(self) -> str:
        if self._handle.is_closed:
            return f"<p>{escape(repr(self))}</p>"
        return status_html(self.status())

    def __repr__(self) -> str:
        state = "open" if self._handle.refusal is None else str(self._handle.refusal)
        return f"<{type(self).__name__} {self._disk}: {state}>"

    def _names(self, symbols: str | Sequence[str], timeframe: str, attributes: str) -> list[str]:
        parse_timeframe(timeframe)
        if symbols == "*":
            return self.symbols()
        names = names_of(symbols)
        for name in names:
            if not split_path(f"{name}/{timeframe}/{attributes}/2000.bin"):
                raise ValueError(
                    f"invalid symbol {name!r} or attributes {attributes!r}: use printable ASCII "
                    "characters without a slash"
                )
        return names

    def _rows(
        self, keys: Sequence[str], span: Span, columns: Sequence[str] | None
    ) -> tuple[Schema | None, dict[str, Rows]]:
        query = Query(self._disk, self._catalog, span, columns)
        return self._settled(lambda reading: query.rows(keys, reading))

    def _listed(self, names: Callable[[], Sequence[str]]) -> tuple[Sequence[str], Overlay]:
        """List names between the two looks, so that no group is half among them."""
        return self._settled(lambda reading: (names(), reading()))

    def _overlay(self) -> Overlay:
        return self._settled(lambda reading: reading())

    def _settled(self, read: Callable[[Reading], _Read]) -> _Read:
        """Read until the store does not change meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            self._handle.check_read()
            with suppress(AgainError), self._source.reading() as reading:
                return read(reading)
        raise unsettled(self._disk)


def unsettled(disk: Disk) -> ChangedError:
    return ChangedError(f"{disk} changed during {_ATTEMPTS_MAX} attempts to read it; try again")


class _WatchedLog:
    """A log that may grow; it stays readable after the owner has removed it."""

    def __init__(self, log: LogName, file: File) -> None:
        self.log, self.file = log, file
        self.content: Content | None = None
        self.size = 0

    def catch_up(self, size: int, disk: Disk, catalog: Catalog) -> bool:
        """Read what is new up to `size`, and return whether anything is."""
        if self.content is not None and size == self.size:
            return False
        self.file.sync()
        if self.content is None or self.log.is_foreign:
            self.content = self._read(size, disk, catalog)
        else:
            start = self.content.stop
            self.content.read_on(memoryview(self.file.read_at(start, size - start)))
        if self.content.damage:  # a write in progress can look so; real damage stays
            self.content = self._read(size, disk, catalog)
        self.size = size
        return True

    def _read(self, size: int, disk: Disk, catalog: Catalog) -> Content:
        """Read all of it, also if the owner has finished it since it was listed.

        An older log, which was removed before that, may have been listed too.  Its groups must not
        hide those of this one.
        """
        data, is_foreign = self.file.read_at(0, size), self.log.is_foreign
        return recovery.read_log(self.log, data, disk, catalog, finished=not is_foreign).content


class WatchedLogs:
    """The logs of a root as a reader sees them; see Source.  For one thread."""

    def __init__(self, disk: Disk, catalog: Catalog) -> None:
        self._disk, self._catalog = disk, catalog
        self._logs: dict[str, _WatchedLog] = {}
        self.damage: tuple[Damage, ...] = ()
        self.refresh()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        before = noted(self._disk)
        self.refresh()
        self._catalog.forget()
        for content in self.contents():
            content.forget_done()
        names = frozenset(self._logs)
        yield lambda: self.look_again(names, before)

    def look_again(self, names: frozenset[str], before: bytes) -> Overlay:
        """Take the second look.  A log that was removed meanwhile may have had a successor.

        Logs are removed oldest first, so while one of the first look is there, so are all later
        ones.  If there was none, an owner may have created and removed one: then it has noted it.
        """
        self.refresh()
        if not names <= self._logs.keys() or (not names and before != noted(self._disk)):
            raise AgainError
        return Overlay([change for change in self._changes() if change.is_sound])

    def contents(self) -> list[Content]:
        """Return the contents of all logs, oldest first."""
        return [log.content for log in self._in_order() if log.content is not None]

    def refresh(self) -> None:
        """Read what is new in the logs."""
        for _ in range(_LISTINGS_MAX):
            found = {log.name: log for log in find_logs(self._disk)}
            for name in self._logs.keys() - found.keys():
                self._logs.pop(name).file.close()
            try:
                for name in sorted(found.keys() - self._logs.keys()):
                    self._logs[name] = _WatchedLog(found[name], self._disk.open(name))
            except FileNotFoundError:  # removed since it was listed
                continue
            logs = [(log, log.file.size()) for log in self._logs.values()]
            if any(size < log.size for log, size in logs):  # an owner has cut off a torn write
                for log, _ in logs:  # all of it is read again: it may decide on groups in others
                    log.content = None
            if any([log.catch_up(size, self._disk, self._catalog) for log, size in logs]):
                self._check()
            return
        raise unsettled(self._disk)

    def changes_after(self, stops: dict[str, int]) -> list[Change]:
        """Return the groups that were committed after these sizes of the logs."""
        found = list[Change]()
        for watched in self._in_order():
            log, data = watched.log, watched.file.read_at(0, watched.size)
            before = data[: stops.get(log.name, 0)]
            known = recovery.read_log(log, before, self._disk, self._catalog).content.changes
            whole = recovery.read_log(log, data, self._disk, self._catalog).content.changes
            found += whole[len(known) :]
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._logs

    def __len__(self) -> int:
        return len(self._logs)

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()
        self._logs.clear()

    def _in_order(self) -> list[_WatchedLog]:
        return sorted(self._logs.values(), key=lambda log: log.log.created_ns)

    def _changes(self) -> list[Change]:
        return [change for content in self.contents() for change in content.changes]

    def _check(self) -> None:
        """Check all that will be laid over the files, in order: later groups rely on earlier.

        They also rely on files that the owner created before it recorded a group as done.  So the
        catalog is read after the logs: one that was cached before may not have these files.
        """
        self._catalog.forget()
        complete(self._changes())
        waiting = [change for change in self._changes() if not change.is_done]
        found = [damage for content in self.contents() for damage in content.damage]
        self.damage = (*found, *recovery.check(waiting, self._disk, self._catalog))


class BarReader(Bars):
    """Reads a bar store beside its owner, if it has one.  For one thread.

    >>> from holdfast.bars import BarStore
    >>> from holdfast.disk import OsDisk
    >>> BarStore(OsDisk(directory), create=True).close()
    >>> with BarReader(OsDisk(directory)) as reader:
    ...     reader.symbols()
    []
    """

    def __init__(self, disk: Disk, *, runtime: Runtime | None = None) -> None:
        check_root(disk)
        catalog, handle = Catalog(disk), Handle(f"the reader of {disk}")
        self._logs = WatchedLogs(disk, catalog)
        super().__init__(disk, catalog, self._logs, handle, runtime or Runtime())

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Return the damage in the logs, as of the last read of them."""
        return self._logs.damage

    def close(self) -> None:
        self._handle.close()
        self._logs.close()

    def whole_catalog(self) -> Catalog:
        """Return the catalog, with what is only in the logs."""
        sets = [one for change in self._overlay().changes for one in change.sets]
        for schema, key, year in new_files(sets):
            self._catalog.add(key, year, schema)
        return self._catalog
