import io
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.spark.progress import progress


def _screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80)


def _shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _wait_until_active(spark: SparkSession) -> None:
    deadline = time.monotonic() + 120
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        assert time.monotonic() < deadline, "no job ever became active"
        time.sleep(0.05)


def test_success_ends_at_100_percent_even_when_stages_are_skipped(spark: SparkSession) -> None:
    console = _screen()
    with progress(spark, "counting", console) as group:
        counts = spark.range(1000).groupBy("id").count().cache()
        assert counts.count() == counts.count() == 1000
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert "counting" in _shown(console)
    assert "100%" in _shown(console)


def test_a_block_without_a_job_ends_at_100_percent_too(spark: SparkSession) -> None:
    console = _screen()
    with progress(spark, "idling", console):
        pass
    assert "100%" in _shown(console)


def test_a_failure_does_not_claim_100_percent(spark: SparkSession) -> None:
    console = _screen()
    with pytest.raises(ZeroDivisionError), progress(spark, "failing", console):
        raise ZeroDivisionError
    assert "100%" not in _shown(console)


def test_nothing_is_drawn_without_a_terminal(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with progress(spark, "piped", console):
        assert spark.range(10).count() == 10
    assert _shown(console) == ""
    with progress(spark, "silent"):
        assert spark.range(10).count() == 10
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_cancels_the_jobs_of_the_block(spark: SparkSession) -> None:
    failures: list[Py4JError] = []

    # Inside the test, because workers cannot import test modules: so it travels by value.
    def sleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(600)
        yield from batches

    def run() -> None:
        try:
            spark.range(2).mapInArrow(sleep, "id long").collect()
        except Py4JError as error:
            failures.append(error)

    with pytest.raises(KeyboardInterrupt), progress(spark, "sleeping"):
        job = InheritableThread(target=run, session=spark)
        job.start()
        _wait_until_active(spark)
        raise KeyboardInterrupt
    job.join(120)
    assert not job.is_alive()
    assert "cancelled" in str(failures[0])
    assert spark.range(10).count() == 10


def test_the_job_group_of_the_caller_is_restored(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("outer", "the caller's")
    try:
        with progress(spark, "inner") as group:
            assert context.getLocalProperty("spark.jobGroup.id") == group
        assert context.getLocalProperty("spark.jobGroup.id") == "outer"
        assert context.getLocalProperty("spark.job.description") == "the caller's"
    finally:
        context._jsc.clearJobGroup()
