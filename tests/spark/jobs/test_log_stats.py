from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.samples import SEGMENTS, append, make_log, overwrite

from holdfast.disk import OsDisk
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.spark.jobs import stats
from holdfast.spark.jobs.log_stats import SizeBucket


def test_entries_and_bytes_are_counted_by_segment_and_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_log(tmp_path / "log")
    append(path, [b"x", b"y" * 40, b"z" * 64])
    report = stats(spark, str(path))
    assert (report.first_index, report.last_index, report.entries) == (1, 43, 43)
    assert (report.payload_size, report.smallest, report.largest) == (200 + 105, 1, 64)
    assert [(s.name, s.entries, s.payload_size) for s in report.segments] == [
        *((name, 10, 50) for name in SEGMENTS[:3]),
        (SEGMENTS[3], 13, 155),
    ]
    assert all(segment.created_ms for segment in report.segments)
    assert report.sizes == (
        SizeBucket(1, 2, 1),
        SizeBucket(2, 4, 0),
        SizeBucket(4, 8, 40),
        SizeBucket(8, 16, 0),
        SizeBucket(16, 32, 0),
        SizeBucket(32, 64, 1),
        SizeBucket(64, 128, 1),
    )
    assert report.damage == ()


def test_lost_entries_are_reported_and_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    overwrite(path, SEGMENTS[1], 64 + 13 * 4, b"\xff\xff\xff\xff")
    (path / SEGMENTS[2]).unlink()
    report = stats(spark, str(path))
    assert report.entries == 24
    spans = [range(damage.first_index, damage.last_index + 1) for damage in report.damage]
    assert sorted({index for span in spans for index in span}) == [*range(15, 31)]


def test_an_empty_log_has_nothing_to_count(spark: SparkSession, tmp_path: Path) -> None:
    ShanghaiLog(OsDisk(tmp_path / "log")).close()
    report = stats(spark, str(tmp_path / "log"))
    assert (report.entries, report.smallest, report.largest, report.sizes) == (0, 0, 0, ())
