"""`holdfast bars import`: files of rows into a store, in groups; each is durable, whole or not."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.bars_opening import RootPath, owner_of
from holdfast.cli.console import JsonOption, answer, answer_json, progress, remark
from holdfast.cli.units import count_of

if TYPE_CHECKING:
    from holdfast.bars import BarStore
    from holdfast.cli.bars_files import Dialect
    from holdfast.cli.bars_shape import Picked, Shape

ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=SOURCE][:TYPE]",
        help="Columns to take, of new names and types perhaps: Volume=vol:i8. Several, or with "
        "commas; without any, all. Types: f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 U16.",
    ),
]
TimeUnit = Annotated[
    str, typer.Option(metavar="UNIT", help="Of times that are numbers: s, ms, us or ns.")
]
TicksOption = Annotated[
    bool, typer.Option("--ticks", help="Many rows per interval, each with its own time.")
]
FilesOption = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="CSV (gzip, bz2, zstd too), Parquet, Arrow; - stdin."),
]
TimeframeOption = Annotated[str, typer.Option(metavar="TIMEFRAME", help="1Sec, 1Min, 1H, 1D, ...")]
GroupOption = Annotated[
    str, typer.Option(metavar="GROUP", help="The attribute group of the buckets.")
]
SymbolOption = Annotated[
    str | None, typer.Option(metavar="SYMBOL", help="All rows are of this symbol.")
]
SymbolColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of symbols; else symbol, ticker or sym."),
]
SymbolFromNameOption = Annotated[
    bool, typer.Option("--symbol-from-name", help="A file's name is its symbol: AAPL.csv.gz.")
]
TimeColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The column of times; else time, timestamp, epoch, datetime, date."
    ),
]
TimeFormatOption = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="Of times that are text, like %d/%m/%Y %H:%M."),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Of times without one, like America/New_York."),
]
DelimiterOption = Annotated[str, typer.Option(help="Of CSV: one character, or tab.")]
HeaderOption = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="The columns of a CSV that has no header line."),
]
SkipMissingOption = Annotated[
    bool, typer.Option("--skip-missing", help="Pass over rows that lack a value; count them.")
]
SkipRowsOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Pass over this many rows at the beginning.")
]
GroupRowsOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Rows in one durable group.")
]


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
    """Import files into a store, which is made if it is not there.

    Each group of rows is durable, and visible, whole or not at all.  After a failure the answer
    says with which --skip-rows to go on.  Bars of an interval replace what was
    there, so to import them twice changes nothing; ticks are added.
    """
    from holdfast.cli.bars_files import Dialect
    from holdfast.cli.bars_shape import Shape, parse_columns
    from holdfast.cli.bars_times import TimeForm
    from holdfast.formats.bar_time import parse_timeframe

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
    with owner_of(root, as_json=as_json, is_new=True) as store:
        _import_all(store, list(zip(files, shapes, strict=True)), dialect, target, as_json=as_json)


def _named(shape: "Shape", file: str) -> "Shape":
    return replace(shape, symbol=Path(file).name.partition(".")[0])


@dataclass(slots=True)
class _Target:
    """Where rows go, and how many have gone."""

    timeframe: str
    attributes: str
    is_variable: bool
    group_rows: int
    to_skip: int
    done: int = 0  # rows of the input that are durable or passed over
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
    finally:  # whatever stopped us, this much is durable
        _tell(target, time.monotonic() - began, is_whole=is_whole, as_json=as_json)


def _import_file(
    store: "BarStore", path: str, shape: "Shape", dialect: "Dialect", target: _Target
) -> Iterator[float]:
    """Commit a file's rows; tell after each group how much of it is done."""
    import pyarrow as pa

    from holdfast.cli.bars_files import open_batches

    with open_batches(path, shape, dialect) as (picked, batches):
        _learn_types(store, picked, target, None)
        waiting: list[Any] = []
        try:
            for batch, done in batches:
                rows = pa.Table.from_batches([_rest(batch, picked, target)])
                if rows.num_rows and picked.symbol and not picked.known:
                    _learn_types(store, picked, target, rows)
                waiting.append(rows)
                while sum(map(len, waiting)) >= target.group_rows:
                    whole = pa.concat_tables(waiting)
                    target.write(store, whole.slice(0, target.group_rows), picked)
                    waiting = [whole.slice(target.group_rows)]
                    yield done
            if sum(map(len, waiting)):
                target.write(store, pa.concat_tables(waiting), picked)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        yield 1.0


def _rest(batch: Any, picked: "Picked", target: _Target) -> Any:
    """A batch without what is to be passed over."""
    count = min(target.to_skip, batch.num_rows)
    target.to_skip -= count
    target.done += count
    picked.rows += count
    return batch.slice(count)


def _learn_types(store: "BarStore", picked: "Picked", target: _Target, rows: Any) -> None:
    """A bucket that is there already tells the types of its columns."""
    from holdfast.bars.catalog import make_key
    from holdfast.cli.bars_shape import TYPES
    from holdfast.reports.bars import type_names

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
    if as_json:
        counts = {"rows": target.rows, "groups": target.groups, "lacking": target.lacking}
        answer_json({**counts, "done": target.done, "seconds": round(seconds, 3)})
        return
    rows, groups = count_of(target.rows, "row"), count_of(target.groups, "group")
    passed = f", passed over {count_of(target.lacking, 'row')}" if target.lacking else ""
    rest = "" if is_whole or not target.done else f"; go on with --skip-rows {target.done}"
    answer(f"imported {rows} in {groups}{passed}{rest}")
    if sys.stderr.isatty():  # for a person; a script asks for --json
        remark(f"{seconds:.1f} s, {target.rows / max(seconds, 0.001):,.0f} rows per second")
