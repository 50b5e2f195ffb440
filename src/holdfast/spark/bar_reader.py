"""Batch reads of bars: the driver pins one state, the workers read it.

A task reads some year files, by symbol and year, of about as many bytes as asked for.  Rows that
are committed but not yet in the files travel with it.  See holdfast.bars.pinned for what happens
when the store is written to meanwhile.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from holdfast import runtime
from holdfast.bars import BarReader
from holdfast.bars.pinned import (
    UNSURE,
    Pin,
    PinnedFile,
    Stamp,
    Stamps,
    read_pinned,
    schema_of_any,
    take_pin,
)
from holdfast.bars.query import Rows
from holdfast.disk import OsDisk
from holdfast.errors import NotFoundError
from holdfast.spark.bar_columns import PackedShape, Shape, packed_schema, spark_schema
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.workers import grouped, in_worker

_CLOCK_STEP_NS = 20_000_000  # two changes within it may have the same time
FILE_COST = 1 << 16  # to open a file costs as much as to read so many bytes
_ROWS_MIN = 1 << 14  # small files share a batch


@dataclass(frozen=True)
class BarPartition(InputPartition):
    """What one task reads."""

    pin: Pin


def infer_schema(options: BarOptions) -> StructType:
    """Return the columns of the first symbol that exists."""
    with BarReader(OsDisk(options.path)) as reader:
        schema = schema_of_any(reader, options.symbols, options.timeframe, options.attributes)
    if schema is None:
        raise _nothing(options)
    found = spark_schema(schema, options.columns)
    return packed_schema(found) if options.packed else found


class BarFrameReader(DataSourceReader):
    """Reads one bucket each of some symbols."""

    def __init__(self, options: BarOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[BarPartition]:
        pin = pin_bars(self._options)
        return [BarPartition(part) for part in share_out(pin, self._options.max_partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if part := in_worker(partition, BarPartition):
            kind = PackedShape if self._options.packed else Shape
            shape = kind(self._schema, self._options.timeframe)
            yield from read_batches(self._options.path, part.pin, shape)


def pin_bars(options: BarOptions) -> Pin:
    """Pin one state of all bars that were asked for.  NotFoundError if there is no such bucket."""
    with BarReader(OsDisk(options.path)) as reader:
        pin = _pin(reader, options)
        for _ in range(2):
            if not any(_is_fresh(file) for file in pin.files):
                return pin
            time.sleep(1.5e-9 * _CLOCK_STEP_NS)
            pin = _pin(reader, options)
    return replace(pin, files=tuple(_distrusted(file) for file in pin.files))


def _pin(reader: BarReader, options: BarOptions) -> Pin:
    pin = take_pin(
        reader,
        options.symbols,
        options.timeframe,
        options.attributes,
        span=options.span,
        years=options.years,
        stamps=stamps_of(options.path),
    )
    if pin is None:
        raise _nothing(options)
    return pin


def share_out(pin: Pin, size: int) -> list[Pin]:
    """Cut a pin into parts of about `size` bytes."""
    return pin.split(grouped(pin.files, lambda file: file.used + FILE_COST, size))


def read_batches(path: str, pin: Pin, shape: Shape) -> Iterator[pa.RecordBatch]:
    """Read all rows of a part of a pin, in a worker."""
    disk, stamps = OsDisk(path), stamps_of(path)
    symbols: list[str] = []
    found: list[Rows] = []
    count = 0
    for file in pin.files:
        rows = read_pinned(disk, pin, file, shape.stored, stamps)
        symbols.append(file.key.split("/")[0])
        found.append(rows)
        count += len(rows.times_ns)
        if count >= _ROWS_MIN:
            yield from shape.batches(symbols, found)
            symbols, found, count = [], [], 0
    if count:
        yield from shape.batches(symbols, found)


def stamps_of(root: str) -> Stamps:
    """Return a function that finds whether a file of this root has changed."""

    def stamp(name: str) -> Stamp | None:
        try:
            found = Path(root, name).stat()
        except FileNotFoundError:
            return None
        return Stamp(found.st_mtime_ns, found.st_size, found.st_blocks * 512)

    return stamp


def _is_fresh(file: PinnedFile) -> bool:
    """Report a change that is so recent that the next one may have the same time."""
    return file.stamp is not None and runtime.now_ns() - file.stamp.changed_ns < _CLOCK_STEP_NS


def _distrusted(file: PinnedFile) -> PinnedFile:
    if file.stamp is None or not _is_fresh(file):
        return file
    return replace(file, stamp=file.stamp._replace(changed_ns=UNSURE))


def _nothing(options: BarOptions) -> NotFoundError:
    """Return the error for a bucket that does not exist."""
    what = f"{options.timeframe}/{options.attributes}"
    whose = "no symbol" if options.symbols is None else f"none of {', '.join(options.symbols[:5])}"
    return NotFoundError(
        f"{options.path}: {whose} has {what}; check symbols, timeframe and attributes"
    )
