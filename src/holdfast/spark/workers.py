"""Code that tasks run in a Python worker of Spark."""

import gc
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from holdfast.errors import HoldfastError

_frozen = 0  # modules
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

Item = TypeVar("Item")
Partition = TypeVar("Partition", bound=InputPartition)


def grouped(items: Iterable[Item], size_of: Callable[[Item], int], size: int) -> list[list[Item]]:
    """Share items out to tasks, in order: each group but the last has at least `size` bytes."""
    groups: list[list[Item]] = []
    filled = size
    for item in items:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(item)
        filled += size_of(item)
    return groups


def in_worker(partition: InputPartition, kind: type[Partition]) -> Partition | None:
    """Prepare to read a partition.  None for one that Spark made because the plan was empty."""
    freeze_imports()
    return partition if isinstance(partition, kind) else None


def freeze_imports() -> None:
    """Exclude imported modules from garbage collection.  Every task calls this.

    Spark's worker runs a full collection after each task.  It visits all objects of pyarrow,
    numpy, pandas and Spark: some 60 ms, in which no task runs.
    """
    global _frozen
    if len(sys.modules) > _frozen:  # some are imported only in the middle of the first task
        gc.freeze()
        _frozen = len(sys.modules)


def current_task() -> TaskContext:
    """Return the task that runs in this process."""
    task = TaskContext.get()
    if task is None:
        raise HoldfastError("rows can be written only in a task of Spark")
    return task


def current_batch() -> tuple[str, int]:
    """Return the id of the streaming query and the number of the batch that this task writes.

    The id is stored in the query's checkpoint, so a batch replayed after a crash has the same one.
    """
    task = current_task()
    query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        raise HoldfastError("this task has no streaming query: use write instead of writeStream")
    return query, int(batch)
