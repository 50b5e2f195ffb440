"""Rows written to bar stores: see holdfast.bars.staging.

Of two rows for one interval the later counts, in the order of partitions and rows; of ticks all do.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from holdfast.bars import BarStore, staging
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.errors import HoldfastError
from holdfast.spark.bar_columns import EPOCH_NS, SYMBOL, TIME, TIMEFRAME, can_hold
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.sinks import Job
from holdfast.staged import Transaction

_LOG = logging.getLogger("holdfast")
_TIMES = {EPOCH_NS: (LongType,), TIME: (TimestampType, TimestampNTZType)}


class BarTarget:
    """A bar store to write to; it is created if there is none."""

    def __init__(self, options: BarOptions, schema: StructType) -> None:
        check_columns(schema, options.symbol)
        self._options = options

    def prepare(self, job: Job) -> None:
        """Prepare nothing: a task creates what it needs."""

    def stage(self, job: Job, partition: int, batches: Iterator[pa.RecordBatch]) -> staging.Staged:
        options = self._options
        return staging.stage(
            OsDisk(options.path),
            job.name,
            partition,
            (shaped(batch, options.symbol) for batch in batches if batch.num_rows),
            options.timeframe,
            options.attributes,
            is_variable=options.ticks,
        )

    def commit(self, job: Job, staged: Sequence[staging.Staged]) -> None:
        commit_staged(self._options.path, staged, job.transaction)
        try:
            self.abort(job)
        except OSError as error:
            _LOG.warning("%s: cannot remove orphans: %s", self._options.path, error)

    def abort(self, job: Job) -> None:
        staging.area(OsDisk(self._options.path)).sweep(job.name)


def commit_staged(
    path: str, parts: Sequence[staging.Staged], transaction: Transaction | None = None
) -> bool:
    """Own the store, commit and close it.  False if the transaction was committed before."""
    disk = OsDisk(path)
    # One log takes all: a new one would begin with a copy of all prepared groups.
    store: BarStore = open_bars(path, create=True, wal_size_max=2**62)
    try:
        done = staging.commit(store, disk, parts, transaction)
    except BaseException:
        with suppress(OSError, HoldfastError):  # report the first error
            store.close()
        raise
    try:
        store.close()
    except (OSError, HoldfastError) as error:
        # The rows are committed.  A failure now would make Spark write them again.
        _LOG.warning("%s: committed, but not yet in the year files: %s", path, error)
    return done


def check_columns(schema: StructType, symbol: str | None) -> None:
    """Raise ValueError unless there are symbols, times and something to store."""
    names = set(schema.fieldNames())
    if (SYMBOL in names) is (symbol is not None):
        raise ValueError("bring a column symbol, or set the option symbol: one of the two")
    if SYMBOL in names and schema[SYMBOL].dataType != StringType():
        raise ValueError("cast symbol to STRING")
    times = names & _TIMES.keys()
    if len(times) != 1:
        raise ValueError(f"bring the column {EPOCH_NS} or {TIME}: one of the two")
    (time,) = times
    if type(schema[time].dataType) not in _TIMES[time]:
        raise ValueError(f"cast {time} to {_TIMES[time][0]().simpleString().upper()}")
    stored = names - {SYMBOL, time}
    if TIMEFRAME in stored:
        raise ValueError(f"drop {TIMEFRAME}: the option sets it for all rows")
    if not stored:
        raise ValueError("add a column to store: there are only symbols and times")
    for name in sorted(stored):
        if not can_hold(schema[name].dataType):
            kind = schema[name].dataType.simpleString()
            raise ValueError(f"cast {name}: a bar cannot hold {kind}")


def shaped(batch: pa.RecordBatch, symbol: str | None) -> pa.RecordBatch:
    """Return a batch as it is staged: `time` in nanoseconds, numbers in the types of the store."""
    columns: dict[str, pa.Array] = {}
    if symbol is not None:
        columns[SYMBOL] = pa.repeat(symbol, batch.num_rows)
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count:
            raise ValueError(f"{array.null_count} of {name} are null: a bar has no missing values")
        if name == EPOCH_NS:
            columns[TIME] = array
        elif name == TIME:
            columns[TIME] = pc.multiply_checked(array.cast(pa.int64()), 1000)
        elif pa.types.is_decimal(array.type):
            columns[name] = array.cast(pa.uint64())
        else:
            columns[name] = array
    return pa.record_batch(columns)
