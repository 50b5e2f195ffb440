import gc
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from holdfast.errors import CorruptError
from holdfast.spark.jobs.tasks import run_tasks


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    assert run_tasks(spark, [3, 1, 2], lambda task: {"square": task**2}) == [
        {"square": 9},
        {"square": 1},
        {"square": 4},
    ]
    assert run_tasks(spark, [], len) == []


def test_an_error_in_a_task_is_reported(spark: SparkSession) -> None:
    with pytest.raises(PythonException, match="ZeroDivisionError"):
        run_tasks(spark, [0], lambda task: 1 / task)


def test_an_error_that_no_retry_can_cure_is_raised_unchanged(
    spark: SparkSession, tmp_path: Path
) -> None:
    def refuse(task: int) -> None:
        with (tmp_path / "attempts").open("a") as file:
            file.write("x")
        raise CorruptError("segment", task, "damaged")

    with pytest.raises(CorruptError, match="segment at byte 7: damaged"):
        run_tasks(spark, [7], refuse)
    assert (tmp_path / "attempts").read_text() == "x"


def test_a_worker_does_not_collect_what_it_has_imported(spark: SparkSession) -> None:
    """Spark collects after every task; what is left to look at is little."""

    def look(task: int) -> tuple[int, int]:
        import pandas  # noqa: F401 - as Arrow does in the middle of a task

        return gc.get_freeze_count(), len(gc.get_objects())

    run_tasks(spark, range(8), look)
    for frozen, seen in run_tasks(spark, range(8), look):
        assert frozen > 5 * seen
