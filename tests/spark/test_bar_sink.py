"""Frames and streams become bars: all of a job or nothing, each batch once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from tests.spark.bar_samples import asked, load, make_bars, rows_of, save
from tests.spark.samples import staged, sweep_until_clear

from holdfast.bars.staging import Transaction, area, new_job, stage
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.errors import LockedError
from holdfast.spark.bar_sink import check_columns

NEW_YEAR_NS = 1_609_459_200 * 10**9
TICKS = "symbol STRING, epoch_ns LONG, Price LONG"


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """A tick each second, of two symbols; the price tells which it is."""
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("S"), F.col("id") % 2).alias("symbol"),
        (F.lit(NEW_YEAR_NS) + F.col("id") * 10**9).alias("epoch_ns"),
        F.col("id").alias("Price"),
    )


def prices(path: Path) -> list[int]:
    if not path.exists():
        return []
    with open_bars(path, create=True) as store:
        if "S0" not in store.symbols():
            return []
        found: list[int] = store.query("*", "1Min", "TICK")["Price"].to_pylist()
    return sorted(found)


def test_what_was_read_can_be_written_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    source, target = make_bars(tmp_path / "source"), tmp_path / "target"
    save(load(spark, source).repartition(3), target)
    assert asked(target) == asked(source)
    half = load(spark, source).selectExpr(
        "symbol",
        "timestamp_micros(epoch_ns div 1000) AS time",
        "0F AS Close",
        "Volume",
        "Open",
        "High",
        "Low",
    )
    save(half.where("symbol = 'MSFT'"), target)
    changed = [row if row[0] != "MSFT" else (*row[:5], 0.0, row[6]) for row in asked(source)]
    assert asked(target) == changed
    one = load(spark, source, symbols="AAPL").drop("symbol")
    save(one, target, symbol="OTHER", attributes="COPY")
    assert rows_of(load(spark, target, attributes="COPY").drop("symbol")) == rows_of(one)


def test_dead_tasks_and_twins_write_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    path, dead = tmp_path / "bars", tmp_path / "dead"

    def trouble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1 and task.attemptNumber() == 0:
            raise RuntimeError("after all its rows were staged")
        if task.partitionId() == 2 and not dead.exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"attributes": "TICK", "ticks": "true", "txnAppId": "load", "txnVersion": "3"}
    stage(OsDisk(path), new_job(Transaction("load", 2)), 0, [], "1Min", "TICK", is_variable=True)
    assert len(staged(path)) == 1, "of a job that was killed"
    save(numbers(spark, 3000).mapInArrow(trouble, TICKS), path, **options)
    assert dead.exists()
    assert prices(path) == list(range(3000))
    assert staged(path) == [], "what the dead and the failed have left"
    save(numbers(spark, 3000), path, **options)
    assert prices(path) == list(range(3000)), "the same version once more"


def test_a_job_that_fails_leaves_the_store_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    path = make_bars(tmp_path / "bars")
    before = asked(path)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1:
            raise RuntimeError("for good")

    ticks = numbers(spark, 300)
    with pytest.raises(PythonException, match="for good"):
        save(ticks.mapInArrow(fail, TICKS), path, attributes="TICK", ticks="true")
    nulls = ticks.withColumn("Price", F.when(F.col("Price") < 299, F.col("Price")))
    with pytest.raises(PythonException, match="1 of Price are null"):
        save(nulls, path, attributes="TICK", ticks="true")
    with pytest.raises(PythonException, match="the bucket has the columns Open"):
        save(ticks.withColumn("symbol", F.lit("MSFT")), path)
    with (
        open_bars(path, create=True),
        pytest.raises(AnalysisException, match="is owned by process"),
    ):
        save(ticks, path, attributes="TICK", ticks="true")
    with pytest.raises(AnalysisException, match="use mode append"):
        ticks.write.format("holdfast-bars").mode("overwrite").save(str(path))
    assert asked(path) == before
    sweep_until_clear(path, lambda later: area(OsDisk(path)).sweep(new_job(), now_ms=later))
    with open_bars(path, create=True) as store:
        assert store.symbols() == ["AAPL", "MSFT", "NVDA"]
        assert store.undecided == ()


@pytest.mark.parametrize(
    ("columns", "symbol", "advice"),
    [
        ("epoch_ns LONG, Price LONG", None, "bring a column symbol"),
        ("symbol STRING, epoch_ns LONG, Price LONG", "A", "one of the two"),
        ("symbol INT, epoch_ns LONG, Price LONG", None, "cast symbol to STRING"),
        ("epoch_ns LONG, time TIMESTAMP, Price LONG", "A", "one of the two"),
        ("time LONG, Price LONG", "A", "cast time to TIMESTAMP"),
        ("time TIMESTAMP, timeframe STRING", "A", "drop timeframe"),
        ("time TIMESTAMP", "A", "add a column to store"),
        ("time TIMESTAMP, Price DECIMAL(20,2)", "A", "cannot hold decimal"),
    ],
)
def test_other_columns_are_refused(
    spark: SparkSession, columns: str, symbol: str | None, advice: str
) -> None:
    with pytest.raises(ValueError, match=advice):
        check_columns(spark.createDataFrame([], columns).schema, symbol)


def stream(spark: SparkSession, source: Path, target: Path) -> None:
    """The rows of JSON files, one file in each batch."""
    rows = spark.readStream.schema(TICKS).option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        rows.writeStream.format("holdfast-bars")
        .options(timeframe="1Min", attributes="TICK", ticks="true")
        .option("checkpointLocation", f"{target}.checkpoint")
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()


def test_a_replayed_batch_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "bars"
    source.mkdir()

    def bring(number: int) -> None:
        rows = [
            {"symbol": f"S{n % 2}", "epoch_ns": NEW_YEAR_NS + n * 10**9, "Price": n}
            for n in range(10 * number, 10 * number + 10)
        ]
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))

    for number in range(2):
        bring(number)
    stream(spark, source, target)
    assert prices(target) == list(range(20))
    # As if the driver had died between the sink's commit and Spark's: it replays the batch.
    commits = tmp_path / "bars.checkpoint" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    bring(2)
    stream(spark, source, target)
    assert prices(target) == list(range(30))
    assert staged(target) == []


# A driver that is killed in its commit, just after the intent; tests/bars/test_staging.py has all
# the other moments.
_KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.staged import StagingArea
from holdfast.spark import session
from holdfast.spark.bars import BarSource
from holdfast.spark.sinks import BatchWriter

TARGET = sys.argv[1]
DRIVER = os.getpid()  # this script travels to the workers by value, and the number with it

class Deadly(BatchWriter):
    def commit(self, messages):
        write = StagingArea.write_intent
        def deadly(area, note, *, replace=False):
            write(area, note, replace=replace)
            if replace:
                die()
        StagingArea.write_intent = deadly
        super().commit(messages)

def die():
    Path(f"{TARGET}.dead").touch()
    children = Path(f"/proc/{DRIVER}/task/{DRIVER}/children").read_text().split()
    for pid in (*map(int, children), DRIVER, os.getpid()):
        os.kill(pid, signal.SIGKILL)

class DeadlyBars(BarSource):
    @classmethod
    def name(cls):
        return "deadly-bars"

    def writer(self, schema, overwrite):
        options = self._parsed.only_for("write")
        return Deadly(self.target(options, schema), options)

# It lives for seconds, so the second compiler would only take time from the rest.
spark = session(
    "local[2,4]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
)
spark.dataSource.register(DeadlyBars)
rows = spark.range(0, 600, 1, 3).selectExpr(
    "concat('S', id % 2) AS symbol", "1609459200000000000 + id * 1000000000 AS epoch_ns",
    "id AS Price",
)
wanted = {"timeframe": "1Min", "attributes": "TICK", "ticks": "true", "txnAppId": "a",
          "txnVersion": "1"}
rows.write.format("deadly-bars").options(**wanted).mode("append").save(TARGET)
"""


def _wait_until_nobody_owns(path: Path) -> None:
    """The process that commits dies last, perhaps a moment after the driver."""
    for _ in range(600):
        try:
            OsDisk(path).lock().release()
        except LockedError:
            time.sleep(0.05)
        else:
            return


def test_a_driver_killed_at_its_commit_leaves_all_and_once(
    spark: SparkSession, tmp_path: Path, class_cache: Path
) -> None:
    path = tmp_path / "bars"
    command = [sys.executable, "-c", _KILLED, str(path)]
    killed = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "bars.dead").exists()
    _wait_until_nobody_owns(path)
    assert (path / ".staging" / "intent.json").exists()
    assert prices(path) == list(range(600))
    options = {"attributes": "TICK", "ticks": "true", "txnAppId": "a", "txnVersion": "1"}
    save(numbers(spark, 600), path, **options)
    assert prices(path) == list(range(600))
    assert staged(path) == [], "orphans of the killed run"
