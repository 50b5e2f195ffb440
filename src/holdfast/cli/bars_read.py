"""`holdfast bars query`, `latest` and `symbols`: read as a guest, beside a live owner too."""

import json
import math
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.cli.bars_opening import (
    BucketNames,
    Buckets,
    EndOption,
    RootPath,
    StartOption,
    guest_of,
    parse_buckets,
    parse_end,
    parse_start,
    tell_damage,
)
from holdfast.cli.console import JsonOption, answer, answer_json, printable

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.bars import BarReader


class Format(StrEnum):
    """How rows are told."""

    text = "text"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"
    json = "json"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="How to answer; else what --output ends with, or text."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to this file, which appears when it is whole."
    ),
]


def query(
    root: RootPath,
    buckets: BucketNames,
    start: StartOption = None,
    end: EndOption = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these, with commas between.")
    ] = None,
    first: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the first N rows of a symbol.")
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the last N rows of a symbol.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIMEFRAME", help="Put bars together to longer ones: 5Min, 1H, 1D."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=HOW",
            help="For --every, of other columns than open, high, low, close, volume: first, max, "
            "min, last, sum or mean.",
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="With --every: make bars of ticks, by this price."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="With --price: the sum of it is the bars' Volume."),
    ] = None,
    chart: Annotated[bool, typer.Option("--chart", help="Draw candles.")] = False,
    format: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print rows by symbol and time.

    A bar counts if any of its interval lies between --start and --end.  With --json, one object
    per line.  Symbols that are not there are left out.  If a log is damaged, what can be read is
    printed, and the exit code is 2.
    """
    if first is not None and last is not None:
        raise ValueError("--first and --last exclude each other")
    if chart and (format or output or as_json):
        raise ValueError("--chart and --format, --output or --json exclude each other")
    where, words = parse_buckets(buckets), columns.split(",") if columns else None
    limit = last if first is None else first
    span: dict[str, Any] = {"start": parse_start(start), "end": parse_end(end)}
    with guest_of(root) as guest:
        if price is not None:
            _refuse_besides_price(every, words, limit, rule)
            table = _candles(guest, where, span, str(every), price, size)
        else:
            table = guest.query(
                *where,
                **span,
                columns=words,
                limit=limit,
                take=_take(first),
                resample=every,
                rules=_rules(rule or ()),
            )
        if chart:
            _draw(table)
        else:
            _show(table, format, output, as_json=as_json)
        tell_damage(guest, as_json=as_json)


def _refuse_besides_price(every: str | None, *others: Any) -> None:
    if every is None or any(other is not None for other in others):
        raise ValueError(
            "--price comes with --every, and without --columns, --first, --last, --rule"
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
    format: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the last row of each symbol."""
    with guest_of(root) as guest:
        _show(guest.latest(*parse_buckets(buckets)), format, output, as_json=as_json)
        tell_damage(guest, as_json=as_json)


def symbols(
    root: RootPath,
    timeframe: Annotated[
        str | None, typer.Option(metavar="TIMEFRAME", help="Only those that have such bars.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only those that have such a group.")
    ] = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Whole names: SYMBOL/TIMEFRAME/GROUP.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the symbols of a store, one per line."""
    with guest_of(root) as guest:
        names = _buckets(guest, timeframe, group) if buckets else guest.symbols(timeframe, group)
        if as_json:
            answer_json(names)
        elif names:
            answer("\n".join(printable(name.encode()) for name in names))
        tell_damage(guest, as_json=as_json)


def _buckets(guest: "BarReader", timeframe: str | None, group: str | None) -> list[str]:
    found = [name.split("/") for name in guest.buckets()]
    return [
        "/".join(parts)
        for parts in found
        if timeframe in (None, parts[1]) and group in (None, parts[2])
    ]


def _take(first: int | None) -> Literal["first", "last"]:
    return "last" if first is None else "first"


def _rules(texts: Any) -> dict[str, str]:
    rules = {}
    for text in texts:
        name, equals, how = text.partition("=")
        if not equals:
            raise ValueError(f"--rule {text!r}: write COLUMN=HOW, like Vwap=mean")
        rules[name] = how
    return rules


def _show(table: Any, format: Format | None, output: Path | None, *, as_json: bool) -> None:
    from holdfast.cli.bars_files import kind_of, write_table

    kind = kind_of(output, "json" if as_json else format, tuple(Format))
    if kind in ("csv", "parquet", "arrow"):
        if output is None and kind != "csv" and sys.stdout.isatty():
            raise ValueError(f"{kind} is nothing for a terminal: say --output FILE")
        write_table(table, kind, output)
        return
    lines = _json_lines(table) if kind == "json" else _text_lines(table)
    text = "\n".join(lines) + "\n" if lines else ""
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _texts(table: Any) -> list[list[str]]:
    """Every column as text, times to the second unless they are finer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            is_whole = pc.all(pc.equal(pc.subsecond(column), 0)).as_py() is not False
            column = column.cast(pa.timestamp("s" if is_whole else "ns", "UTC"))
        found.append(column.cast(pa.string()).to_pylist())
    return found


def _text_lines(table: Any) -> list[str]:
    import pyarrow as pa

    columns, lines = _texts(table), []
    texts = [
        pa.types.is_string(kind) or pa.types.is_dictionary(kind) for kind in table.schema.types
    ]
    for at, is_text in enumerate(texts):
        if is_text:
            columns[at] = [printable(cell.encode()) for cell in columns[at]]
    titles = [printable(name.encode()) for name in table.column_names]
    widths = [max(map(len, [title, *cells])) for title, cells in zip(titles, columns, strict=True)]
    align = ["<" if at < 2 or is_text else ">" for at, is_text in enumerate(texts)]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(align, widths, strict=True))
    for row in [titles, *zip(*columns, strict=True)]:
        lines.append(form.format(*row).rstrip())
    return lines


def _json_lines(table: Any) -> list[str]:
    import pyarrow as pa

    columns = [column.to_pylist() for column in table.columns]
    columns[1] = _texts(table.select([1]))[0]
    for at, kind in enumerate(table.schema.types):
        if pa.types.is_floating(kind):  # JSON has no word for what is no number
            columns[at] = [cell if math.isfinite(cell) else None for cell in columns[at]]
    rows = zip(*columns, strict=True)
    names = table.column_names
    return [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]


def _draw(table: Any) -> None:
    """A chart for each symbol, in color where a terminal is watching."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from rich.console import Console

    from holdfast.reports.candles import Candles, candle_chart

    by_name = {name.lower(): name for name in table.column_names}
    if not {"open", "high", "low", "close"} <= by_name.keys():
        raise ValueError("candles need the columns Open, High, Low and Close")
    width = shutil.get_terminal_size().columns
    for symbol in table.column("symbol").unique().to_pylist():
        own = table.filter(pc.equal(table.column("symbol").cast(pa.string()), symbol))
        prices = [own.column(by_name[name]).to_numpy() for name in ("open", "high", "low", "close")]
        times = own.column("time").cast(pa.int64()).to_numpy()
        whole = np.logical_and.reduce([np.isfinite(column) for column in prices])
        if not whole.any():
            continue
        times, prices = times[whole], [column[whole] for column in prices]
        chart: Text = candle_chart(Candles(times, *prices), width)
        answer(f"{symbol}  {_span(own)}")
        Console(width=width, highlight=False).print(chart, overflow="crop", no_wrap=True)


def _span(table: Any) -> str:
    times = _texts(table.select([1]))[0]
    return f"{times[0]} .. {times[-1]}"
