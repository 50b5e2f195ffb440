"""Rows as text, CSV, JSON lines, Arrow and charts."""

import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.output import answer, printable, table

if TYPE_CHECKING:
    from rich.text import Text


class Format(StrEnum):
    """How rows are printed."""

    text = "text"
    csv = "csv"
    json = "json"
    arrow = "arrow"


FormatOption = Annotated[
    Format, typer.Option("--format", help="How to print rows; arrow is an Arrow stream for a pipe.")
]


def show_rows(rows: Any, format: Format, *, as_json: bool) -> None:
    """Print a table."""
    from holdfast.tabular import write_table

    if as_json or format is Format.json:
        write_table(rows, sys.stdout.buffer, "jsonl")
    elif format is Format.text:
        answer(_text(rows))
    elif format is Format.arrow and sys.stdout.isatty():
        raise ValueError("an Arrow stream is not for a terminal; use `holdfast bars export`")
    else:
        write_table(rows, sys.stdout.buffer, str(format))


def _texts(table: Any) -> list[list[str]]:
    """Return every column as text, times to the second unless they are finer."""
    import pyarrow as pa

    from holdfast.tabular.writing import time_texts

    return [
        time_texts(column)
        if pa.types.is_timestamp(column.type)
        else column.cast(pa.string()).to_pylist()
        for column in table.columns
    ]


def _text(table_: Any) -> str:
    import pyarrow as pa

    kinds = table_.schema.types
    texts = [pa.types.is_string(kind) or pa.types.is_dictionary(kind) for kind in kinds]
    columns = [
        [printable(cell) for cell in cells] if is_text else cells
        for cells, is_text in zip(_texts(table_), texts, strict=True)
    ]
    right = [at > 1 and not is_text for at, is_text in enumerate(texts)]
    titles = [printable(name) for name in table_.column_names]
    return table(titles, list(zip(*columns, strict=True)), right)


def draw(rows: Any) -> None:
    """Draw a chart for each symbol, in color on a terminal."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from rich.console import Console

    from holdfast.bars.chart import Candles, candle_chart

    by_name = {name.lower(): name for name in rows.column_names}
    if not {"open", "high", "low", "close"} <= by_name.keys():
        raise ValueError("candles need the columns Open, High, Low and Close")
    width = shutil.get_terminal_size().columns
    for symbol in rows.column("symbol").unique().to_pylist():
        own = rows.filter(pc.equal(rows.column("symbol").cast(pa.string()), symbol))
        prices = [own.column(by_name[name]).to_numpy() for name in ("open", "high", "low", "close")]
        times = own.column("time").cast(pa.int64()).to_numpy()
        whole = np.logical_and.reduce([np.isfinite(column) for column in prices])
        if not whole.any():
            continue
        times, prices = times[whole], [column[whole] for column in prices]
        chart: Text = candle_chart(Candles(times, *prices), width)
        answer(f"{symbol}  {_span(own)}")
        Console(width=width, highlight=False).print(chart, overflow="crop", no_wrap=True)


def _span(rows: Any) -> str:
    times = _texts(rows.select([1]))[0]
    return f"{times[0]} .. {times[-1]}"
