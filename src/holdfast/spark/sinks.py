"""DataFrames and streams written to stores, all or nothing, exactly once.

1. Every task stages its rows durably where readers of the store do not look.
2. The driver commits what the tasks staged, all at once, as the transaction of the batch.
3. A transaction that was committed before is not committed again.  A stream's transaction is the
   query's id and the batch's number.  The id is stored in the query's checkpoint, so a batch that
   Spark replays after a crash has the same one.
4. Abort removes what the tasks staged.  What a killed or speculative attempt left is removed by the
   commit, by the abort or by a later commit.

A store supplies a `Target`.  The writers here are the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from holdfast import runtime
from holdfast.spark.checkpoints import settle
from holdfast.spark.options import Options
from holdfast.spark.workers import current_batch, current_task, freeze_imports
from holdfast.staged import Transaction, new_job

Messages = list[WriterCommitMessage | None]


@dataclass(frozen=True, slots=True)
class Job:
    """A batch that is written: its name in the staging area, and its transaction, if it has one."""

    name: str
    transaction: Transaction | None


class Target(Protocol):
    """What differs between stores.  The driver creates a target; each task gets a copy."""

    def prepare(self, job: Job) -> None:
        """Prepare a batch job, on the driver.  Not called for streams."""

    def stage(self, job: Job, partition: int, batches: Iterator[pa.RecordBatch]) -> Any:
        """Make a task's rows durable and return what `commit` needs; None if it staged nothing."""

    def commit(self, job: Job, staged: Sequence[Any]) -> None:
        """Commit what the tasks staged, in the order of their partitions, on the driver."""

    def abort(self, job: Job) -> None:
        """Remove what the tasks staged, unless it is committed.  Spark also calls this when a
        commit has failed."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged, and in a stream the query's id."""

    partition: int
    staged: Any
    query: str | None = None


class _Writer:
    def __init__(self, target: Target, options: Options) -> None:
        self._target, self._checkpoint = target, options.checkpoint_location
        self._made_ms, self._id = runtime.now_ms(), runtime.new_id()

    def _job(self, transaction: Transaction | None) -> Job:
        name = new_job(transaction, now_ms=lambda: self._made_ms, new_id=lambda: self._id)
        return Job(name, transaction)

    def _stage(self, job: Job, batches: Iterator[pa.RecordBatch], query: str | None) -> Staged:
        freeze_imports()
        partition = current_task().partitionId()
        return Staged(partition, self._target.stage(job, partition, batches), query)

    def _commit(self, job: Job, parts: Sequence[Staged]) -> None:
        if job.transaction is not None:
            settle(self._checkpoint, job.transaction.version)
        self._target.commit(job, [part.staged for part in parts])


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame; with a transaction, once however often the job is run."""

    def __init__(self, target: Target, options: Options) -> None:
        super().__init__(target, options)
        self._batch = self._job(options.transaction)
        target.prepare(self._batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(self._batch, iterator, None)

    def commit(self, messages: Messages) -> None:
        self._commit(self._batch, _parts(messages))

    def abort(self, messages: Messages) -> None:
        self._target.abort(self._batch)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        query, batch = current_batch()
        return self._stage(self._job(Transaction(query, batch)), iterator, query)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        if parts := _parts(messages):
            self._commit(self._job(Transaction(str(parts[0].query), batchId)), parts)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        if parts := _parts(messages):  # if no task has staged anything, the next commit sweeps
            self._target.abort(self._job(Transaction(str(parts[0].query), batchId)))


def _parts(messages: Messages) -> list[Staged]:
    found = [part for part in messages if isinstance(part, Staged) and part.staged is not None]
    return sorted(found, key=lambda part: part.partition)
