from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.kv_samples import SMALL, contents, key, manifest, open_db

from holdfast.bucket import connect
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.names import wal_name
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.kv_stream import KvStreamReader

Change = tuple[bytes, bytes | None, bool]


def follow(spark: SparkSession, source: Path, target: Path, **options: Any) -> int:
    """Everything new since the last run, into Parquet; how many batches it took."""
    changes = spark.readStream.format("holdfast-kv").options(**options).load(str(source))
    sink = changes.writeStream.format("parquet").trigger(availableNow=True)
    query = sink.option("checkpointLocation", f"{target}.checkpoint").start(str(target))
    query.awaitTermination()
    return len(query.recentProgress)


def changes(spark: SparkSession, target: Path) -> list[Change]:
    rows = spark.read.parquet(str(target)).orderBy("sequence").collect()
    return [(bytes(r["key"]), r["value"] and bytes(r["value"]), r["deleted"]) for r in rows]


def tidy(db: Kv) -> None:
    """All of the WAL into levels, and whatever may go goes."""
    Compactor(db.bucket, options=SMALL).compact_everything()
    db.refresh()
    GarbageCollector(db.bucket, options=GcOptions(0, 0)).collect()


def test_changes_come_once_and_in_order_over_restarts_and_compactions(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "kv", tmp_path / "changes"
    expected: list[Change] = []
    with open_db(source) as db:
        for i in range(3):
            db.put(key(i), b"%d" % i).result()
            expected.append((key(i), b"%d" % i, False))
        assert follow(spark, source, target, startingWalId="earliest", maxFilesPerTrigger=2) >= 2
        assert changes(spark, target) == expected
        db.delete(key(1)).result()
        expected.append((key(1), None, True))
        tidy(db)
        db.put(key(4), b"4").result()
        expected.append((key(4), b"4", False))
        follow(spark, source, target, startingWalId="earliest")
        assert changes(spark, target) == expected, "the stream's snapshot has kept the WAL"
    told_again = spark.readStream.format("holdfast-kv").option("startingWalId", 1)
    upserts = told_again.load(str(source)).select("key", "value", "deleted")
    copy = upserts.writeStream.format("holdfast-kv").trigger(availableNow=True)
    copy = copy.option("checkpointLocation", str(tmp_path / "copy.checkpoint"))
    copy.start(str(tmp_path / "copy")).awaitTermination()
    assert contents(tmp_path / "copy") == contents(source)


def test_what_was_deleted_before_it_was_read_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "kv", tmp_path / "changes"
    with open_db(source) as db:
        db.put(key(1), b"1").result()
        follow(spark, source, target, startingWalId="earliest", snapshotTtlMs=1000)
        for i in (2, 3):
            db.put(key(i), b"%d" % i).result()
        db.snapshots.drop(*(snapshot.id for snapshot in db.snapshots.list()))
        tidy(db)
        tidy(db)
        db.put(key(4), b"4").result()
    with pytest.raises(StreamingQueryException, match="were deleted before they were read"):
        follow(spark, source, target, startingWalId="earliest")
    follow(spark, source, target, startingWalId="earliest", failOnDataLoss="false")
    found = [change[0] for change in changes(spark, target)]
    assert found == [key(1), key(3), key(4)], "the last that was compacted is kept"


def reader(path: Path, **options: str) -> KvStreamReader:
    return KvStreamReader(KvOptions.parse({"path": str(path), **options}))


def test_a_gap_is_waited_for(tmp_path: Path) -> None:
    with open_db(tmp_path) as db:
        stream = reader(tmp_path, startingWalId="latest")
        start = stream.initialOffset()
        for i in range(3):
            db.put(key(i), b"v").result()
        late = wal_name(start["walId"] + 1)
        bucket = connect(str(tmp_path))
        data = bucket.get(late)
        bucket.delete(late)
        limit = stream.getDefaultReadLimit()
        assert stream.latestOffset(start, limit) == {"walId": start["walId"] + 1}
        bucket.put_if_absent(late, data)
        assert stream.latestOffset(start, limit) == {"walId": start["walId"] + 3}
        stream.prepareForTriggerAvailableNow()
        db.put(key(4), b"v").result()
        assert stream.latestOffset(start, limit) == {"walId": start["walId"] + 3}


def test_the_stream_moves_its_snapshot_on_when_it_has_read_what_is_compacted(
    tmp_path: Path,
) -> None:
    with open_db(tmp_path) as db:
        stream = reader(tmp_path, startingWalId="latest")
        start = stream.initialOffset()
        for i in range(3):
            db.put(key(i), b"v").result()
        tidy(db)
        tidy(db)
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert end["walId"] == start["walId"] + 3
        (part,) = stream.partitions(start, end)
        assert sum(batch.num_rows for batch in stream.read(part)) == 3
        held = {snapshot.id for snapshot in manifest(tmp_path).snapshots}
        stream.commit(end)
        stream.commit(end)
        now = {snapshot.id for snapshot in manifest(tmp_path).snapshots}
        assert len(now) == len(held)
        assert len(now & held) == len(held) - 1
        tidy(db)
        assert manifest(tmp_path).wal_gc_boundary > start["walId"]


def test_a_fence_that_is_kept_below_collected_ssts_is_reported_as_a_loss(tmp_path: Path) -> None:
    """It lies alone: a stream that takes it for readable would wait for the id after it."""
    with open_db(tmp_path) as db:
        stream = reader(tmp_path, startingWalId="1")
        for i in range(4):
            db.put(key(i), b"v").result()
        db.snapshots.drop(*(snapshot.id for snapshot in db.snapshots.list()))
        tidy(db)
        tidy(db)
        fence, boundary = wal_name(1), manifest(tmp_path).wal_gc_boundary
        there = {info.name for info in db.bucket.list("wal")}
        assert fence in there
        assert wal_name(2) not in there
        with pytest.raises(Exception, match="were deleted before they were read"):
            stream.begin(1)
        assert reader(tmp_path, failOnDataLoss="false").begin(1) == boundary
        assert stream.begin(boundary) == boundary
