"""Batch reads of bars: one state is pinned on the driver, and read in the workers.

A task has some year files, by symbol and year and about as many bytes as it should.  What is
committed and not yet in the files travels with it.  See holdfast.bars.pinned for what happens when
the store is written to meanwhile.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from holdfast import runtime
from holdfast.bars.pinned import UNSURE, Pin, PinnedFile, PinningReader, Stamp, Stamps, read_pinned
from holdfast.bars.query import Rows
from holdfast.disk import OsDisk
from holdfast.spark.bar_columns import PackedShape, Shape, packed_schema, spark_schema
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.workers import freeze_imports

_CLOCK_STEP_NS = 20_000_000  # two changes within it may have the same time
_FILE_COST = 1 << 16  # to open a file costs as much as to read so many bytes
_ROWS_MIN = 1 << 14  # small files share a batch


@dataclass(frozen=True)
class BarPartition(InputPartition):
    """What one task reads."""

    pin: Pin


def infer_schema(options: BarOptions) -> StructType:
    """The columns of the first of the symbols that is there."""
    with PinningReader(OsDisk(options.path)) as guest:
        schema = guest.schema_of_any(options.symbols, options.timeframe, options.attributes)
    if schema is None:
        raise _nothing(options)
    found = spark_schema(schema, options.columns)
    return packed_schema(found) if options.packed else found


class BarReading(DataSourceReader):
    """Reads one bucket each of some symbols."""

    def __init__(self, options: BarOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[BarPartition]:
        pin = pin_bars(self._options)
        if pin is None:
            raise _nothing(self._options)
        return [BarPartition(part) for part in share_out(pin, self._options.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        if isinstance(partition, BarPartition):  # else Spark's own, when nothing had to be read
            kind = PackedShape if self._options.packed else Shape
            shape = kind(self._schema, self._options.timeframe)
            yield from read_batches(self._options.path, partition.pin, shape)


def pin_bars(options: BarOptions) -> Pin | None:
    """One state of all that was asked for; None if there is no such bucket."""
    disk = OsDisk(options.path)
    with PinningReader(disk) as guest:
        for _ in range(3):
            pin = guest.pin(
                options.symbols,
                options.timeframe,
                options.attributes,
                span=options.span,
                years=options.years,
                stamps=stamps_of(options.path),
            )
            if pin is None or not any(_is_fresh(file) for file in pin.files):
                break
            time.sleep(1.5e-9 * _CLOCK_STEP_NS)
    return pin and replace(pin, files=tuple(_distrusted(file) for file in pin.files))


def share_out(pin: Pin, size: int) -> list[Pin]:
    """Cut a pin into parts of about so many bytes."""
    groups: list[list[PinnedFile]] = []
    filled = size
    for file in pin.files:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.used + _FILE_COST
    return pin.split(groups)


def read_batches(path: str, pin: Pin, shape: Shape) -> Iterator[pa.RecordBatch]:
    """In a worker: all rows of a part of a pin."""
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
    """How to tell whether a file of this root has changed."""

    def stamp(name: str) -> Stamp | None:
        try:
            found = Path(root, name).stat()
        except FileNotFoundError:
            return None
        return Stamp(found.st_mtime_ns, found.st_size, found.st_blocks * 512)

    return stamp


def _is_fresh(file: PinnedFile) -> bool:
    """Changed just now: the next change might not be told from this one."""
    return file.stamp is not None and runtime.now_ns() - file.stamp.changed_ns < _CLOCK_STEP_NS


def _distrusted(file: PinnedFile) -> PinnedFile:
    if file.stamp is None or not _is_fresh(file):
        return file
    return replace(file, stamp=file.stamp._replace(changed_ns=UNSURE))


def _nothing(options: BarOptions) -> ValueError:
    what = f"{options.timeframe}/{options.attributes}"
    whose = "no symbol" if options.symbols is None else f"none of {', '.join(options.symbols[:5])}"
    return ValueError(f"{options.path}: {whose} has {what}; check symbols, timeframe, attributes")
