"""`holdfast bars query`, `export`, `latest` and `symbols`: read without a lock."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.bars.rows import Format, FormatOption, draw, show_rows
from holdfast.cli.opening import Buckets, bar_reader, parse_buckets, tell_damage
from holdfast.cli.options import (
    BucketNames,
    ColumnsOption,
    DayOption,
    FileFormatOption,
    JsonOption,
    RootPath,
    StartOption,
    StopOption,
    parse_pairs,
)
from holdfast.cli.output import answer, count_of, printable

if TYPE_CHECKING:
    from holdfast.bars import BarReader


FirstOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Only the first N rows of each symbol. Default: all."),
]
LastOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Only the last N rows of each symbol. Default: all."),
]
EveryOption = Annotated[
    str | None,
    typer.Option(metavar="TIMEFRAME", help="Combine bars into longer ones: 5Min, 1H, 1D."),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=HOW",
        help="With --every, how to combine other columns than open, high, low, close, volume: "
        "first, max, min, last, sum or mean.",
    ),
]
PriceOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --every: combine ticks into bars by this price."),
]
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --price: its sum is the Volume of a bar."),
]
ChartOption = Annotated[bool, typer.Option("--chart", help="Draw a chart of candles.")]


def query(
    root: RootPath,
    buckets: BucketNames,
    start: StartOption = None,
    stop: StopOption = None,
    day: DayOption = None,
    columns: ColumnsOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    every: EveryOption = None,
    rule: RuleOption = None,
    price: PriceOption = None,
    size: SizeOption = None,
    chart: ChartOption = False,
    format: FormatOption = Format.text,
    as_json: JsonOption = False,
) -> None:
    """Print rows by symbol and time.

    Rows with start <= time < stop; the time of a bar is the start of its interval.  Missing
    symbols are left out.  If a WAL file is damaged, readable rows are printed, and the exit code
    is 2.
    """
    from holdfast.cli.bars.times import parse_span

    _refuse_pairs(first, last, price, size)
    if chart and (format is not Format.text or as_json):
        raise ValueError("--chart and --format or --json exclude each other")
    where, words = parse_buckets(buckets), columns.split(",") if columns else None
    limit = last if first is None else first
    span = parse_span(start, stop, day)
    with bar_reader(root) as guest:
        if price is not None:
            _refuse_besides_price(every, words, limit, rule)
            table = _candles(guest, where, span, str(every), price, size)
        else:
            table = guest.query(
                *where,
                **span,
                columns=words,
                limit=limit,
                take="last" if first is None else "first",
                resample=every,
                rules=parse_pairs(rule),
            )
        if chart:
            draw(table)
        else:
            show_rows(table, format, as_json=as_json)
        tell_damage(guest.damage, as_json=as_json)


def export(
    root: RootPath,
    buckets: BucketNames,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file; it appears when it is complete.")
    ],
    start: StartOption = None,
    stop: StopOption = None,
    day: DayOption = None,
    columns: ColumnsOption = None,
    format: FileFormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write rows to a CSV, JSON lines, Parquet or Arrow file.

    Rows are read and written symbol by symbol. `holdfast bars import` reads such files.
    """
    from holdfast.cli.bars.times import parse_span
    from holdfast.tabular import format_of, write_table

    where, words = parse_buckets(buckets), columns.split(",") if columns else None
    kind = format_of(file, format)
    span = parse_span(start, stop, day)
    with bar_reader(root) as guest:
        rows = write_table(_by_symbol(guest, where, columns=words, **span), file, kind)
        document = {"file": file, "format": kind, "rows": rows}
        answer(f"wrote {count_of(rows, 'row')} to {file}", document, as_json=as_json)
        tell_damage(guest.damage, as_json=as_json)


def _by_symbol(guest: "BarReader", where: Buckets, **options: Any) -> Iterator[Any]:
    symbols, timeframe, attributes = where
    known = guest.symbols(timeframe, attributes)
    chosen = known if symbols == "*" else symbols.split(",")
    for symbol in chosen or [symbols]:
        if symbol in known or len(chosen) < 2:  # as a query: one that is missing is left out
            table = guest.query(symbol, timeframe, attributes, **options)
            plain = table.set_column(0, "symbol", table.column("symbol").cast("string"))
            yield from plain.combine_chunks().to_batches() or _nothing(plain.schema)


def _nothing(schema: Any) -> list[Any]:
    """One empty batch, so that a file of no rows has its columns."""
    import pyarrow as pa

    return [pa.RecordBatch.from_pylist([], schema=schema)]


def _refuse_pairs(first: int | None, last: int | None, price: str | None, size: str | None) -> None:
    if first is not None and last is not None:
        raise ValueError("--first and --last exclude each other")
    if size is not None and price is None:
        raise ValueError("--size needs --price")


def _refuse_besides_price(every: str | None, *others: Any) -> None:
    if every is None or any(other is not None for other in others):
        raise ValueError(
            "--price needs --every, and excludes --columns, --first, --last and --rule"
        )


def _candles(
    guest: "BarReader",
    where: Buckets,
    span: dict[str, Any],
    every: str,
    price: str,
    size: str | None,
) -> Any:
    from holdfast.bars.candles import candles
    from holdfast.formats.bar_time import parse_timeframe

    names = list(dict.fromkeys([price, size or price]))
    ticks = guest.query(*where, **span, columns=names)
    return candles(ticks, parse_timeframe(every), price, size)


def latest(
    root: RootPath,
    buckets: BucketNames,
    format: FormatOption = Format.text,
    as_json: JsonOption = False,
) -> None:
    """Print the last row of each symbol."""
    with bar_reader(root) as guest:
        show_rows(guest.latest(*parse_buckets(buckets)), format, as_json=as_json)
        tell_damage(guest.damage, as_json=as_json)


def symbols(
    root: RootPath,
    timeframe: Annotated[
        str | None,
        typer.Option(metavar="TIMEFRAME", help="Only symbols with this timeframe. Default: all."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Only symbols with this group. Default: all."),
    ] = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Print full names: SYMBOL/TIMEFRAME/GROUP.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the symbols of a store, one per line."""
    with bar_reader(root) as guest:
        names = _buckets(guest, timeframe, group) if buckets else guest.symbols(timeframe, group)
        for name in names:
            document = {"bucket" if buckets else "symbol": name}
            answer(printable(name), document, as_json=as_json)
        tell_damage(guest.damage, as_json=as_json)


def _buckets(guest: "BarReader", timeframe: str | None, group: str | None) -> list[str]:
    found = [name.split("/") for name in guest.buckets()]
    return [
        "/".join(parts)
        for parts in found
        if timeframe in (None, parts[1]) and group in (None, parts[2])
    ]
