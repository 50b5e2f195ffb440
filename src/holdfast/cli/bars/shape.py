"""Which columns of a file become which columns of a bucket.

No cast is lossy, but for the last digits of a float.  A missing value is an error that names its
row, unless such rows are skipped and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cli.bars.times import TimeForm
from holdfast.tabular import cast_column

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
    """A column of a bucket: where its values come from, and its type if one was given."""

    name: str
    source: str
    type: pa.DataType | None = None


def parse_columns(texts: Sequence[str]) -> tuple[Column, ...]:
    """Parse NAME, NAME=SOURCE, NAME:TYPE or NAME=SOURCE:TYPE, separated by commas."""
    return tuple(_parse_column(word) for text in texts for word in text.split(","))


def _parse_column(text: str) -> Column:
    mapped, _, kind = text.partition(":")
    name, _, source = mapped.partition("=")
    if not name or (":" in text and kind not in TYPES):
        types = ", ".join(TYPES)
        raise ValueError(
            f"cannot parse {text!r} as a column; expected NAME=SOURCE:TYPE; types are {types}"
        )
    return Column(name, source or name, TYPES[kind] if kind else None)


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of a file are read."""

    columns: tuple[Column, ...] = ()  # none: all
    time: str | None = None
    form: TimeForm = field(default_factory=TimeForm)
    symbol: str | None = None
    symbol_column: str | None = None
    skips_missing: bool = False

    def pick(self, names: Sequence[str]) -> "Picked":
        """Find the columns in a file that has these; ValueError if one is missing."""
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"two columns have the name {twice[0]}")
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
    raise ValueError(f"no column {wanted}; there are {', '.join(names)}: name it with {option}")


@dataclass(slots=True)
class Picked:
    """The columns that were found in one file."""

    shape: Shape
    time: str
    nanoseconds: str | None
    symbol: str | None
    columns: tuple[Column, ...]
    known: dict[str, pa.DataType] = field(default_factory=dict)  # of an existing bucket
    rows: int = 0  # that were seen

    def text_types(self) -> dict[str, pa.DataType]:
        """Return the types that are not inferred from the first lines of text."""
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
        """Return rows as a store takes them: `time`, perhaps `symbol`, and the columns."""
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
        """Return the rows without missing values."""
        first, self.rows = self.rows, self.rows + batch.num_rows
        for name in self.sources():
            if not batch.column(name).null_count:
                continue
            if not self.shape.skips_missing:
                row = first + 1 + pc.index(pc.is_null(batch.column(name)), True).as_py()
                why = f"row {row} has no {name}"
                raise ValueError(f"{why}; --skip-missing skips and counts such rows")
            batch = batch.filter(pc.is_valid(batch.column(name)))
        return batch


def _text(column: Any) -> Any:
    kind = column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    raise ValueError(f"symbols must be text, not {kind}")


def _cast(column: Any, wanted: pa.DataType | None, chosen: Column) -> Any:
    kind = column.type
    if wanted is None and pa.types.is_dictionary(kind):
        wanted = pa.string()
    if wanted is None and kind not in TYPES.values():
        types = ", ".join(TYPES)
        raise ValueError(f"{chosen.source} is of {kind}: pass --column {chosen.name}:TYPE, {types}")
    return column if wanted is None else cast_column(column, wanted, chosen.name)
