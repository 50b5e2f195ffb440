"""Spark as a scheduler: a list of tasks, each run once or more in some worker, until it succeeded.

What a task returns is what its last attempt returned; only that crosses Spark.  A task may run
twice, at the same time too, so it changes nothing but files whose names no other attempt has.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], run: Callable[[Task], Result]
) -> list[Result]:
    """The results, in the order of the tasks.  `run` and its task must be picklable."""
    if not tasks:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(run(tasks[number]))
                yield pa.record_batch(
                    {"id": pa.array([number], pa.int64()), "result": pa.array([result])}
                )

    count = len(tasks)
    numbers = spark.range(0, count, 1, count)  # one task in each partition
    rows = numbers.mapInArrow(work, "id LONG, result BINARY").collect()
    results = {row["id"]: row["result"] for row in rows}
    return [pickle.loads(results[number]) for number in range(count)]
