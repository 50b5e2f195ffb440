"""Run a list of tasks with Spark, each in some worker until it succeeds.

Only the result of the last attempt crosses Spark.  A task may run twice, at the same time too, so
it changes nothing but files whose names no other attempt has.

A HoldfastError, a ValueError or a missing file would fail every attempt.  It is not retried, but
raised here unchanged.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.errors import HoldfastError
from holdfast.spark.workers import freeze_imports

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], run: Callable[[Task], Result]
) -> list[Result]:
    """Return the results, in the order of the tasks.  cloudpickle must know `run` and its task."""
    if not tasks:
        return []

    def attempt(task: Task) -> Result | Exception:
        try:
            return run(task)
        except (HoldfastError, ValueError, FileNotFoundError) as error:
            return error

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(attempt(tasks[number]))
                yield pa.record_batch(
                    {"id": pa.array([number], pa.int64()), "result": pa.array([result])}
                )

    count = len(tasks)
    numbers = spark.range(0, count, 1, count)  # one task in each partition
    rows = numbers.mapInArrow(work, "id LONG, result BINARY").collect()
    results = {row["id"]: pickle.loads(row["result"]) for row in rows}
    for number in range(count):
        if isinstance(results[number], Exception):
            raise results[number]
    return [results[number] for number in range(count)]
