"""One class for each format of a foreign table.

Files are read, never mapped: a file that shrinks while it is read is an error, not a SIGBUS.
"""

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from holdfast.tabular.casts import cast_column

_HEAD_SIZE = 1 << 16
_BLOCK_SIZE = 1 << 22
_ROWS_MAX = 65_536  # in a batch of a Parquet file
_LINES_MAX = 8192  # in a batch of JSON lines
_PACKED = {b"\x1f\x8b": "gzip", b"BZ": "bz2", b"\x28\xb5": "zstd"}
_NULLS = ["", "null", "NULL", "None", "N/A", "NA"]

Types = Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    header: tuple[str, ...] = ()  # its columns, if the file has no header line

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise ValueError(f"a delimiter must be one character, not {self.delimiter!r}")


def open_file(file: IO[bytes], format: str | None, dialect: Dialect | None) -> "Source":
    counted = _Counted(file)
    head = counted.head
    if not head and format != "jsonl":
        raise ValueError("the input is empty")
    if format is None:
        format = _format_in(head)
    if format == "csv":
        return _Csv(counted, dialect or Dialect())
    if format == "jsonl":
        return JsonLines(counted)
    if head[:4] == b"\xff\xff\xff\xff":
        return _ArrowStream(counted)
    if not _seekable(file):
        raise ValueError(f"{format} files cannot be read from a pipe; name the file")
    file.seek(0)
    return _Parquet(file) if format == "parquet" else _ArrowFile(file)


def _format_in(head: bytes) -> str:
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":
        return "arrow"
    if head.lstrip()[:1] == b"{":
        return "jsonl"
    if b"\0" in head and head[:2] not in _PACKED:
        raise ValueError("unknown format; expected CSV, JSON lines, Parquet or Arrow")
    return "csv"


def _seekable(file: IO[bytes]) -> bool:
    with suppress(OSError):
        return file.seekable()
    return False


class _Counted(io.RawIOBase):
    """A file whose first bytes can be looked at, and that counts what was read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.head = bytes(file.read(_HEAD_SIZE))
        self._ahead, self._read = self.head, 0
        with suppress(OSError, AttributeError, ValueError):
            self._size = os.fstat(file.fileno()).st_size

    _size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._ahead[: len(buffer)] if self._ahead else self._file.read(len(buffer))
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        self._read += len(data)
        return len(data)

    def done(self) -> float:
        return min(self._read / self._size, 1.0) if self._size else 0.0


class Source(ABC):
    """One opened source: its format, its columns and its batches, not validated yet."""

    format: str
    names: list[str]
    _source: "_Counted | None" = None

    def done(self) -> float:
        return self._source.done() if self._source is not None else 0.0

    @abstractmethod
    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        """Yield the batches of the source, not validated yet."""


class _Csv(Source):
    format = "csv"

    def __init__(self, counted: _Counted, dialect: Dialect) -> None:
        from pyarrow import csv

        self._dialect, self._source = dialect, counted
        codec = _PACKED.get(counted.head[:2])
        if codec is not None:
            file = pa.PythonFile(io.BufferedReader(counted, _HEAD_SIZE), "r")
            counted = _Counted(pa.CompressedInputStream(file, codec))
        head = counted.head
        if b"\0" in head:
            raise ValueError("unknown format; expected CSV, JSON lines, Parquet or Arrow")
        self._stream = io.BufferedReader(counted, _HEAD_SIZE)
        self._parsing = csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
        self.names = list(dialect.header)
        if not self.names:
            line = head[: head.find(b"\n") + 1] or head
            self.names = csv.read_csv(io.BytesIO(line), parse_options=self._parsing).column_names

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        from pyarrow import csv

        reading = csv.ReadOptions(
            block_size=_BLOCK_SIZE, column_names=self._dialect.header or None, use_threads=False
        )
        converting = csv.ConvertOptions(
            column_types=types,
            include_columns=columns or None,
            strings_can_be_null=nulls,
            quoted_strings_can_be_null=True,
            null_values=_NULLS,
        )
        try:
            yield from csv.open_csv(self._stream, reading, self._parsing, converting)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from error


class JsonLines(Source):
    """Objects, one per line.  A column has the type of its first batch."""

    format = "jsonl"

    def __init__(self, counted: _Counted) -> None:
        self._stream = io.BufferedReader(counted, _HEAD_SIZE)
        self._source, self.names = counted, []
        with suppress(ValueError, RecursionError, IndexError):
            first = json.loads(counted.head.lstrip().splitlines()[0])
            self.names = list(first) if isinstance(first, dict) else []

    def lines(self) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in enumerate(self._stream, 1) if line.strip())

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        rows: list[dict[str, Any]] = []
        known = dict(types)
        for number, line in self.lines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not a JSON object")  # noqa: TRY004
            rows.append(row)
            if len(rows) == _LINES_MAX:
                yield _batch_of(rows, columns, known)
                rows = []
        if rows:
            yield _batch_of(rows, columns, known)


def _batch_of(
    rows: list[dict[str, Any]], columns: Sequence[str] | None, known: dict[str, pa.DataType]
) -> pa.RecordBatch:
    names = columns if columns is not None else [*known, *(n for r in rows for n in r)]
    arrays = {}
    for name in dict.fromkeys(names):
        values = [row.get(name) for row in rows]
        try:
            array = pa.array(values)
        except (pa.ArrowException, OverflowError) as error:
            raise ValueError(f"column {name}: {error}") from error
        if name in known:
            array = cast_column(array, known[name], name)
        elif not pa.types.is_null(array.type):
            known[name] = array.type
        arrays[name] = array
    return pa.RecordBatch.from_pydict(arrays)


class _Parquet(Source):
    format = "parquet"

    def __init__(self, file: IO[bytes]) -> None:
        from pyarrow.parquet import ParquetFile

        self._file = ParquetFile(file, page_checksum_verification=True)
        self.names = self._file.schema_arrow.names
        self._rows = 0

    def done(self) -> float:
        return float(self._rows / max(self._file.metadata.num_rows, 1))

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        data = self._file.metadata
        held = sum(data.row_group(i).total_byte_size for i in range(data.num_row_groups))
        count = max(1, min(_ROWS_MAX, 2 * _BLOCK_SIZE * data.num_rows // max(held, 1)))
        for batch in self._file.iter_batches(count, columns=columns):
            self._rows += batch.num_rows
            yield batch


class _ArrowFile(Source):
    format = "arrow"

    def __init__(self, file: IO[bytes]) -> None:
        from pyarrow import ipc

        self._file = ipc.open_file(pa.PythonFile(file, "r"))
        self.names = self._file.schema.names
        self._number = 0

    def done(self) -> float:
        return float(self._number / max(self._file.num_record_batches, 1))

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        for number in range(self._file.num_record_batches):
            self._number = number + 1
            yield self._file.get_batch(number)


class _ArrowStream(Source):
    format = "arrow"

    def __init__(self, counted: _Counted) -> None:
        from pyarrow import ipc

        self._stream = ipc.open_stream(pa.PythonFile(io.BufferedReader(counted, _BLOCK_SIZE), "r"))
        self.names, self._source = self._stream.schema.names, counted

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        yield from self._stream


class CStream(Source):
    """Batches of another library in this process."""

    format = "arrow"

    def __init__(self, source: Any) -> None:
        self._stream = pa.RecordBatchReader.from_stream(source)
        self.names = self._stream.schema.names

    def read(self, columns: Sequence[str] | None, types: Types, nulls: bool) -> Iterator[Any]:
        yield from self._stream
