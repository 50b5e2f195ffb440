"""Which columns of a file become which columns of a bucket; nothing is bent, nothing left out.

Casts are those that lose nothing, but for the last digits of a float.  A value that is missing is
an error that names its row, unless such rows are to be skipped, and then they are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cli.bars_times import TimeForm

TYPES: dict[str, pa.DataType] = {
    **{"f4": pa.float32(), "f8": pa.float64(), "b1": pa.bool_(), "U16": pa.string()},
    **{"i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64()},
    **{"u1": pa.uint8(), "u2": pa.uint16(), "u4": pa.uint32(), "u8": pa.uint64()},
}
_TIMES, _SYMBOLS = ("time", "timestamp", "epoch", "datetime", "date"), ("symbol", "ticker", "sym")
_PRICES = {"open", "high", "low", "close", "price", "bid", "ask", "vwap"}
NANOSECONDS = "Nanoseconds"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a bucket: where its values come from, and its type if one was told."""

    name: str
    source: str
    type: pa.DataType | None = None


def parse_columns(texts: Sequence[str]) -> tuple[Column, ...]:
    """NAME, NAME=SOURCE, NAME:TYPE or NAME=SOURCE:TYPE, several with commas between."""
    return tuple(_parse_column(word) for text in texts for word in text.split(","))


def _parse_column(text: str) -> Column:
    mapped, _, kind = text.partition(":")
    name, _, source = mapped.partition("=")
    if not name or (":" in text and kind not in TYPES):
        types = ", ".join(TYPES)
        raise ValueError(f"{text!r} is no column: write NAME=SOURCE:TYPE; types are {types}")
    return Column(name, source or name, TYPES[kind] if kind else None)


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows of files are to be read."""

    columns: tuple[Column, ...] = ()  # none: all that there are
    time: str | None = None
    form: TimeForm = field(default_factory=TimeForm)
    symbol: str | None = None
    symbol_column: str | None = None
    skips_missing: bool = False

    def pick(self, names: Sequence[str]) -> "Picked":
        """Find the columns in a file that has these; ValueError if one is not there."""
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"two columns are called {twice[0]}")
        time = _found(names, self.time, _TIMES, "time", "--time-column")
        symbol = None
        if self.symbol_column is not None or self.symbol is None:
            symbol = _found(names, self.symbol_column, _SYMBOLS, "symbol", "--symbol-column")
        taken = {time, symbol, *([NANOSECONDS] if NANOSECONDS in names else [])}
        columns = self.columns or tuple(Column(n, n) for n in names if n not in taken)
        for column in columns:
            _found(names, column.source, (), column.name, "--column")
        strays = [column.name for column in columns if column.name.lower() in _SYMBOLS]
        if self.symbol is not None and strays:
            why = f"there is a column {strays[0]!r}, and --symbol would put all rows under one"
            raise ValueError(f"{why}: leave it out, or choose columns with --column")
        return Picked(self, time, NANOSECONDS if NANOSECONDS in names else None, symbol, columns)


def _found(
    names: Sequence[str], asked: str | None, usual: Sequence[str], what: str, option: str
) -> str:
    if asked is not None and asked in names:
        return asked
    for word in () if asked is not None else usual:
        for name in names:
            if name.lower() == word:
                return name
    wanted = repr(asked) if asked is not None else f"of {what}s"
    raise ValueError(f"no column {wanted}; there are {', '.join(names)}: say which with {option}")


@dataclass(slots=True)
class Picked:
    """The columns that were found in one file."""

    shape: Shape
    time: str
    nanoseconds: str | None
    symbol: str | None
    columns: tuple[Column, ...]
    known: dict[str, pa.DataType] = field(default_factory=dict)  # of a bucket that is there
    rows: int = 0  # that were seen

    def csv_types(self) -> dict[str, pa.DataType]:
        """What not to guess from the first lines."""
        types = {column.source: self._wanted(column) for column in self.columns}
        types = {name: kind for name, kind in types.items() if kind is not None}
        for column in self.columns:
            if column.name.lower() in _PRICES:
                types.setdefault(column.source, pa.float64())
        texts = {self.time: pa.string()} | ({self.symbol: pa.string()} if self.symbol else {})
        return types | texts

    def sources(self) -> list[str]:
        own = [self.time, self.nanoseconds, self.symbol, *(one.source for one in self.columns)]
        return list(dict.fromkeys(name for name in own if name is not None))

    def table(self, batch: Any) -> Any:
        """Rows as a store takes them: `time`, perhaps `symbol`, and the columns."""
        batch = self._whole(batch)
        times = self.shape.form.parse(batch.column(self.time))
        if self.nanoseconds is not None:
            more = batch.column(self.nanoseconds).cast(pa.int64())
            times = pc.add(times.cast(pa.int64()), more).cast(pa.timestamp("ns", "UTC"))
        arrays = {"time": times}
        if self.symbol is not None:
            arrays["symbol"] = _text(batch.column(self.symbol))
        for column in self.columns:
            arrays[column.name] = _cast(batch.column(column.source), self._wanted(column), column)
        return pa.table(arrays)

    def _wanted(self, column: Column) -> pa.DataType | None:
        return column.type or self.known.get(column.name)

    def _whole(self, batch: Any) -> Any:
        """The rows of which nothing is missing."""
        first, self.rows = self.rows, self.rows + batch.num_rows
        for name in self.sources():
            if not batch.column(name).null_count:
                continue
            if not self.shape.skips_missing:
                row = first + 1 + pc.index(pc.is_null(batch.column(name)), True).as_py()
                why = f"row {row} has no {name}"
                raise ValueError(f"{why}; --skip-missing passes over such rows, and counts them")
            batch = batch.filter(pc.is_valid(batch.column(name)))
        return batch


def _text(column: Any) -> Any:
    kind = column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    raise ValueError(f"symbols are text, not {kind}")


def _cast(column: Any, wanted: pa.DataType | None, told: Column) -> Any:
    kind = column.type
    if wanted is None and pa.types.is_dictionary(kind):
        wanted = pa.string()
    if wanted is None and kind not in TYPES.values():
        types = ", ".join(TYPES)
        raise ValueError(f"{told.source} is of {kind}: say --column {told.name}:TYPE, of {types}")
    if wanted is None or kind == wanted:
        return column
    try:
        return column.cast(wanted)
    except pa.ArrowException as error:
        raise ValueError(f"column {told.name}: {error}") from error
