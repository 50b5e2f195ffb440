import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from tests.spark.kv_samples import contents, key, manifest, open_db

from holdfast.bucket import connect
from holdfast.doors import read_kv
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.spark.kv_sink import check_columns


def numbers(spark: SparkSession, start: int, stop: int, partitions: int = 3) -> DataFrame:
    """Keys in a wild order over all partitions, so that their ranges overlap."""
    wild = (F.col("id") * 7919 % (stop - start) + start).cast("int")
    return spark.range(0, stop - start, 1, partitions).select(
        F.format_string("key/%06d", wild).alias("key"), wild.cast("string").alias("value")
    )


def expected(start: int, stop: int) -> dict[bytes, bytes]:
    return {key(number): b"%d" % number for number in range(start, stop)}


def save(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("holdfast-kv").options(**options).mode("append").save(str(path))


def levels(path: Path) -> set[str]:
    return {info.name for info in connect(str(path)).list("levels")}


def test_a_frame_is_loaded_at_once_over_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "kv"
    with open_db(path) as db, read_kv(str(path)) as before:
        db.write({key(5): b"old", key(9000): b"kept"}).result()
        before.poll()
        save(numbers(spark, 0, 2000), path)
        assert contents(path) == expected(0, 2000) | {key(9000): b"kept"}
        db.put(key(6), b"newer").result()
        assert len(list(before.items())) == 2, "a view does not change"
    assert contents(path)[key(6)] == b"newer"
    assert len(manifest(path).runs[0]) == 1, "small runs become one"
    gone = spark.createDataFrame(
        [(b"key/000001", b"x", True), (b"key/000002", None, False), (b"key/000003", b"y", None)],
        "key BINARY, value BINARY, deleted BOOLEAN",
    )
    save(gone, path)
    found = contents(path)
    assert (found.get(key(1)), found.get(key(2)), found[key(3)]) == (None, None, b"y")


def test_sorted_ranges_and_compressed_runs_are_loaded_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = numbers(spark, 0, 900)
    ranges = rows.repartitionByRange(3, "key").sortWithinPartitions("key")
    save(ranges, tmp_path / "kv", sort="none", duplicates="error", compression="zstd")
    assert contents(tmp_path / "kv") == expected(0, 900)
    (run,) = manifest(tmp_path / "kv").runs
    assert len(run) == 3
    with pytest.raises(PythonException, match="keys must rise"):
        save(rows.coalesce(1), tmp_path / "kv", sort="none")
    assert not [job for job in manifest(tmp_path / "kv").jobs if not job.done]


def test_of_a_key_that_comes_twice_the_last_row_of_the_last_partition_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    twice = spark.range(0, 600, 1, 3).select(
        F.format_string("key/%06d", (F.col("id") % 50).cast("int")).alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    save(twice, tmp_path / "kv", maxRunBytes=1000)
    assert contents(tmp_path / "kv") == {key(i): b"%d" % (550 + i) for i in range(50)}


def test_neither_dead_tasks_nor_twins_lose_or_double_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, dead = tmp_path / "kv", tmp_path / "dead"
    save(numbers(spark, 0, 10), path)

    def die_behind_the_last_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1 and not dead.exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    # Runs of 500 bytes: the task has written SSTs by the time it dies.
    troubled = numbers(spark, 0, 900).mapInArrow(
        die_behind_the_last_row, "key STRING, value STRING"
    )
    save(troubled, path, maxRunBytes=500, duplicates="error")
    assert dead.exists()
    assert contents(path) == expected(0, 900)
    named = {f"levels/{int(sst):020}.sst" for sst in manifest(path).sst_ids}
    assert named < levels(path), "what the dead task wrote"
    GarbageCollector(connect(str(path)), options=GcOptions(0, 0)).plan()  # it can be judged


def test_a_job_that_fails_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "kv"
    save(numbers(spark, 0, 10), path)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 2:
            raise ValueError("no")

    with pytest.raises(PythonException):
        save(numbers(spark, 5, 900).mapInArrow(fail, "key STRING, value STRING"), path)
    assert contents(path) == expected(0, 10)
    assert not [job for job in manifest(path).jobs if not job.done]
    for _ in range(2):
        save(numbers(spark, 0, 20), path, txnAppId="daily", txnVersion=3)
    assert len(manifest(path).transactions) == 1
    assert len(manifest(path).runs) == 2, "the second changed nothing"
    save(numbers(spark, 0, 20).where("key < ''"), path)
    assert len(manifest(path).runs) == 2
    assert not [job for job in manifest(path).jobs if not job.done], "nor does nothing at all"


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        ("key BINARY", "select the columns key, value"),
        ("key BINARY, value BINARY, sequence LONG", "select the columns key, value"),
        ("key LONG, value BINARY", "cast key to BINARY"),
        ("key BINARY, value BINARY, deleted INT", "cast deleted to BOOLEAN"),
    ],
)
def test_other_columns_are_refused(spark: SparkSession, columns: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        check_columns(spark.createDataFrame([], columns).schema)


def test_what_a_store_cannot_hold_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "kv"
    with pytest.raises(AnalysisException, match="use mode append"):
        numbers(spark, 0, 1).write.format("holdfast-kv").mode("overwrite").save(str(path))
    assert not path.exists()
    nobody = spark.createDataFrame([(None, "v")], "key STRING, value STRING").coalesce(1)
    with pytest.raises(PythonException, match="1 keys are null"):
        save(nobody, path)
    with pytest.raises(AnalysisException, match="processes do not share memory"):
        numbers(spark, 0, 1).write.format("holdfast-kv").mode("append").save("memory://kv")
