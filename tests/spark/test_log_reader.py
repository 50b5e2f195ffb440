import pickle
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from tests.spark.samples import SEGMENTS, append, make_log, overwrite, payload, rot
from tests.spark.test_logs import load

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.logs.scan_plan import ScanTask
from holdfast.logs.shanghai import Retention, ShanghaiLog
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import LogFrameReader


def planned(path: Path, **options: object) -> list[tuple[str, int, int]]:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    steps = [partition.step for partition in LogFrameReader(LogOptions.parse(given)).partitions()]
    return [
        (step.segment.name, step.start, step.stop) for step in steps if isinstance(step, ScanTask)
    ]


def test_partitions_are_segments_cut_to_the_range(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    assert planned(path) == [(name, 10 * i + 1, 10 * i + 11) for i, name in enumerate(SEGMENTS)]
    assert planned(path, startingIndex=15, endingIndex=22) == [
        (SEGMENTS[1], 15, 21),
        (SEGMENTS[2], 21, 22),
    ]
    assert planned(path, startingIndex=41) == []


def test_a_pruned_segment_is_not_touched_by_any_task(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    frame = load(spark, path, startingIndex=15, endingIndex=22)
    assert frame.rdd.getNumPartitions() == 2
    rot(path, SEGMENTS[0], 3)
    (path / SEGMENTS[0]).chmod(0)
    assert sorted(row["index"] for row in frame.collect()) == list(range(15, 22))
    assert load(spark, path, endingIndex=41, startingIndex=41).count() == 0


def test_partitions_travel(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    reader = LogFrameReader(LogOptions.parse({"path": str(path)}))
    for partition in reader.partitions():
        again = pickle.loads(cloudpickle.dumps(partition))  # type: ignore[no-untyped-call]
        assert list(reader.read(again)) == list(reader.read(partition))


def test_several_logs_are_read_as_one(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(make_log(tmp_path / name, segments=2)) for name in ("a", "b")]
    frame = spark.read.format("holdfast-log").load(paths)
    assert sorted(row["index"] for row in frame.collect()) == sorted([*range(1, 21)] * 2)


def test_failfast_names_file_offset_and_index(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    rot(path, SEGMENTS[1], 4)
    with pytest.raises(PythonException, match=f"{path}/{SEGMENTS[1]} at byte 116: entry 15: check"):
        load(spark, path).collect()
    assert load(spark, path, endingIndex=11).count() == 10
    assert load(spark, path, verify=False).count() == 40


def test_permissive_makes_a_row_of_damage(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    rot(path, SEGMENTS[1], 4)
    overwrite(path, SEGMENTS[2], 64 + 13 * 2, b"\xff\xff\xff\xff")  # a length: all behind is lost
    rows = load(spark, path, mode="PERMISSIVE").orderBy("index").collect()
    sound = [index for index in range(1, 41) if index != 15 and not 23 <= index <= 30]
    assert [(r["index"], bytes(r.payload)) for r in rows if r._corrupt_record is None] == [
        (index, payload(index)) for index in sound
    ]
    one, many = [row for row in rows if row._corrupt_record is not None]
    assert (one["index"], one.payload, one.segment, one.offset) == (15, None, SEGMENTS[1], 116)
    assert "checksum mismatch (affects entries 15..15)" in one._corrupt_record
    assert (many["index"], many.segment, many.offset) == (23, SEGMENTS[2], 64 + 26)
    assert "entries 23..30" in many._corrupt_record
    dropped = load(spark, path, mode="DROPMALFORMED").orderBy("index").collect()
    assert [row["index"] for row in dropped] == sound


@pytest.mark.parametrize("harm", ["header", "missing"])
def test_damage_found_at_opening_counts_in_every_mode(
    spark: SparkSession, tmp_path: Path, harm: str
) -> None:
    path = make_log(tmp_path / "log")
    if harm == "header":
        overwrite(path, SEGMENTS[1], 0, b"GARBAGE!")
    else:
        (path / SEGMENTS[1]).unlink()
    with pytest.raises(AnalysisException, match=r"entries 11\.\.20 of the log are lost"):
        load(spark, path).collect()
    rows = load(spark, path, mode="PERMISSIVE").collect()
    assert len(rows) == 31
    (bad,) = [row for row in rows if row._corrupt_record is not None]
    assert (bad["index"], bad.segment, bad.payload) == (11, SEGMENTS[1], None)
    assert load(spark, path, mode="DROPMALFORMED").count() == 30
    assert load(spark, path, startingIndex=21).count() == 20


def test_a_damaged_header_is_a_row_with_the_first_entry_that_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_log(tmp_path / "log")
    overwrite(path, SEGMENTS[3], 0, b"GARBAGE!")
    with pytest.raises(AnalysisException, match="invalid segment header"):
        load(spark, path).collect()
    (bad,) = load(spark, path, mode="PERMISSIVE").where("_corrupt_record IS NOT NULL").collect()
    assert (bad["index"], bad.segment) == (31, SEGMENTS[3])


def test_a_read_beside_a_live_writer_sees_what_was_durable(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_log(tmp_path / "log")
    with ShanghaiLog(OsDisk(path)) as owner:
        frame = load(spark, path)
        assert frame.count() == 40
        owner.append([b"later"])
        owner.rotate()
        assert frame.count() == 40, "a DataFrame is a snapshot"
        assert load(spark, path).count() == 41


def test_a_trim_under_a_planned_read_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    frame = load(spark, path)
    frame.rdd.getNumPartitions()
    with ShanghaiLog(OsDisk(path)) as owner:
        owner.trim(Retention(before=21))
    with pytest.raises(PythonException, match="after the read was planned: load the log again"):
        frame.collect()


def test_long_and_large_entries_pass(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log", segments=1)
    append(path, [b"x" * 3_000_000, *(b"%d" % i for i in range(70_000)), b"y" * 17_000_000])
    frame = load(spark, path)
    found = frame.selectExpr("count(*) AS n", "sum(length(payload)) AS size").collect()[0]
    digits = sum(len(b"%d" % i) for i in range(70_000))
    assert (found.n, found.size) == (10 + 70_002, 50 + 20_000_000 + digits)


def test_the_error_can_cross_processes() -> None:
    error = pickle.loads(pickle.dumps(CorruptError("a", 7, "why")))
    assert (error.where, error.offset, error.why) == ("a", 7, "why")
