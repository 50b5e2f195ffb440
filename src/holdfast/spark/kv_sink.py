"""Rows loaded into kv stores: see holdfast.kv.bulk.

Tasks write sorted SSTs, and the driver names them in one manifest.  The garbage collector deletes
what a failed, killed or speculative attempt wrote.

The driver registers the load of a batch job.  In a stream the first task with rows registers it,
under an id made of the query's id and the batch's number.  So all tasks know it, in this run of the
query and in the next.  A batch that is in the store already is not written again.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from holdfast.bucket import Bucket
from holdfast.errors import LeaseLostError
from holdfast.formats.sst import Rows
from holdfast.kv.bulk import BulkJob, BulkLoad, abandon, write_sorted
from holdfast.kv.manifests import create_store
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.unsorted import Run, arrange, write_runs
from holdfast.runtime import Runtime
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.sinks import Job


@dataclass(frozen=True)
class WrittenRuns:
    """What one task has written, the oldest run first."""

    job: BulkJob
    runs: tuple[Run, ...] = ()


class KvTarget:
    """A kv store to load into; it is created if there is none."""

    def __init__(self, options: KvOptions, schema: StructType) -> None:
        self._options = options
        self._has_deleted = check_columns(schema)
        self._registered: BulkJob | None = None
        self._is_batch = False
        create_store(options.address.open(), Runtime())

    def prepare(self, job: Job) -> None:
        """Register the load on the driver, so that tasks that outlive the job register none."""
        self._is_batch = True
        self._registered = self._begin(self._options.address.open(), job)

    def stage(
        self, job: Job, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> WrittenRuns | None:
        chunks = (_rows(batch, self._has_deleted) for batch in batches if batch.num_rows)
        first = next(chunks, None)
        if first is None:
            return None
        bucket = self._options.address.open_proved()
        registered = self._registered if self._is_batch else self._begin(bucket, job)
        if registered is None:
            return None
        runs = self._write_runs(bucket, registered, chain([first], chunks))
        return WrittenRuns(registered, tuple(runs))

    def commit(self, job: Job, staged: Sequence[WrittenRuns]) -> None:
        if not staged:
            return self.abort(job)
        registered = staged[0].job
        if any(part.job.job != registered.job for part in staged):
            raise LeaseLostError("the load was abandoned while it ran: write the frame again")
        bucket, runs = self._options.address.open(), [run for part in staged for run in part.runs]
        load = self._load(bucket, job, registered)
        if self._options.sort == "none":
            load.commit([sst for run in runs for sst in run])
        else:
            unique = self._options.duplicates == "error"
            load.commit_runs(arrange(bucket, registered, runs, Runtime(), unique=unique))

    def abort(self, job: Job) -> None:
        if self._is_batch and self._registered is None:
            return  # committed before
        id = self._registered.job.id if self._registered else _job_id(job)
        abandon(self._options.address.open(), id, Runtime())

    def _load(self, bucket: Bucket, job: Job, registered: BulkJob | None = None) -> BulkLoad:
        return BulkLoad(
            bucket,
            Runtime(),
            CompactionOptions(compression=self._options.compression),
            transaction=astuple(job.transaction) if job.transaction else None,
            job=registered,
            id=None if registered or self._is_batch else _job_id(job),
        )

    def _begin(self, bucket: Bucket, job: Job) -> BulkJob | None:
        load = self._load(bucket, job)
        return None if load.is_committed else load.job

    def _write_runs(self, bucket: Bucket, job: BulkJob, chunks: Iterator[Rows]) -> list[Run]:
        if self._options.sort == "task":
            unique, size = self._options.duplicates == "error", self._options.run_bytes
            return write_runs(bucket, job, chunks, Runtime(), run_size=size, unique=unique)
        try:
            return [tuple(write_sorted(bucket, job, chunks, Runtime()))]
        except ValueError as error:
            advice = "sort the frame, or remove the option sort"
            raise ValueError(f"{error}; with sort=none, keys must rise: {advice}") from error


def _job_id(job: Job) -> bytes:
    """Return the id of a stream's load: the same in all tasks, in this run and in the next."""
    assert job.transaction is not None, "a stream has one"
    text = f"{job.transaction.app}/{job.transaction.version}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def check_columns(schema: StructType) -> bool:
    """Report whether there is a column `deleted`.  ValueError unless the rest is key and value."""
    names = set(schema.fieldNames())
    if not {"key", "value"} <= names <= {"key", "value", "deleted"}:
        had = ", ".join(schema.fieldNames())
        raise ValueError(f"select the columns key, value and, if needed, deleted; not {had}")
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
