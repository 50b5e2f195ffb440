"""Tables for other systems: CSV, JSON lines, Parquet and Arrow, batch by batch."""

import json
import math
import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.tabular.reading import format_of, read_table


def write_table(rows: Any, target: Any, format: str | None = None) -> int:
    """Write batches, or anything with `__arrow_c_stream__`; return the number of rows.

    target  a path, where the file appears under its name when it is complete; or a binary file,
            which gets an Arrow stream where a path gets an Arrow file
    format  csv, jsonl, parquet or arrow.  None: the suffix of the path decides.
    """
    schema, batches = _batches(rows)
    if not isinstance(target, str | os.PathLike):
        return _write(schema, batches, target, _stream_of(format))
    path = Path(target)
    kind = format_of(path, format)
    half = path.with_name(f"{path.name}.half")
    try:
        with half.open("wb") as file:
            count = _write(schema, batches, file, kind)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return count


def json_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield rows as JSON values: times as ISO 8601 text, numbers that are not finite as null.

    Bytes are text if they are UTF-8, else base64 under the name NAME_base64.
    """
    columns = [_json_values(name, batch.column(name)) for name in batch.schema.names]
    for cells in zip(*columns, strict=True):
        yield {name: value for cell in cells for name, value in cell.items()}


def json_line(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _json_values(name: str, column: Any) -> list[dict[str, Any]]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [{name: text} for text in time_texts(column)]
    values = column.to_pylist()
    if pa.types.is_floating(kind):
        values = [v if v is None or math.isfinite(v) else None for v in values]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [_json_bytes(name, value) for value in values]
    return [{name: value} for value in values]


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def time_texts(column: Any) -> list[str]:
    """Return times as text, to the second unless one of them is finer."""
    is_whole = pc.all(pc.equal(pc.subsecond(column), 0)).as_py() is not False
    whole = column.cast(pa.timestamp("s", column.type.tz)) if is_whole else column
    texts: list[str] = whole.cast(pa.string()).to_pylist()
    return texts


def _batches(rows: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if hasattr(rows, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(rows)
        return reader.schema, iter(read_table(reader))
    found = iter(rows)
    first = next(found, None)
    if first is None:
        raise ValueError("no batch, so the columns are unknown; pass a table")
    return first.schema, chain([first], found)


def _stream_of(format: str | None) -> str:
    if format is None:
        raise ValueError("a file without a name needs a format")
    kind = format_of("", format)
    return "arrow-stream" if kind == "arrow" else kind


def _write(schema: pa.Schema, batches: Iterator[Any], file: IO[bytes], kind: str) -> int:
    count = 0
    with _writer(schema, file, kind) as writer:
        for batch in batches:
            count += batch.num_rows
            writer.write_batch(batch)
    return count


def _writer(schema: pa.Schema, file: IO[bytes], kind: str) -> Any:
    if kind == "parquet":
        from pyarrow.parquet import ParquetWriter

        return ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
    if kind == "jsonl":
        return nullcontext(_JsonLines(file))
    if kind == "csv":
        return closing(_Csv(schema, file))
    from pyarrow import ipc

    return (ipc.new_file if kind == "arrow" else ipc.new_stream)(file, schema)


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write_batch(self, batch: Any) -> None:
        self._file.write("".join(map(json_line, json_rows(batch))).encode())


class _Csv:
    """CSV has no dictionaries: their values are written."""

    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        from pyarrow import csv

        self._schema = pa.schema([(field.name, _plain(field.type)) for field in schema])
        options = csv.WriteOptions(quoting_style="needed")
        self._writer = csv.CSVWriter(file, self._schema, write_options=options)

    def close(self) -> None:
        self._writer.close()

    def write_batch(self, batch: Any) -> None:
        self._writer.write_batch(batch.cast(self._schema))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
