"""A pipeline runs, goes on where it was, and stops loudly when it cannot keep its promise."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.samples import (
    FOUR_SINKS,
    entries,
    is_bad,
    parquet_rows,
    write,
    write_ticks,
)

from holdfast.disk import OsDisk
from holdfast.doors import open_kv, open_log
from holdfast.errors import HoldfastError, LockedError
from holdfast.logs.retention import Retention
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.spark.pipelines import Batch, ChangedError, Trigger, read, run, status

COPY = """
name = "copy"
checkpoint = "state"

[source.ticks]
format = "holdfast-log"
path = "ticks-log"
options = { columns = "payload", maxEntriesPerTrigger = 30 }

[sink.copy]
from = "ticks"
format = "holdfast-log"
path = "copy"
"""

MODULE = """
from pyspark.sql.functions import udf
from holdfast.spark.pipelines import Pipeline

pipeline = Pipeline("shout", checkpoint="state")
pipeline.source("store", format="holdfast-kv", path="store", options={"startingWalId": "earliest"})

@udf("string")
def loud(value):
    return bytes(value).decode().upper()

@pipeline.step
def shouted(store):
    return store.where("NOT deleted").select(loud("value").alias("payload"))

pipeline.sink("shouts", view="shouted", format="holdfast-log", path="shouts")
"""


def test_sinks_and_dead_letters_continue_where_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is in all four sinks, test_exactly_once looks at."""
    write_ticks(tmp_path / "ticks-log", 1, 60)
    tables = FOUR_SINKS.split("\n[")
    two = [table for table in tables if not table.startswith(("sink.prices]", "sink.bars]"))]
    text = "\n[".join(two)
    declared = read(write(tmp_path / "ticks.toml", text))
    batches: list[Batch] = []
    report = run(spark, declared, on_batch=batches.append)
    names = {"lines", "archive", "dead-letters"}
    assert report.rows == dict.fromkeys(names, 60)
    assert report.batches == dict.fromkeys(names, 2)
    assert report.dead_letters == 3
    assert [batch.lag for batch in batches if batch.sink == "lines"] == [
        {"ticks": 10},
        {"ticks": 0},
    ]
    good = [index for index in range(1, 61) if not is_bad(index)]
    assert len(entries(tmp_path / "lines")) == len(good)
    assert sorted(row["_index"] for row in parquet_rows(tmp_path / "archive")) == good
    letters = [json.loads(entry) for entry in entries(tmp_path / "state" / "dead-letters")]
    assert [letter["index"] for letter in letters] == [17, 34, 51]

    write_ticks(tmp_path / "ticks-log", 61, 70)
    found = {sink.name: sink for sink in status(declared).sinks}
    assert {lag.behind for sink in found.values() for lag in sink.lags} == {10}
    assert {name: sink.rows for name, sink in found.items()} == {
        "lines": len(good),
        "archive": len(good),
        "dead-letters": 3,
    }
    assert {sink.batch for sink in found.values()} == {1}
    changed = text.replace("symbol, size)", "size)")
    with pytest.raises(ChangedError, match=r"step\.lines\.sql has changed"):
        run(spark, read(write(tmp_path / "ticks.toml", changed)))


def test_a_function_over_changes_of_a_store(spark: SparkSession, tmp_path: Path) -> None:
    with open_kv(str(tmp_path / "store"), create=True) as db:
        db.write({b"a": b"one", b"b": b"two"}).result()
        db.delete(b"a").result()
    declared = read(write(tmp_path / "shout.py", MODULE))
    run(spark, declared, trigger=Trigger("once"))
    assert entries(tmp_path / "shouts") == [b"ONE", b"TWO"]
    with open_kv(str(tmp_path / "store"), create=True) as db:
        db.put(b"c", b"three").result()
    (lag,) = status(declared).sinks[0].lags
    assert lag.behind is not None
    assert lag.behind > 0
    assert run(spark, declared).rows == {"shouts": 1}
    assert entries(tmp_path / "shouts") == [b"ONE", b"TWO", b"THREE"]


def test_a_pipeline_that_cannot_continue_stops_with_advice(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_ticks(tmp_path / "ticks-log", 1, 40)
    declared = read(write(tmp_path / "copy.toml", COPY))
    with closing(ShanghaiLog(OsDisk(tmp_path / "ticks-log"))) as log:
        log.rotate()
    run(spark, declared)
    assert len(entries(tmp_path / "copy")) == 40
    write_ticks(tmp_path / "ticks-log", 41, 50)

    with (
        open_log(tmp_path / "copy"),
        pytest.raises(LockedError, match=r"^sink\.copy: .*owned by process"),
    ):
        run(spark, declared)
    with closing(ShanghaiLog(OsDisk(tmp_path / "ticks-log"))) as log:
        log.rotate()
        log.append([b"x"])
        log.trim(Retention(before=51))
        assert log.first_index > 41
    with pytest.raises(HoldfastError, match="were deleted before they were read; set failOnData"):
        run(spark, declared)


def test_a_writer_beside_a_kv_sink_continues(spark: SparkSession, tmp_path: Path) -> None:
    """A batch is a bulk load, which has no epoch: it fences nobody, and nobody fences it."""
    write_ticks(tmp_path / "ticks-log", 1, 10)
    keyed = COPY.replace('columns = "payload", ', "").replace('from = "ticks"', 'from = "keyed"')
    keyed = keyed.replace(
        "[sink.copy]",
        """[step.keyed]
sql = "SELECT cast(index AS STRING) AS key, payload AS value FROM ticks"

[sink.copy]""",
    ).replace('format = "holdfast-log"\npath = "copy"', 'format = "holdfast-kv"\npath = "copy"')
    declared = read(write(tmp_path / "copy.toml", keyed))
    run(spark, declared)
    with open_kv(str(tmp_path / "copy"), create=True) as db:

        def beside(batch: Batch) -> None:
            db.put(b"beside", str(batch.batch).encode()).result()
            if batch.batch == 2:
                raise KeyboardInterrupt
            write_ticks(tmp_path / "ticks-log", 21, 30)

        write_ticks(tmp_path / "ticks-log", 11, 20)
        run(spark, declared, trigger=Trigger("continuous", 100), on_batch=beside)
    with open_kv(str(tmp_path / "copy"), create=True) as db:
        found = dict(db.items())
    assert found.pop(b"beside") == b"2"
    assert sorted(map(int, found)) == list(range(1, 31))


def test_a_continuous_one_runs_until_it_is_interrupted(spark: SparkSession, tmp_path: Path) -> None:
    write_ticks(tmp_path / "ticks-log", 1, 10)
    declared = read(write(tmp_path / "copy.toml", COPY))

    def more(batch: Batch) -> None:
        with pytest.raises(LockedError):  # nobody else may run it meanwhile
            run(spark, declared)
        if batch.batch == 0:
            write_ticks(tmp_path / "ticks-log", 11, 20)
        else:
            raise KeyboardInterrupt

    assert (
        run(spark, declared, trigger=Trigger("continuous", 100), on_batch=more).rows["copy"] == 20
    )
    assert len(entries(tmp_path / "copy")) == 20
    assert not spark.streams.active
