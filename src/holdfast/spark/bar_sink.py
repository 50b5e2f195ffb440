"""DataFrames and streams written to bar stores, all or nothing, exactly once.

Every task writes a log of its own into the root; the driver becomes the owner for as long as it
takes to commit them as transaction groups, shown all at once (see holdfast.bars.staging).  What a
failed, killed or speculative attempt wrote is swept by the commit or the abort, or by the
application's next commit; what a task writes that outlives its job, by any commit a day later.

Of two rows for one interval the later counts, in the order of partitions and rows; of ticks all do.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from holdfast import runtime
from holdfast.bars import BarStore, open_bars, staging
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError
from holdfast.spark.bar_columns import EPOCH_NS, SYMBOL, TIME, TIMEFRAME, can_hold
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.checkpoints import settle
from holdfast.spark.workers import current_batch, current_task, freeze_imports

_LOG = logging.getLogger("holdfast")
_MOMENTS = {EPOCH_NS: (LongType,), TIME: (TimestampType, TimestampNTZType)}


@dataclass(frozen=True)
class StagedBars(WriterCommitMessage):
    """What one task has staged; in a stream also for whom."""

    staged: staging.Staged
    query: str | None = None


class _Sink:
    """What both writers share.  Made on the driver; a copy goes to each task."""

    def __init__(self, options: BarOptions, schema: StructType) -> None:
        check_columns(schema, options.symbol)
        self._options = options
        self._made_ms, self._id = runtime.now_ms(), runtime.new_id()

    @property
    def _disk(self) -> OsDisk:
        return OsDisk(self._options.path)

    def _job(self, transaction: staging.Transaction | None) -> str:
        return staging.new_job(transaction, now_ms=lambda: self._made_ms, new_id=lambda: self._id)

    def _stage(
        self, batches: Iterator[pa.RecordBatch], transaction: staging.Transaction | None
    ) -> staging.Staged:
        freeze_imports()
        options = self._options
        return staging.stage(
            self._disk,
            self._job(transaction),
            current_task().partitionId(),
            (shaped(batch, options.symbol) for batch in batches if batch.num_rows),
            options.timeframe,
            options.attributes,
            is_variable=options.ticks,
        )

    def _commit(
        self, parts: Sequence[staging.Staged], transaction: staging.Transaction | None
    ) -> None:
        if transaction is not None:
            settle(self._options.checkpoint, transaction.version)
        commit_staged(self._options.path, parts, transaction)
        _swept(self._disk, self._job(transaction))


def commit_staged(
    path: str, parts: Sequence[staging.Staged], transaction: staging.Transaction | None = None
) -> bool:
    """On the driver: own the store, commit, and let it go.  False if it was committed before."""
    disk = OsDisk(path)
    # One log takes all: a new one would begin with a copy of what is prepared.
    store: BarStore = open_bars(path, wal_size_max=2**62)
    try:
        done = staging.commit(store, disk, parts, transaction)
    except BaseException:
        with suppress(OSError, HoldfastError):  # the first error is the one to tell
            store.close()
        raise
    try:
        store.close()
    except (OSError, HoldfastError) as error:
        # The rows are in the log.  To fail now would make Spark and its user write them again.
        _LOG.warning("%s: committed, but not yet in the year files: %s", path, error)
    return done


def _swept(disk: OsDisk, job: str) -> None:
    try:
        staging.area(disk).sweep(job)
    except OSError as error:
        _LOG.warning("%s: orphans could not be removed: %s", disk, error)


class BarWriter(_Sink, DataSourceArrowWriter):
    """A batch job: written once, or with a transaction once for ever."""

    def __init__(self, options: BarOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._transaction = options.transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBars:
        return StagedBars(self._stage(iterator, self._transaction))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit([part.staged for part in _told(messages)], self._transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        staging.area(self._disk).sweep(self._job(self._transaction))


class BarStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A stream: the query's id and the batch's number are the transaction.

    The id lives in the query's checkpoint, so a batch that is replayed after a crash is known.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBars:
        query, batch = current_batch()
        transaction = staging.Transaction(query, batch)
        return StagedBars(self._stage(iterator, transaction), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if parts := _told(messages):
            transaction = staging.Transaction(str(parts[0].query), batchId)
            self._commit([part.staged for part in parts], transaction)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if parts := _told(messages):  # if no task got that far, the next commit sweeps
            transaction = staging.Transaction(str(parts[0].query), batchId)
            staging.area(self._disk).sweep(self._job(transaction))


def check_columns(schema: StructType, symbol: str | None) -> None:
    """ValueError unless there are symbols, moments and something to store."""
    names = set(schema.fieldNames())
    if (SYMBOL in names) is (symbol is not None):
        raise ValueError("bring a column symbol, or set the option symbol: one of the two")
    if SYMBOL in names and schema[SYMBOL].dataType != StringType():
        raise ValueError("cast symbol to STRING")
    moments = names & _MOMENTS.keys()
    if len(moments) != 1:
        raise ValueError(f"bring the column {EPOCH_NS} or {TIME}: one of the two")
    (moment,) = moments
    if type(schema[moment].dataType) not in _MOMENTS[moment]:
        raise ValueError(f"cast {moment} to {_MOMENTS[moment][0]().simpleString().upper()}")
    stored = names - {SYMBOL, moment}
    if TIMEFRAME in stored:
        raise ValueError(f"drop {TIMEFRAME}: the option says it for all rows")
    if not stored:
        raise ValueError("there is nothing to store but symbols and times")
    for name in sorted(stored):
        if not can_hold(schema[name].dataType):
            kind = schema[name].dataType.simpleString()
            raise ValueError(f"cast {name}: a bar cannot hold {kind}")


def shaped(batch: pa.RecordBatch, symbol: str | None) -> pa.RecordBatch:
    """A batch as it is staged: with `time` in nanoseconds, and numbers as the store has them."""
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


def _told(messages: list[WriterCommitMessage | None]) -> list[StagedBars]:
    return [message for message in messages if isinstance(message, StagedBars)]
