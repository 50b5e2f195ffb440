"""What one can ask of a bar store, whether one owns it or not.  The page: docs/bars.md

A query shows what is committed when it is answered, each group whole or not at all, and nothing
that is not durable.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from holdfast.bars.catalog import Catalog, split_path
from holdfast.bars.intake import names_of
from holdfast.bars.pending import Overlay, Reading
from holdfast.bars.query import AgainError, Query, Rows, Span, TooFewError
from holdfast.bars.tables import Moment, Rules, resampled, span_of, table_of
from holdfast.disk import Disk
from holdfast.errors import ChangedError
from holdfast.formats.bar_time import parse_timeframe
from holdfast.formats.year_file import Schema
from holdfast.runtime import Closing

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS_MAX = 1000


class Bars(Closing):
    """Reads a root; see BarStore and BarReader."""

    def __init__(self, disk: Disk, catalog: Catalog) -> None:
        self._disk, self._catalog = disk, catalog

    def query(
        self,
        symbols: str | Sequence[str],
        timeframe: str,
        attributes: str,
        *,
        start: Moment = None,
        end: Moment = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        take: Literal["first", "last"] = "last",
        resample: str | None = None,
        rules: Rules | None = None,
    ) -> "pa.Table":
        """Rows of some symbols, or with "*" of all, by symbol and time.

        `start` and `end` are both included, and a bar counts if any of its interval does.  Of more
        than `limit` rows of a symbol the first or the last are taken.  With `resample` bars are put
        together to a longer timeframe; `rules` says how for columns that are not called Open,
        High, Low, Close or Volume: first, max, min, last, sum or mean.

        Symbols that are not there are left out; ValueError if none is.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"a limit of {limit}")
        span = span_of(start, end, limit if resample is None else None, take)
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
        """The last row of each of these symbols."""
        return self.query(symbols, timeframe, attributes, limit=1)

    def symbols(self, timeframe: str | None = None, attributes: str | None = None) -> list[str]:
        """All symbols, or those that have such a bucket."""
        found = set()
        for key in self.buckets() if timeframe or attributes else ():
            symbol, *others = key.split("/")
            if timeframe in (None, others[0]) and attributes in (None, others[1]):
                found.add(symbol)
        if not timeframe and not attributes:
            found = {*self._catalog.symbols(), *(key.split("/")[0] for key in self._overlay().keys)}
        return sorted(found)

    def buckets(self) -> list[str]:
        """SYMBOL/TIMEFRAME/ATTRIBUTES of all that there is."""
        on_disk = [key for name in self._catalog.symbols() for key in self._catalog.buckets(name)]
        return sorted({*on_disk, *self._overlay().keys})

    def schema(self, symbol: str, timeframe: str, attributes: str) -> Schema | None:
        """The columns of a bucket; None if it is not there."""
        span = span_of(None, None, 0, "last")
        return self._rows([f"{symbol}/{timeframe}/{attributes}"], span, None)[0]

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Reading]:
        """What is pending, for as long as one query takes."""

    def _names(self, symbols: str | Sequence[str], timeframe: str, attributes: str) -> list[str]:
        parse_timeframe(timeframe)
        if symbols == "*":
            return self.symbols()
        names = names_of(symbols)
        strange = [
            name for name in names if not split_path(f"{name}/{timeframe}/{attributes}/2000.bin")
        ]
        if strange:
            raise ValueError(
                f"{strange[0]!r} is no name for a symbol, or {attributes!r} for a group"
            )
        return names

    def _rows(
        self, keys: Sequence[str], span: Span, columns: Sequence[str] | None
    ) -> tuple[Schema | None, dict[str, Rows]]:
        query = Query(self._disk, self._catalog, span, columns)
        for _ in range(_ATTEMPTS_MAX):
            try:
                with self._reading() as reading:
                    return query.rows(keys, reading)
            except TooFewError:
                query.reads_all = True
            except AgainError:
                continue
        raise self._unsettled()

    def _overlay(self) -> Overlay:
        for _ in range(_ATTEMPTS_MAX):
            try:
                with self._reading() as reading:
                    return reading.overlay()
            except AgainError:
                continue
        raise self._unsettled()

    def _unsettled(self) -> ChangedError:
        return ChangedError(
            f"{self._disk} changed during {_ATTEMPTS_MAX} attempts to read it; try again"
        )
