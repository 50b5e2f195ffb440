import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.spark.samples import SEGMENTS, append, make_log, overwrite, payload, rot

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, HoldfastError
from holdfast.logs.shanghai import Retention, ShanghaiLog
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_stream import LogStreamReader


def stream(spark: SparkSession, path: Path, **options: str | float) -> DataFrame:
    return spark.readStream.format("holdfast-log").options(**options).load(str(path))


def run(frame: DataFrame, target: Path) -> list[int]:
    """Everything there is, once, into Parquet; return the size of each micro-batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", f"{target}.checkpoint")
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def indexes(spark: SparkSession, target: Path) -> list[int]:
    return sorted(row["index"] for row in spark.read.parquet(str(target)).collect())


def reader(path: Path, **options: object) -> LogStreamReader:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return LogStreamReader(LogOptions.parse(given))


def compact(path: Path, before: int) -> None:
    with ShanghaiLog(OsDisk(path)) as log:
        log.trim(Retention(before=before))


def test_a_stream_continues_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    path, target = make_log(tmp_path / "log"), tmp_path / "out"
    assert run(stream(spark, path, maxEntriesPerTrigger=15), target) == [15, 15, 10]
    assert indexes(spark, target) == list(range(1, 41))
    append(path, [payload(index) for index in range(41, 48)], rotate=True)
    assert run(stream(spark, path, maxEntriesPerTrigger=15), target) == [7]
    assert indexes(spark, target) == list(range(1, 48))
    rows = spark.read.parquet(str(target)).collect()
    assert all(bytes(row.payload) == payload(row["index"]) for row in rows)


def test_a_stream_starts_at_the_given_index(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    assert reader(path).initialOffset() == {"index": 1}
    assert reader(path, startingIndex="latest").initialOffset() == {"index": 41}
    assert reader(path, startingIndex=7).initialOffset() == {"index": 7}
    with pytest.raises(HoldfastError, match="set startingIndex to 41 or less"):
        reader(path, startingIndex=42).initialOffset()


def test_limits_bound_a_batch(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    assert isinstance(reader(path).getDefaultReadLimit(), ReadAllAvailable)
    limit = reader(path, maxEntriesPerTrigger=15).getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    source = reader(path)
    assert source.latestOffset({"index": 30}, ReadMaxRows(15)) == {"index": 41}
    assert source.latestOffset({"index": 3}, limit) == {"index": 18}
    assert source.latestOffset({"index": 41}, limit) == {"index": 41}
    assert source.latestOffset({"index": 3}, ReadAllAvailable()) == {"index": 41}
    source.prepareForTriggerAvailableNow()
    append(path, [b"later"])
    assert source.latestOffset({"index": 3}, ReadAllAvailable()) == {"index": 41}
    assert source.reportLatestOffset() == {"index": 42}
    source.stop()


def test_a_range_of_offsets_always_has_the_same_rows(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")

    def rows() -> list[tuple[int, bytes]]:
        source = reader(path)
        batches = [
            batch
            for partition in source.partitions({"index": 35}, {"index": 39})
            for batch in source.read(partition)
        ]
        return [(row["index"], row["payload"]) for batch in batches for row in batch.to_pylist()]

    first = rows()
    append(path, [b"later"], rotate=True)
    assert rows() == first == [(index, payload(index)) for index in range(35, 39)]


def test_entries_removed_before_they_were_read_are_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, target = make_log(tmp_path / "log"), tmp_path / "out"
    compact(path, 21)
    with pytest.raises(StreamingQueryException, match=r"entries 5\.\.20 were deleted before"):
        run(stream(spark, path, startingIndex=5), target)
    run(stream(spark, path, startingIndex=5, failOnDataLoss=False), target)
    assert indexes(spark, target) == list(range(21, 41))


def test_a_log_that_was_replaced_by_a_shorter_one_is_an_error(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    with pytest.raises(HoldfastError, match="it ends at 40, but this query has already read to 50"):
        reader(path).latestOffset({"index": 51}, ReadAllAvailable())
    lenient = reader(path, failOnDataLoss="false")
    assert lenient.latestOffset({"index": 51}, ReadAllAvailable()) == {"index": 51}
    assert lenient.partitions({"index": 51}, {"index": 51}) == []


def test_damage_stops_a_stream_or_becomes_a_row(spark: SparkSession, tmp_path: Path) -> None:
    path, target = make_log(tmp_path / "log"), tmp_path / "out"
    rot(path, SEGMENTS[1], 4)
    (path / SEGMENTS[2]).unlink()
    with pytest.raises(StreamingQueryException, match="are lost"):
        run(stream(spark, path), tmp_path / "never")
    run(stream(spark, path, mode="PERMISSIVE"), target)
    rows = spark.read.parquet(str(target)).where("_corrupt_record IS NOT NULL").collect()
    assert sorted(row["index"] for row in rows) == [15, 21]


def test_a_stream_does_not_just_end_where_a_lost_tail_begins(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    tail = path / SEGMENTS[3]
    os.truncate(tail, 64 + (tail.stat().st_size - 64) // 2)  # five of ten entries
    with pytest.raises(CorruptError, match=r"entries 36\.\.40 of the log are lost"):
        reader(path).latestOffset({"index": 1}, ReadAllAvailable())
    assert reader(path, mode="DROPMALFORMED").latestOffset({"index": 1}, ReadAllAvailable()) == {
        "index": 36
    }
    overwrite(path, SEGMENTS[3], 0, b"GARBAGE!")
    with pytest.raises(CorruptError, match="invalid segment header"):
        reader(path).latestOffset({"index": 1}, ReadAllAvailable())


def test_a_stream_follows_a_live_owner(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    source = reader(path)
    with ShanghaiLog(OsDisk(path)) as owner:
        for turn in range(1, 6):
            owner.append([b"%d" % turn] * 10)
            if turn % 2:
                owner.rotate()
            assert source.reportLatestOffset() == {"index": 41 + 10 * turn}
