"""DataFrames and streams appended to logs, all or nothing, exactly once.

Tasks stage their rows durably beside the log; the driver becomes its owner for as long as it takes
to commit them (see holdfast.logs.staging).  What a failed, killed or speculative attempt staged is
swept by the commit or the abort, or by the application's next commit; what a task stages that
outlives its job, by any commit a day later.

The order of the entries is the order of the partitions and, in each, of the rows; or that of the
column `orderBy`, where equals keep the former order and nulls come last.  That sort runs on the
driver, in memory.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from holdfast import runtime
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError
from holdfast.logs import staging
from holdfast.logs.log import Log
from holdfast.logs.open import create_log, format_of, open_log
from holdfast.spark.checkpoints import settle
from holdfast.spark.log_options import LogOptions
from holdfast.spark.workers import current_batch, current_task, freeze_imports

_LOG = logging.getLogger("holdfast")
_UNSORTABLE = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What one task has staged; in a stream also for whom."""

    staged: staging.Staged
    query: str | None = None


class _Sink:
    """What both writers share.  Made on the driver; a copy goes to each task."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._path = options.paths[0]
        self._format = options.format
        self._format_matters = "format" in options.given
        size = options.segment_size_max
        self._log_options: dict[str, Any] = {} if size is None else {"segment_size_max": size}
        self._checkpoint = options.checkpoint
        self._payload, self._order = choose_columns(schema, options.order_by)
        self._made_ms, self._id = runtime.now_ms(), runtime.new_id()

    @property
    def _disk(self) -> OsDisk:
        return OsDisk(self._path)

    def _job(self, transaction: staging.Transaction | None) -> str:
        return staging.new_job(transaction, now_ms=lambda: self._made_ms, new_id=lambda: self._id)

    def _stage(
        self, batches: Iterator[pa.RecordBatch], transaction: staging.Transaction | None
    ) -> staging.Staged:
        freeze_imports()
        partition = current_task().partitionId()
        return staging.stage(
            self._disk, self._job(transaction), partition, map(self._shaped, batches)
        )

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {"payload": batch.column(self._payload).cast(pa.binary())}
        if self._order is not None:
            columns["order"] = batch.column(self._order)
        return pa.record_batch(columns)

    def _commit(
        self, parts: Sequence[staging.Staged], transaction: staging.Transaction | None
    ) -> None:
        if transaction is not None:
            settle(self._checkpoint, transaction.version)
        with closing(self._owner()) as log:
            ordered = self._order is not None
            staging.commit(log, self._disk, parts, transaction, ordered=ordered)
            try:
                staging.sweep(self._disk, self._job(transaction))
            except OSError as error:
                # The rows are in.  To fail now would make Spark and its user append them again.
                _LOG.warning("%s: orphans could not be removed: %s", self._path, error)

    def _owner(self) -> Log:
        try:
            found = format_of(self._disk).name
        except HoldfastError:  # no log yet
            return create_log(self._path, self._format, **self._log_options)
        if self._format_matters and found != self._format:
            raise ValueError(f"remove the option format: {self._path} holds a {found} log")
        log: Log = open_log(self._path, **self._log_options)
        return log


class LogWriter(_Sink, DataSourceArrowWriter):
    """A batch job: appended once, or with a transaction once for ever."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._transaction = options.transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return StagedRows(self._stage(iterator, self._transaction))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit([part.staged for part in _told(messages)], self._transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        staging.sweep(self._disk, self._job(self._transaction))


class LogStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A stream: the query's id and the batch's number are the transaction.

    The id lives in the query's checkpoint, so a batch that is replayed after a crash is known.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        query, batch = current_batch()
        transaction = staging.Transaction(query, batch)
        return StagedRows(self._stage(iterator, transaction), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if parts := _told(messages):
            transaction = staging.Transaction(_query(parts), batchId)
            self._commit([part.staged for part in parts], transaction)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if parts := _told(messages):  # if no task got that far, the next commit sweeps
            transaction = staging.Transaction(_query(parts), batchId)
            staging.sweep(self._disk, self._job(transaction))


def choose_columns(schema: StructType, order_by: str | None) -> tuple[str, str | None]:
    """Which column becomes the payload, and which one gives the order."""
    names = schema.fieldNames()
    if order_by is not None and order_by not in names:
        raise ValueError(f"set orderBy to one of {', '.join(names)}, not {order_by!r}")
    if order_by is not None and isinstance(schema[order_by].dataType, _UNSORTABLE):
        raise ValueError(f"set orderBy to a column with an order, not {order_by!r}")
    rest = [name for name in names if name != order_by] or names
    payload = "payload" if "payload" in names else rest[0]
    strange = [name for name in rest if name != payload]
    if strange or not rest:
        had = ", ".join(names)
        raise ValueError(f"select only the column payload, and that of orderBy; not {had}")
    kind = schema[payload].dataType
    if kind not in (BinaryType(), StringType()):
        raise ValueError(f"cast {payload} to BINARY: it is {kind.simpleString()}")
    return payload, order_by


def _told(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]


def _query(parts: Sequence[StagedRows]) -> str:
    return str(parts[0].query)
