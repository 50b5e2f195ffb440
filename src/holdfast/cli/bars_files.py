"""CSV, Parquet and Arrow files in and out, in batches; what a file is, its first bytes tell."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv, ipc
from pyarrow import parquet as pq

from holdfast.cli.bars_shape import Picked, Shape

_HEAD = 1 << 16
_BLOCK = 1 << 22
_PACKED = {b"\x1f\x8b": "gzip", b"BZ": "bz2", b"\x28\xb5": "zstd"}
SUFFIXES = {
    **{".csv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"},
    **{".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".jsonl": "json"},
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    header: tuple[str, ...] = ()  # if its first line is none

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise ValueError(f"--delimiter is one character or tab, not {self.delimiter!r}")


class _Counted(io.RawIOBase):
    """Bytes that were looked at, then the rest; it knows how many went by."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.head = file.read(_HEAD)
        self._ahead, self.done = self.head, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._ahead[: len(buffer)] if self._ahead else self._file.read(len(buffer))
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        self.done += len(data)
        return len(data)


Batches = Iterator[tuple[Any, float]]  # and how much of the file is done, from 0 to 1


@contextmanager
def open_batches(path: str, shape: Shape, dialect: Dialect) -> Iterator[tuple[Picked, Batches]]:
    """A file's rows in batches, and which of its columns are wanted; "-" is stdin."""
    size = 0 if path == "-" else Path(path).stat().st_size
    with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as opened:
        counted = _Counted(opened)
        try:
            names, batches = _reader(counted, path, dialect, size)
            picked = shape.pick(names)
        except pa.ArrowException as error:
            raise ValueError(f"{path}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        yield picked, batches(picked)


Reader = Callable[[Picked], Batches]


def _reader(counted: _Counted, path: str, dialect: Dialect, size: int) -> tuple[list[str], Reader]:
    head = counted.head
    if not head:
        raise ValueError("it is empty")
    if path == "-" and head.startswith((b"ARROW1", b"PAR1")):
        raise ValueError("it cannot be read from a pipe; name the file")
    if head[:4] == b"PAR1":
        return _parquet(path)
    if head[:6] == b"ARROW1":
        return _arrow_file(path)
    if head[:4] == b"\xff\xff\xff\xff":
        return _arrow_stream(counted, size)
    return _csv(counted, dialect, size)


def _csv(counted: _Counted, dialect: Dialect, size: int) -> tuple[list[str], Reader]:
    stream: Any = io.BufferedReader(counted, _HEAD)
    codec = _PACKED.get(counted.head[:2])
    if codec is not None:
        stream = _Counted(pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec))
        head = stream.head
        stream = io.BufferedReader(stream, _HEAD)
    else:
        head = counted.head
    if b"\0" in head:
        raise ValueError("neither CSV, nor Parquet, nor Arrow: name another file")
    parsing = csv.ParseOptions(delimiter=dialect.delimiter)
    names = list(dialect.header)
    if not names:
        line = head[: head.find(b"\n") + 1] or head
        names = csv.read_csv(io.BytesIO(line), parse_options=parsing).column_names

    def batches(picked: Picked) -> Batches:
        reading = csv.ReadOptions(block_size=_BLOCK, column_names=dialect.header or None)
        converting = csv.ConvertOptions(
            column_types=picked.csv_types(),
            include_columns=picked.sources(),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=["", "null", "NULL", "None", "N/A", "NA"],
        )
        try:
            reader = csv.open_csv(stream, reading, parsing, converting)
            for batch in reader:
                yield batch, counted.done / size if size else 0.0
        except pa.ArrowException as error:
            advice = "a type can be told, with --column NAME:TYPE"
            raise ValueError(f"{error}; {advice}") from error

    return names, batches


def _parquet(path: str) -> tuple[list[str], Reader]:
    file = pq.ParquetFile(path)
    total = max(file.metadata.num_rows, 1)

    def batches(picked: Picked) -> Batches:
        done = 0
        for batch in file.iter_batches(columns=picked.sources()):
            done += batch.num_rows
            yield batch, done / total

    return file.schema_arrow.names, batches


def _arrow_file(path: str) -> tuple[list[str], Reader]:
    file = ipc.open_file(pa.memory_map(path))
    total = max(file.num_record_batches, 1)

    def batches(_: Picked) -> Batches:
        for number in range(file.num_record_batches):
            yield file.get_batch(number), (number + 1) / total

    return file.schema.names, batches


def _arrow_stream(counted: _Counted, size: int) -> tuple[list[str], Reader]:
    stream = ipc.open_stream(pa.PythonFile(io.BufferedReader(counted, _BLOCK), "r"))

    def batches(_: Picked) -> Batches:
        for batch in stream:
            yield batch, counted.done / size if size else 0.0

    return stream.schema.names, batches


# Out


def write_table(table: Any, kind: str, path: Path | None) -> None:
    """A whole table as csv, parquet or arrow, to stdout or to a file that appears when whole."""
    if path is None:
        _write(table, "stream" if kind == "arrow" else kind, sys.stdout.buffer)
        return
    half = path.with_name(f"{path.name}.half")
    try:
        with half.open("wb") as file:
            _write(table, kind, file)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def _write(table: Any, kind: str, sink: Any) -> None:
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind in ("arrow", "stream"):  # a pipe is for those who read from the beginning on
        make = ipc.new_file if kind == "arrow" else ipc.new_stream
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        plain = table.set_column(0, "symbol", table.column(0).cast(pa.string()))
        csv.write_csv(plain, sink, csv.WriteOptions(quoting_style="needed"))


def kind_of(path: Path | None, asked: str | None, usual: Sequence[str]) -> str:
    """The format that was asked for, or that a file's name ends with."""
    if asked is not None:
        return asked
    if path is None:
        return usual[0]
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"{path}: which format? say --format, one of {', '.join(usual)}")
    return found
