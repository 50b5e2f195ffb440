"""`holdfast bars import`: files of rows into a store, in groups; each is durable, whole or not."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.opening import bar_owner
from holdfast.cli.options import JsonOption, RootPath, TicksOption, TimeUnit
from holdfast.cli.output import answer, count_of, progress, remark

if TYPE_CHECKING:
    from holdfast.bars import BarStore
    from holdfast.cli.bars.shape import Picked, Shape
    from holdfast.tabular import Dialect, TableReader

ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=SOURCE][:TYPE]",
        help="Columns to read, with their names and types in the store: Volume=vol:i8. Repeat it, "
        "or use commas. Default: all. Types: f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 U16.",
    ),
]
FilesOption = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="CSV (also gzip, bz2, zstd), JSON lines, Parquet, Arrow; - is stdin."
    ),
]
TimeframeOption = Annotated[str, typer.Option(metavar="TIMEFRAME", help="1Sec, 1Min, 1H, 1D, ...")]
GroupOption = Annotated[
    str, typer.Option(metavar="GROUP", help="The attribute group of the buckets.")
]
SymbolOption = Annotated[
    str | None, typer.Option(metavar="SYMBOL", help="The symbol of all rows. Default: a column.")
]
SymbolColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of symbols. Default: symbol, ticker or sym."),
]
SymbolFromNameOption = Annotated[
    bool, typer.Option("--symbol-from-name", help="The file name is the symbol: AAPL.csv.gz.")
]
TimeColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of times. Default: time, timestamp, epoch, datetime or date.",
    ),
]
TimeFormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="The format of times in text, like %d/%m/%Y %H:%M. Default: ISO 8601.",
    ),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(
        metavar="ZONE", help="The zone of times without one, like America/New_York. Default: UTC."
    ),
]
DelimiterOption = Annotated[str, typer.Option(help="The delimiter of CSV: one character, or tab.")]
HeaderOption = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="The columns of a CSV file without a header line."),
]
SkipMissingOption = Annotated[
    bool, typer.Option("--skip-missing", help="Skip and count rows without a value.")
]
SkipRowsOption = Annotated[int, typer.Option(min=0, metavar="N", help="Skip the first N rows.")]
GroupRowsOption = Annotated[int, typer.Option(min=1, metavar="N", help="Rows per durable group.")]


def import_(
    root: RootPath,
    files: FilesOption,
    timeframe: TimeframeOption,
    group: GroupOption = "OHLCV",
    symbol: SymbolOption = None,
    symbol_column: SymbolColumnOption = None,
    symbol_from_name: SymbolFromNameOption = False,
    time_column: TimeColumnOption = None,
    time_unit: TimeUnit = "s",
    time_format: TimeFormatOption = None,
    time_zone: TimeZoneOption = None,
    column: ColumnOption = None,
    delimiter: DelimiterOption = ",",
    header: HeaderOption = None,
    ticks: TicksOption = False,
    skip_missing: SkipMissingOption = False,
    skip_rows: SkipRowsOption = 0,
    group_rows: GroupRowsOption = 100_000,
    as_json: JsonOption = False,
) -> None:
    """Import files into a store; a missing store is created.

    Each group of rows is one atomic write.  After a failure the answer names the --skip-rows to
    continue with.  A bar replaces the one of its interval, so that a second import changes
    nothing; ticks are added.
    """
    from holdfast.cli.bars.shape import Shape, parse_columns
    from holdfast.cli.bars.times import TimeForm
    from holdfast.formats.bar_time import parse_timeframe
    from holdfast.tabular import Dialect

    parse_timeframe(timeframe)
    if (symbol is not None) + (symbol_column is not None) + symbol_from_name > 1:
        raise ValueError("--symbol, --symbol-column and --symbol-from-name exclude each other")
    form = TimeForm(time_unit, time_format, time_zone)
    columns = parse_columns(column or ())
    shape = Shape(columns, time_column, form, symbol, symbol_column, skip_missing)
    shapes = [_named(shape, file) if symbol_from_name else shape for file in files]
    names = tuple(header.split(",")) if header else ()
    dialect = Dialect("\t" if delimiter == "tab" else delimiter, names)
    target = _Target(timeframe, group, ticks, group_rows, skip_rows)
    chosen = list(zip(files, shapes, strict=True))
    _check(chosen, dialect)
    with bar_owner(root, as_json=as_json, create=True) as store:
        _import_all(store, chosen, dialect, target, as_json=as_json)


def _check(files: "list[tuple[str, Shape]]", dialect: "Dialect") -> None:
    """Open every file and find its columns, before a store is created for them."""
    from holdfast.tabular import read_table

    for path, shape in files:
        if Path(path).is_file():  # a pipe can be read once
            with read_table(path, dialect=dialect) as reader:
                try:
                    shape.pick(reader.names)
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from error
        elif path != "-":
            Path(path).stat()


def _named(shape: "Shape", file: str) -> "Shape":
    return replace(shape, symbol=Path(file).name.partition(".")[0])


@dataclass(slots=True)
class _Target:
    """The store to write to, and how many rows were written."""

    timeframe: str
    attributes: str
    is_variable: bool
    group_rows: int
    to_skip: int
    done: int = 0  # rows of the input that are durable or skipped
    rows: int = 0
    groups: int = 0
    lacking: int = 0  # rows that lacked a value

    def write(self, store: "BarStore", rows: Any, picked: "Picked") -> None:
        table = picked.table(rows)
        if table.num_rows:
            store.write(
                table,
                self.timeframe,
                self.attributes,
                symbol=picked.shape.symbol,
                is_variable=self.is_variable,
            )
            self.groups += 1
        self.done += rows.num_rows
        self.rows += table.num_rows
        self.lacking += rows.num_rows - table.num_rows


def _import_all(
    store: "BarStore",
    files: "list[tuple[str, Shape]]",
    dialect: "Dialect",
    target: _Target,
    *,
    as_json: bool,
) -> None:
    began, is_whole = time.monotonic(), False
    try:
        sizes = [0 if path == "-" else Path(path).stat().st_size for path, _ in files]
        with progress("importing") as show:
            for number, (path, shape) in enumerate(files):
                for done in _import_file(store, path, shape, dialect, target):
                    show(sum(sizes[:number]) + int(done * sizes[number]), sum(sizes))
        is_whole = True
    finally:  # also after an error: this much is durable
        if is_whole or target.done:
            _tell(target, time.monotonic() - began, is_whole=is_whole, as_json=as_json)


def _import_file(
    store: "BarStore", path: str, shape: "Shape", dialect: "Dialect", target: _Target
) -> Iterator[float]:
    """Commit the rows of a file; yield after each group how much of the file is done."""
    import pyarrow as pa

    from holdfast.tabular import read_table

    source: Any = sys.stdin.buffer if path == "-" else path
    with read_table(source, dialect=dialect, name=path) as reader:
        waiting: list[Any] = []
        try:
            picked = shape.pick(reader.names)
            _learn_types(store, picked, target, None)
            for batch in _typed_batches(reader, picked):
                rows = pa.Table.from_batches([_rest(batch, picked, target)])
                if rows.num_rows and picked.symbol and not picked.known:
                    _learn_types(store, picked, target, rows)
                waiting.append(rows)
                while sum(map(len, waiting)) >= target.group_rows:
                    whole = pa.concat_tables(waiting)
                    target.write(store, whole.slice(0, target.group_rows), picked)
                    waiting = [whole.slice(target.group_rows)]
                    yield reader.done
            if sum(map(len, waiting)):
                target.write(store, pa.concat_tables(waiting), picked)
        except ValueError as error:
            raise error if path in str(error) else ValueError(f"{path}: {error}") from error
        yield 1.0


def _typed_batches(reader: "TableReader", picked: "Picked") -> Iterator[Any]:
    types = picked.text_types() if reader.format in ("csv", "jsonl") else {}
    try:
        yield from reader.batches(picked.sources(), types)
    except ValueError as error:
        advice = "; --column NAME:TYPE sets the type of a column" if types else ""
        raise ValueError(f"{error}{advice}") from error


def _rest(batch: Any, picked: "Picked", target: _Target) -> Any:
    """Return a batch without the rows to skip."""
    count = min(target.to_skip, batch.num_rows)
    target.to_skip -= count
    target.done += count
    picked.rows += count
    return batch.slice(count)


def _learn_types(store: "BarStore", picked: "Picked", target: _Target, rows: Any) -> None:
    """Read the types of the columns from an existing bucket."""
    from holdfast.bars.catalog import make_key
    from holdfast.bars.status import type_names
    from holdfast.cli.bars.shape import TYPES

    symbol = picked.shape.symbol
    if symbol is None and rows is not None:
        symbol = str(rows.column(picked.symbol)[0].as_py())
    if symbol is None:
        return
    make_key(symbol, target.timeframe, target.attributes)
    schema = store.schema(symbol, target.timeframe, target.attributes)
    if schema is not None:
        target.is_variable = target.is_variable or schema.is_variable
        picked.known.update({name: TYPES[kind] for name, kind in type_names(schema).items()})


def _tell(target: _Target, seconds: float, *, is_whole: bool, as_json: bool) -> None:
    document = {"rows": target.rows, "groups": target.groups, "lacking": target.lacking}
    document |= {"done": target.done, "seconds": round(seconds, 3)}  # type: ignore[dict-item]
    rows, groups = count_of(target.rows, "row"), count_of(target.groups, "group")
    passed = f", skipped {count_of(target.lacking, 'row')}" if target.lacking else ""
    rest = "" if is_whole or not target.done else f"; continue with --skip-rows {target.done}"
    answer(f"imported {rows} in {groups}{passed}{rest}", document, as_json=as_json)
    if sys.stderr.isatty() and not as_json:
        remark(f"{seconds:.1f} s, {target.rows / max(seconds, 0.001):,.0f} rows per second")
