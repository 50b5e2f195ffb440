import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from tests.spark.samples import append, contents, make_log, payload, staged, sweep_until_clear
from tests.spark.test_log_stream import stream

from holdfast.disk import OsDisk
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.logs.staging import new_job, sweep
from holdfast.spark.log_sink import choose_columns


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """Payloads b'0', b'1', ... in the order of their partitions."""
    return spark.range(0, count, 1, partitions).select(
        F.col("id").cast("string").cast("binary").alias("payload")
    )


def save(frame: DataFrame, path: Path, **options: str | float) -> None:
    frame.write.format("holdfast-log").options(**options).mode("append").save(str(path))


def expected(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def test_a_frame_is_appended_in_the_order_of_partitions_and_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    save(numbers(spark, 1000, 5), path)
    assert contents(path) == expected(1000)
    save(numbers(spark, 30), path, format="raft-wal")
    assert contents(path) == expected(1000) + expected(30)
    assert staged(path) == []


def test_a_column_can_give_the_order(spark: SparkSession, tmp_path: Path) -> None:
    shuffled = spark.range(100).select(
        F.col("id").cast("string").alias("text"), (-F.col("id")).alias("time")
    )
    save(shuffled.repartition(4, "text"), tmp_path / "log", orderBy="time")
    assert contents(tmp_path / "log") == expected(100)[::-1]


def test_a_log_can_be_copied_by_its_index(spark: SparkSession, tmp_path: Path) -> None:
    source = make_log(tmp_path / "source")
    rows = spark.read.format("holdfast-log").option("columns", "index,payload").load(str(source))
    save(rows.repartition(3), tmp_path / "log", orderBy="index")
    assert contents(tmp_path / "log") == contents(source)


@pytest.mark.parametrize(
    ("columns", "order_by", "advice"),
    [
        ("payload BINARY, time LONG", None, "select only the column payload"),
        ("a STRING, b STRING", None, "select only the column payload"),
        ("number LONG", None, "cast number to BINARY"),
        ("payload BINARY", "time", "set orderBy to one of payload"),
        ("payload BINARY, all ARRAY<INT>", "all", "a column that can be sorted"),
    ],
)
def test_other_columns_are_refused(
    spark: SparkSession, columns: str, order_by: str | None, advice: str
) -> None:
    with pytest.raises(ValueError, match=advice):
        choose_columns(spark.createDataFrame([], columns).schema, order_by)


def test_fitting_columns_are_found(spark: SparkSession) -> None:
    def chosen(columns: str, order_by: str | None = None) -> tuple[str, str | None]:
        return choose_columns(spark.createDataFrame([], columns).schema, order_by)

    assert chosen("text STRING") == ("text", None)
    assert chosen("time LONG, payload BINARY", "time") == ("payload", "time")
    assert chosen("payload BINARY", "payload") == ("payload", "payload")


def test_what_a_log_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    frame = numbers(spark, 3, 1)
    with pytest.raises(AnalysisException, match="use mode append"):
        frame.write.format("holdfast-log").mode("overwrite").save(str(path))
    with pytest.raises(AnalysisException, match="remove the option startingIndex"):
        save(frame, path, startingIndex=3)
    with pytest.raises(PythonException, match="payload is empty"):
        save(frame.select(F.lit(b"").alias("payload")), path)
    with pytest.raises(PythonException, match="payloads are null"):
        save(frame.select(F.lit(None).cast("binary").alias("payload")), path)
    with ShanghaiLog(OsDisk(path)), pytest.raises(AnalysisException, match="is owned by process"):
        save(frame, path)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "file").write_bytes(b"not ours")
    with pytest.raises(AnalysisException, match="is not empty"):
        save(frame, tmp_path / "strange")
    assert len(contents(path)) == 40
    assert staged(path) == staged(tmp_path / "strange") == []


def test_a_transaction_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for version in (0, 0, 1, 0, 1):
        save(numbers(spark, 10), path, txnAppId="load", txnVersion=version)
    assert contents(path) == expected(10) * 2
    save(numbers(spark, 10), path, txnAppId="another", txnVersion=0)
    assert contents(path) == expected(10) * 3
    assert staged(path) == []


def test_a_task_that_fails_after_staging_is_retried_and_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, marker = tmp_path / "log", tmp_path / "failed"

    def fail_at_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1 and task.attemptNumber() < 2:
            marker.touch()
            raise RuntimeError("after all its rows were staged")

    save(numbers(spark, 1000).mapInArrow(fail_at_the_end, "payload BINARY"), path)
    assert marker.exists()
    assert contents(path) == expected(1000)
    assert staged(path) == [], "orphans of the failed attempts"


def test_a_python_worker_killed_in_mid_task_costs_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, marker = tmp_path / "log", tmp_path / "killed"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    save(numbers(spark, 50_000, 2).mapInArrow(die_once, "payload BINARY"), path)
    assert marker.exists()
    assert contents(path) == expected(50_000)
    assert staged(path) == []


def test_a_job_that_fails_leaves_the_log_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            task = TaskContext.get()
            assert task is not None
            if task.partitionId() == 1:
                raise RuntimeError("for good")

    with pytest.raises(PythonException, match="for good"):
        save(numbers(spark, 100).mapInArrow(fail, "payload BINARY"), path)
    assert len(contents(path)) == 40
    sweep_until_clear(path, lambda later: sweep(OsDisk(path), new_job(), now_ms=later))


def copy(spark: SparkSession, source: Path, target: Path, **options: str | float) -> None:
    """The source's entries through a stream into another log."""
    query = (
        stream(spark, source, columns="payload", **options)
        .writeStream.format("holdfast-log")
        .option("checkpointLocation", f"{target}.checkpoint")
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()


def test_a_replayed_batch_appends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    source, target = make_log(tmp_path / "source"), tmp_path / "target"
    copy(spark, source, target, maxEntriesPerTrigger=15)
    commits = sorted((tmp_path / "target.checkpoint" / "commits").glob("[0-9]*"))
    assert len(commits) == 3
    # As if the driver had died between the sink's commit and Spark's: it replays the batch.
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink()
    append(source, [payload(index) for index in range(41, 51)])
    copy(spark, source, target, maxEntriesPerTrigger=15)
    assert contents(target) == [payload(index) for index in range(1, 51)]
    assert staged(target) == []


def test_two_streams_share_a_log_without_mixing_up_their_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = make_log(tmp_path / "source"), tmp_path / "target"
    copy(spark, source, target)
    (tmp_path / "target.checkpoint").rename(tmp_path / "first.checkpoint")
    copy(spark, source, target)  # another query, whose batch has the same number
    assert contents(target) == contents(source) * 2


def test_a_stream_of_updates_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    counts = stream(spark, make_log(tmp_path / "log")).groupBy("segment").count()
    query = (
        counts.select(F.col("segment"))
        .writeStream.format("holdfast-log")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises((AnalysisException, StreamingQueryException), match="use outputMode append"):
        query.start(str(tmp_path / "out")).awaitTermination()
