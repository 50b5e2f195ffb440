"""Files of keys and values, for `holdfast kv load`: CSV, Parquet, Arrow and JSON lines.

A key or a value is a column of text, bytes or numbers (which become text); of JSON lines, see
kv_bytes.  Files are read piece by piece.  Whatever is wrong is a ValueError that names the file.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from holdfast.cli.kv_bytes import Codec, Row, row_of
from holdfast.formats.sst.rows import Rows, binary, numbers

SUFFIXES = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))

_BLOCK_SIZE = 8 << 20
_LINES = 8192
_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Columns:
    """Where keys and values are, and how they are written."""

    key: str
    value: str
    codec: Codec


Piece = tuple[Rows, int]  # and how many bytes of the file were read by then


def format_of(path: str, format: str | None) -> str:
    """The format that was asked for, or that the name tells."""
    found = format or SUFFIXES.get(Path(path).suffix.lower())
    if found not in FORMATS:
        told = f"{path}: which format is it? say --format {', '.join(FORMATS)}"
        raise ValueError(told if format is None else f"no format {format}; it is {FORMATS}")
    return found


def read_rows(path: str, format: str, columns: Columns) -> Iterator[Piece]:
    """The rows of a file in its own order; `-` is stdin."""
    if path == "-" and format in ("parquet", "arrow"):
        raise ValueError(f"{format} cannot be read from a pipe; name a file")
    read: dict[str, Callable[..., Iterator[Piece]]] = {
        "csv": _csv,
        "parquet": _parquet,
        "arrow": _arrow,
        "jsonl": _lines,
    }
    with closing(_open(path)) as file:
        try:
            yield from read[format](file, columns, path)
        except pa.ArrowException as error:
            raise ValueError(f"{path} is no {format} we can read: {error}") from error


def _open(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else Path(path).open("rb")


def _csv(file: BinaryIO, columns: Columns, path: str) -> Iterator[Piece]:
    from pyarrow import csv

    names = [columns.key, columns.value]
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),  # else 007 would become 7
        include_columns=names,
        strings_can_be_null=False,
    )
    try:
        batches = csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=_BLOCK_SIZE),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )
    except KeyError as error:
        raise _no_column(path, error) from None
    for batch in batches:
        yield _rows(batch, columns, path), _place(file)


def _parquet(file: BinaryIO, columns: Columns, path: str) -> Iterator[Piece]:
    from pyarrow.parquet import ParquetFile  # it takes longer to load than many a file

    found = ParquetFile(file)
    _require(found.schema_arrow.names, columns, path)
    data, size = found.metadata, Path(path).stat().st_size
    held = sum(data.row_group(i).total_byte_size for i in range(data.num_row_groups))
    count = max(1, min(_ROWS_MAX, _BLOCK_SIZE * data.num_rows // max(held, 1)))
    done = 0
    for batch in found.iter_batches(count, columns=[columns.key, columns.value]):
        done += batch.num_rows
        yield _rows(batch, columns, path), size * done // max(data.num_rows, 1)


def _arrow(file: BinaryIO, columns: Columns, path: str) -> Iterator[Piece]:
    from pyarrow import ipc

    if file.read(6) == b"ARROW1":
        reader = ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        file.seek(0)
        reader = ipc.open_stream(file)
        batches = iter(reader)
    _require(reader.schema.names, columns, path)
    for batch in batches:
        yield _rows(batch, columns, path), _place(file)


def _lines(file: BinaryIO, columns: Columns, path: str) -> Iterator[Piece]:
    rows: list[Row] = []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        rows.append(row_of(line, where, key=columns.key, value=columns.value))
        if len(rows) == _LINES:
            yield _of_pairs(rows), _place(file)
            rows = []
    if rows:
        yield _of_pairs(rows), _place(file)


def _place(file: BinaryIO) -> int:
    return file.tell() if file.seekable() else 0


def _of_pairs(rows: list[Row]) -> Rows:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    return Rows(binary(keys), binary(values), numbers(np.zeros(len(rows), np.uint64)))


def _rows(batch: Any, columns: Columns, path: str) -> Rows:
    keys = _bytes(batch.column(columns.key), columns.codec, f"{path}: {columns.key}")
    values = _bytes(batch.column(columns.value), columns.codec, f"{path}: {columns.value}")
    if keys.null_count:
        raise ValueError(f"{path}: {columns.key} is null in {keys.null_count} rows")
    return Rows(keys, values, numbers(np.zeros(len(keys), np.uint64)))


def _bytes(array: Any, codec: Codec, where: str) -> Any:
    """A column as bytes."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if not _is_bytes(kind):
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ValueError(f"{where} is {kind}; keys and values are text, bytes or numbers")
        array = array.cast(pa.string())
    found = array.cast(pa.binary())
    if codec.form == "text":
        return found
    return binary(
        [None if text is None else _decoded(codec, text, where) for text in found.to_pylist()]
    )


def _is_bytes(kind: Any) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(test(kind) for test in tests)


def _decoded(codec: Codec, text: bytes, where: str) -> bytes:
    return codec.decode(text.decode("utf-8", "backslashreplace"), where)


def _require(names: list[str], columns: Columns, path: str) -> None:
    for name in (columns.key, columns.value):
        if name not in names:
            raise _no_column(path, f"it has {', '.join(names)}, not {name}")


def _no_column(path: str, why: object) -> ValueError:
    return ValueError(f"{path}: {why}; name its columns with --key and --value")
