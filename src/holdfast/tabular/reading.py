"""Read tables of other systems in batches, each validated before it is returned."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa

from holdfast.tabular.casts import cast_column
from holdfast.tabular.sources import CStream, Dialect, JsonLines, Source, Types, open_file

SUFFIXES = {
    **{".csv": "csv", ".txt": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"},
    **{".parquet": "parquet", ".pq": "parquet"},
    **{".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow"},
}
FORMATS = ("csv", "jsonl", "parquet", "arrow")


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return `format`, or the one that the file's suffix names; ValueError if it is unknown."""
    if format is not None and format not in FORMATS:
        raise ValueError(f"no format {format!r}; expected one of {', '.join(FORMATS)}")
    found = format or SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        formats = ", ".join(FORMATS)
        raise ValueError(f"{path}: the suffix names no format; pass the format, one of {formats}")
    return found


def read_table(
    source: Any, format: str | None = None, *, dialect: Dialect | None = None, name: str = ""
) -> "TableReader":
    """Open a table: a path, a binary file such as stdin, or an object with `__arrow_c_stream__`.

    format  csv, jsonl, parquet or arrow (file or stream).  None: the first bytes decide.
            CSV may be compressed with gzip, bz2 or zstd.
    name    what errors call a source that has no path
    """
    if format is not None:
        format_of("", format)
    if hasattr(source, "__arrow_c_stream__"):
        return TableReader(None, CStream(source), name or type(source).__name__)
    owned = isinstance(source, str | os.PathLike)
    file: IO[bytes] = Path(source).open("rb") if owned else source  # noqa: SIM115
    name = name or (str(source) if owned else "the input")
    try:
        with _named(name, format or "table"):
            return TableReader(file if owned else None, open_file(file, format, dialect), name)
    except BaseException:
        if owned:
            file.close()
        raise


class TableReader:
    """Rows of a source, in batches.  A context manager; iterating gives all columns."""

    def __init__(self, file: IO[bytes] | None, table: "Source", name: str) -> None:
        self._file, self._table, self.name = file, table, name

    @property
    def format(self) -> str:
        return self._table.format

    @property
    def names(self) -> list[str]:
        """Return the columns; for JSON lines, those of the first line."""
        return self._table.names

    @property
    def done(self) -> float:
        """Return how much of the source was read, from 0 to 1; 0 if that is unknown."""
        return self._table.done()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def batches(
        self,
        columns: Sequence[str] | None = None,
        types: Types | None = None,
        *,
        nulls: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Read validated batches of some columns.

        columns  those to read; None: all
        types    of columns that are cast; ValueError if a value does not fit
        nulls    whether an empty field of a CSV file is null, or an empty text
        """
        for column in columns or ():
            if self.names and column not in self.names:
                there = ", ".join(self.names)
                raise ValueError(f"{self.name} has no column {column}; it has {there}")
        with _named(self.name, self.format):
            for batch in self._table.read(columns, types or {}, nulls):
                batch.validate(full=True)
                if columns is not None:
                    batch = batch.select(list(columns))
                yield _cast(batch, types or {})

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Read the lines of JSON lines that are not blank, each with its number, from 1."""
        if not isinstance(self._table, JsonLines):
            raise TypeError(f"{self.name} is {self.format}; only JSON lines are read by line")
        return self._table.lines()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def _named(name: str, format: str) -> Iterator[None]:
    """Raise what Arrow finds wrong as a ValueError that names the source."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(f"cannot read {name} as {format}: {error}") from error
    except ValueError as error:
        if str(error).startswith((name, "cannot read")):
            raise
        raise ValueError(f"{name}: {error}") from error
    except OSError as error:
        if error.errno is not None:  # of the system
            raise
        raise ValueError(f"cannot read {name} as {format}: {error}") from error


def _cast(batch: pa.RecordBatch, types: Types) -> pa.RecordBatch:
    for at, field in enumerate(batch.schema):
        wanted = types.get(field.name)
        if wanted is not None and field.type != wanted:
            cast = cast_column(batch.column(at), wanted, field.name)
            batch = batch.set_column(at, field.name, cast)
    return batch
