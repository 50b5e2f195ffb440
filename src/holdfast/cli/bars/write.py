"""`holdfast bars write`: what is printed as written is on disk.

Lines of input are split into groups, each durable with one sync.  A group ends when it is full, or
when no more input is waiting.
"""

import io
import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.incoming import in_batches, read_chunks
from holdfast.cli.opening import Buckets, bar_owner, parse_buckets
from holdfast.cli.options import BucketName, JsonOption, RootPath, TicksOption, TimeUnit
from holdfast.cli.output import answer, answer_json, count_of

if TYPE_CHECKING:
    from holdfast.bars import BarStore
    from holdfast.cli.bars.shape import Column, Picked

_USUAL = {"O": "Open:f8", "H": "High:f8", "L": "Low:f8", "C": "Close:f8", "V": "Volume:i8"}


def write(
    root: RootPath,
    bucket: BucketName,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROW", help="TIME,VALUE,...  Default: lines of stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to read. Default: stdin.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:TYPE]",
            help="The columns, in the order of the values. Default: those of the bucket, or of a "
            "new one those that the letters of its group name: OHLCV. Types: f4 f8 i1 i2 i4 i8 u1 "
            "u2 u4 u8 b1 U16.",
        ),
    ] = None,
    time_unit: TimeUnit = "s",
    ticks: TicksOption = False,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows per durable group.")
    ] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Write rows durably, one per line: a time and the values of its columns, with commas.

    A missing store or bucket is created.  Times are ISO 8601, UTC if they name no zone, or numbers.
    Reported rows are on disk.  With --json, each durable group is one line.  A bar replaces the
    one of its interval; ticks are added.
    """
    from holdfast.bars.catalog import make_key

    if rows and file:
        raise ValueError("ROW and --file exclude each other")
    where = parse_buckets(bucket)
    make_key(*where)
    lines = iter([[os.fsencode(row) for row in rows]]) if rows else read_chunks(file, b"\n")
    with bar_owner(root, as_json=as_json, create=True) as store:
        schema = store.schema(*where)
        ticks = ticks or (schema is not None and schema.is_variable)
        picked = _picked(schema, where, column or (), time_unit)
        batches = in_batches(lines, lambda _, line: line if line.strip() else None, batch, inf)
        tables = (_table(batch, picked) for batch in batches)
        _write_all(store, where, tables, ticks, as_json=as_json)


def _write_all(
    store: "BarStore", where: Buckets, tables: Iterator[Any], ticks: bool, *, as_json: bool
) -> None:
    count = groups = 0
    try:
        for table in tables:
            tgid = store.write(
                table,
                where.timeframe,
                where.attributes,
                symbol=where.symbols,
                is_variable=ticks,
            )
            count, groups = count + len(table), groups + 1
            if as_json:
                answer_json({"tgid": tgid, "rows": len(table)})
    finally:  # also after an error: this much is durable
        if not as_json:
            answer(f"wrote {count_of(count, 'row')} in {count_of(groups, 'group')}")


def _picked(schema: Any, where: Buckets, texts: Any, unit: str) -> "Picked":
    """Return the columns of a line: those given, those of the bucket, or the usual ones."""
    from holdfast.cli.bars.shape import Shape, parse_columns
    from holdfast.cli.bars.times import TimeForm

    columns = parse_columns(texts) or _columns_of(schema, where)
    shape = Shape(columns, "time", TimeForm(unit), where.symbols)
    picked = shape.pick(["time", *(one.source for one in columns)])
    if schema is not None:
        picked.known.update({one.name: one.type for one in _columns_of(schema, where)})
    return picked


def _columns_of(schema: Any, where: Buckets) -> "tuple[Column, ...]":
    from holdfast.bars.status import type_names
    from holdfast.cli.bars.shape import parse_columns

    if schema is not None:
        return parse_columns([f"{name}:{kind}" for name, kind in type_names(schema).items()])
    letters = where.attributes
    if not set(letters) <= _USUAL.keys():
        raise ValueError(f"{letters} is new; name its columns with --column, like Price:f8,Size:i8")
    return parse_columns([_USUAL[letter] for letter in letters])


def _table(lines: list[bytes], picked: "Picked") -> Any:
    import pyarrow as pa
    from pyarrow import csv

    types = picked.text_types()
    try:
        rows = csv.read_csv(
            io.BytesIO(b"\n".join(lines) + b"\n"),
            csv.ReadOptions(column_names=picked.sources(), use_threads=False),
            convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
    except pa.ArrowException as error:
        wanted = ",".join(picked.sources())
        why = f"{error}; a row is {wanted}"
        raise ValueError(f"{why}; `holdfast bars import` reads files with a header line") from error
    return picked.table(rows)
