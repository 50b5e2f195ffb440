"""Rows as text, JSON lines, files and candles; what is no text is never sent to a terminal."""

import json
import math
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.console import answer, printable

if TYPE_CHECKING:
    from rich.text import Text


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


def show_rows(table: Any, format: Format | None, output: Path | None, *, as_json: bool) -> None:
    """Print a table, or write it to a file."""
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


def draw(table: Any) -> None:
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
