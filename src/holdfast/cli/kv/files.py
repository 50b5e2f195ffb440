"""Rows of foreign files as keys and values, for `holdfast kv load`.

A key or a value is a column of text, bytes or numbers (which become text); for JSON lines see
holdfast.cli.kv.codec.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.cli.kv.codec import Codec, Row, row_of
from holdfast.formats.sst.rows import Rows, binary, numbers
from holdfast.tabular import TableReader, read_table

_LINES_MAX = 8192


@dataclass(frozen=True, slots=True)
class Columns:
    """Where keys and values are, and how they are written."""

    key: str
    value: str
    codec: Codec


def read_rows(path: str, format: str, columns: Columns) -> Iterator[tuple[Rows, float]]:
    """Read a file in its own order, with the part that was read, from 0 to 1; `-` is stdin."""
    source: Any = sys.stdin.buffer if path == "-" else Path(path)
    with read_table(source, format, name="stdin" if path == "-" else path) as reader:
        if format == "jsonl":
            for rows in _of_lines(reader, columns):
                yield rows, reader.done
            return
        names = [columns.key, columns.value]
        if not set(names) <= set(reader.names):
            why = f"it has the columns {', '.join(reader.names)}"
            raise ValueError(f"{path}: {why}; name its columns with --key and --value")
        # As bytes, else the 007 of a CSV file would become 7.
        types = dict.fromkeys(names, pa.binary()) if format == "csv" else {}
        for batch in reader.batches(names, types, nulls=False):
            yield _of_batch(batch, columns, path), reader.done


def _of_lines(reader: TableReader, columns: Columns) -> Iterator[Rows]:
    pairs: list[Row] = []
    for number, line in reader.lines():
        where = f"{reader.name} line {number}"
        pairs.append(row_of(line, where, key=columns.key, value=columns.value))
        if len(pairs) == _LINES_MAX:
            yield _of_pairs(pairs)
            pairs = []
    if pairs:
        yield _of_pairs(pairs)


def _of_pairs(pairs: list[Row]) -> Rows:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return Rows(binary(keys), binary(values), numbers(np.zeros(len(pairs), np.uint64)))


def _of_batch(batch: Any, columns: Columns, path: str) -> Rows:
    keys = _bytes(batch.column(columns.key), columns.codec, f"{path}: {columns.key}")
    values = _bytes(batch.column(columns.value), columns.codec, f"{path}: {columns.value}")
    if keys.null_count:
        raise ValueError(f"{path}: {columns.key} is null in {keys.null_count} rows")
    return Rows(keys, values, numbers(np.zeros(len(keys), np.uint64)))


def _bytes(array: Any, codec: Codec, where: str) -> Any:
    """Return a column as bytes."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_nested(array.type) or pa.types.is_null(array.type):
        raise ValueError(f"{where} is {array.type}; keys and values are text, bytes or numbers")
    if not _is_bytes(array.type):
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
