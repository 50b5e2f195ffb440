"""DataFrames and streams into kv stores: bulk loads, all or nothing, exactly once.

Tasks write sorted SSTs that nobody sees (see holdfast.kv.bulk); the driver names them in one
manifest.  What a failed, killed or speculative attempt wrote is garbage, which the collector finds.

A batch job is registered by the driver.  Of a stream, the first task with rows registers the batch,
under an id that is made of the query's and the batch's number, so that all tasks know it, in this
run of the query and in the next.  A batch that is in the store is not written again.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from holdfast import runtime
from holdfast.bucket import Bucket
from holdfast.errors import JobLostError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import Rows
from holdfast.kv import Options
from holdfast.kv.bulk import BulkJob, BulkLoad, abandon, write_sorted
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.unsorted import Run, arrange, write_runs
from holdfast.runtime import Runtime
from holdfast.spark.checkpoints import settle
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.workers import current_batch, current_task, freeze_imports

Transaction = tuple[str, int]


@dataclass(frozen=True)
class WrittenRuns(WriterCommitMessage):
    """What one task has written, the oldest run first; no job: it had nothing to write."""

    partition: int
    job: BulkJob | None = None
    runs: tuple[Run, ...] = ()
    query: str | None = None


class _Sink:
    """What both writers share.  Made on the driver; a copy goes to each task."""

    def __init__(self, options: KvOptions, schema: StructType) -> None:
        self._options = options
        self._has_deleted = check_columns(schema)
        self._settings = CompactionOptions(compression=options.compression)
        _make_sure_of_a_store(options.address.open())

    def _write(
        self,
        batches: Iterator[pa.RecordBatch],
        begin: Callable[[Bucket], BulkJob | None],
        query: str | None = None,
    ) -> WrittenRuns:
        freeze_imports()
        partition = current_task().partitionId()
        chunks = (_rows(batch, self._has_deleted) for batch in batches if batch.num_rows)
        first = next(chunks, None)
        if first is None:
            return WrittenRuns(partition)
        bucket = self._options.address.open_proved()
        job = begin(bucket)
        if job is None:
            return WrittenRuns(partition)
        runs = self._write_runs(bucket, job, _chained(first, chunks))
        return WrittenRuns(partition, job, tuple(runs), query)

    def _write_runs(self, bucket: Bucket, job: BulkJob, chunks: Iterator[Rows]) -> list[Run]:
        if self._options.sort == "task":
            unique, size = self._options.duplicates == "error", self._options.run_bytes
            return write_runs(bucket, job, chunks, Runtime(), run_size=size, unique=unique)
        try:
            return [tuple(write_sorted(bucket, job, chunks, Runtime()))]
        except ValueError as error:
            advice = "sort the frame, or remove the option sort"
            raise ValueError(f"{error}; with sort=none, keys must rise: {advice}") from error

    def _commit(
        self, messages: list[WriterCommitMessage | None], transaction: Transaction | None
    ) -> None:
        parts = _told(messages)
        if not parts:
            return
        job = parts[0].job
        if job is None or any(part.job is None or part.job.job != job.job for part in parts):
            raise JobLostError("the load was given up while it ran: write the frame again")
        if transaction is not None:
            settle(self._options.checkpoint, transaction[1])
        bucket, unique = self._options.address.open(), self._options.duplicates == "error"
        load = BulkLoad(bucket, Runtime(), self._settings, transaction=transaction, job=job)
        runs = [run for part in parts for run in part.runs]
        if self._options.sort == "none":
            load.commit([sst for run in runs for sst in run])
        else:
            load.commit_runs(arrange(bucket, job, runs, Runtime(), unique=unique))

    def _abandon(self, id: bytes) -> None:
        """Give the load up, unless it is in; Spark asks for it also when a commit has failed."""
        abandon(self._options.address.open(), id, Runtime())


class KvWriter(_Sink, DataSourceArrowWriter):
    """A batch job: loaded once, or with a transaction once for ever.

    Tasks that still run when the job has failed find no load to register, so none is left behind.
    """

    def __init__(self, options: KvOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._transaction = options.transaction
        bucket = options.address.open()
        load = BulkLoad(bucket, Runtime(), self._settings, transaction=self._transaction)
        self._job = None if load.is_committed else load.job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRuns:
        return self._write(iterator, lambda bucket: self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if _told(messages):
            self._commit(messages, self._transaction)
        else:
            self.abort(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._job is not None:
            self._abandon(self._job.job.id)


class KvStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A stream: the query's id and the batch's number are the transaction.

    The id lives in the query's checkpoint, so a batch that is replayed after a crash is known.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRuns:
        query, batch = current_batch()
        transaction = query, batch

        def begin(bucket: Bucket) -> BulkJob | None:
            id = _job_id(*transaction)
            load = BulkLoad(bucket, Runtime(), self._settings, transaction=transaction, id=id)
            return None if load.is_committed else load.job

        return self._write(iterator, begin, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for part in _told(messages)[:1]:
            self._commit(messages, (str(part.query), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for part in _told(messages)[:1]:  # if no task got that far, the replay goes on with it
            self._abandon(_job_id(str(part.query), batchId))


def check_columns(schema: StructType) -> bool:
    """Whether there is a column `deleted`.  ValueError unless the others are key and value."""
    names = set(schema.fieldNames())
    if not {"key", "value"} <= names <= {"key", "value", "deleted"}:
        had = ", ".join(schema.fieldNames())
        raise ValueError(f"select the columns key and value, and deleted if you like; not {had}")
    for name in ("key", "value"):
        kind = schema[name].dataType
        if kind not in (BinaryType(), StringType()):
            raise ValueError(f"cast {name} to BINARY: it is {kind.simpleString()}")
    if "deleted" in names and schema["deleted"].dataType != BooleanType():
        raise ValueError("cast deleted to BOOLEAN")
    return "deleted" in names


def _rows(batch: pa.RecordBatch, has_deleted: bool) -> Rows:
    keys, values = batch.column("key").cast(pa.binary()), batch.column("value").cast(pa.binary())
    if keys.null_count:
        raise ValueError(f"{keys.null_count} keys are null")
    if has_deleted:
        deleted = pc.fill_null(batch.column("deleted"), False)
        values = pc.if_else(deleted, pa.scalar(None, pa.binary()), values)
    return Rows(keys, values, pa.array(np.zeros(batch.num_rows, np.uint64)))


def _job_id(query: str, batch: int) -> bytes:
    """What all tasks of a batch call its load, in this run of the query and in the next."""
    return hashlib.blake2b(f"{query}/{batch}".encode(), digest_size=16).digest()


def _chained(first: Rows, rest: Iterator[Rows]) -> Iterator[Rows]:
    yield first
    yield from rest


def _make_sure_of_a_store(bucket: Bucket) -> None:
    store = ManifestStore(bucket, Runtime())
    if store.latest() is None:
        age_ms = Options().gc_min_age_ms
        store.create(Manifest.create(created_ms=runtime.now_ms(), gc_min_age_ms=age_ms))


def _told(messages: list[WriterCommitMessage | None]) -> list[WrittenRuns]:
    """Of the tasks that have written something, in the order of their partitions."""
    found = [part for part in messages if isinstance(part, WrittenRuns) and part.job is not None]
    return sorted(found, key=lambda part: part.partition)
