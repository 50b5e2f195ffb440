"""What tasks of ours do and know, in the Python worker that they run in."""

import gc
import sys

from pyspark import TaskContext

from holdfast.errors import HoldfastError

_frozen = 0  # modules
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def freeze_imports() -> None:
    """Take what is imported out of the garbage collector's sight; to be called by every task.

    Spark's worker makes a full collection after each task.  That walks through everything that
    pyarrow, numpy, pandas and Spark itself have imported: some 60 ms, in which no task runs.
    """
    global _frozen
    if len(sys.modules) > _frozen:  # some are imported only in the middle of the first task
        gc.freeze()
        _frozen = len(sys.modules)


def current_task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise HoldfastError("rows are written by Spark's tasks alone")
    return task


def current_batch() -> tuple[str, int]:
    """The streaming query whose batch this task writes, and the batch's number.

    The query's id is in its checkpoint, so a batch that is replayed after a crash has the same.
    """
    task = current_task()
    query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        raise HoldfastError("this is no streaming query: use write instead of writeStream")
    return query, int(batch)
