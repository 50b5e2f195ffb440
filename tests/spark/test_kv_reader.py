from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.kv_samples import SMALL, contents, key, make_store, manifest, open_db

from holdfast.bucket import connect
from holdfast.doors import read_kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.spark import pinned


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("holdfast-kv").options(**options).load(str(path))


def pairs(frame: DataFrame) -> dict[bytes, bytes]:
    rows = frame.collect()
    found = {bytes(row["key"]): bytes(row["value"]) for row in rows}
    assert len(found) == len(rows), "no key twice"
    return found


def test_a_read_shows_what_a_scan_shows(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    frame = load(spark, path, maxPartitionBytes=1 << 15)
    assert frame.schema.simpleString() == "struct<key:binary,value:binary,sequence:bigint>"
    assert frame.rdd.getNumPartitions() > 4
    with read_kv(str(path), lazy=True) as reader:
        seqs = {
            key: seq
            for batch in reader.scan(seqs=True)
            for key, seq in zip(batch["key"].to_pylist(), batch["seq"].to_pylist(), strict=True)
        }
    assert pairs(frame) == contents(path)
    found = load(spark, path, columns="sequence,key").collect()
    assert {bytes(row["key"]): row["sequence"] for row in found} == seqs


def test_a_frame_does_not_change_while_the_store_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_store(tmp_path / "kv")
    before = contents(path)
    frame = load(spark, path)
    assert frame.count() == len(before)  # a frame is planned when it is first used
    with open_db(path) as db:
        db.write({key(1): b"new", key(2): None}).result()
        Compactor(db.bucket, options=SMALL).compact_everything()
        GarbageCollector(db.bucket, options=GcOptions(0, 0)).collect()
        assert pairs(frame) == before
        assert pairs(load(spark, path))[key(1)] == b"new"


def test_a_block_pins_a_snapshot_and_releases_it(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    before, others = contents(path), len(manifest(path).snapshots)
    with pinned(spark, str(path), prefix="key/00") as frame:
        assert len(manifest(path).snapshots) == others + 1
        assert pairs(frame) == before
    assert len(manifest(path).snapshots) == others
    with pytest.raises(AnalysisException, match="has expired or was dropped"):
        load(spark, path, snapshotId="00000000-0000-0000-0000-000000000001").count()
    assert load(spark, path, pin="false").count() == len(before)
    assert len(manifest(path).snapshots) == others


def test_options_read_a_past_state(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    before = contents(path)
    with open_db(path) as db:
        kept = db.snapshot(ttl_ms=600_000)
        db.write({key(1): b"new", key(2): None}).result()
        Compactor(db.bucket, options=SMALL).compact_everything()
        assert contents(path) != before
        assert pairs(load(spark, path, snapshotId=str(kept.id))) == before
        assert pairs(load(spark, path, manifestId=kept.manifest_id)) == before
    with pytest.raises(AnalysisException, match="manifest 1 is not active"):
        load(spark, path, manifestId=1).count()


def test_a_task_whose_snapshot_expired_raises(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    frame = load(spark, path, pin="false")
    assert frame.count() > 0
    with open_db(path) as db:
        Compactor(db.bucket, options=SMALL).compact_everything()
    GarbageCollector(connect(str(path)), options=GcOptions(0, 0)).collect()
    with pytest.raises(PythonException, match="load again"):
        frame.collect()


def test_missing_stores_and_unknown_options_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="no kv store in"):
        load(spark, tmp_path / "nothing").count()
    assert not (tmp_path / "nothing").exists()
    for options, advice in (
        ({"prefx": "a"}, "holdfast-kv has the options"),
        ({"sort": "none"}, "remove the option sort"),
        ({"columns": "key,deleted"}, "remove deleted from columns"),
    ):
        with pytest.raises(AnalysisException, match=advice):
            load(spark, tmp_path, **options).count()
