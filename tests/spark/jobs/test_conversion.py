import json
from base64 import b64decode
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.samples import SEGMENTS, append, contents, make_log, payload, rot, tree

from holdfast.disk import OsDisk
from holdfast.doors import open_log
from holdfast.errors import CorruptError
from holdfast.logs.shanghai import Retention, ShanghaiLog, ShanghaiReader
from holdfast.logs.verify import verify_log
from holdfast.spark.jobs import convert
from holdfast.spark.jobs.conversion import Kind


def compacted(path: Path) -> Path:
    """Indexes 11..40: a log whose first entries are gone."""
    make_log(path)
    with ShanghaiLog(OsDisk(path)) as log:
        log.trim(Retention(before=11))
    return path


@pytest.mark.parametrize(("size", "segments"), [(120, 7), (10_000, 2)])
def test_a_log_gets_segments_of_another_size(
    spark: SparkSession, tmp_path: Path, size: int, segments: int
) -> None:
    source, target = compacted(tmp_path / "source"), tmp_path / "target"
    before = tree(source)
    report = convert(spark, str(source), str(target), segment_size_max=size)
    assert (report.first_index, report.last_index, report.entries) == (11, 40, 30)
    guest = ShanghaiReader(OsDisk(target))
    assert (guest.first_index, guest.last_index) == (11, 40)
    assert abs(len(guest.segments()) - segments) <= 1
    assert verify_log(OsDisk(target)).verdict == "clean"
    assert contents(target) == contents(source)
    assert {file.suffix for file in target.iterdir()} <= {".wal", ".json", ".mark", ".reserve", ""}
    assert set(before) <= set(tree(source))


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_there_and_back_again(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    source, between, back = compacted(tmp_path / "a"), tmp_path / "b", tmp_path / "c"
    append(source, [b"\xff\x00 not text"])
    out = convert(spark, str(source), str(between), target_kind=kind)
    assert (out.first_index, out.last_index, out.files) == (11, 41, 3)
    again = convert(spark, str(between), str(back), source_kind=kind, segment_size_max=200)
    assert (again.first_index, again.last_index) == (11, 41)
    assert contents(back) == contents(source)
    with open_log(back) as log:
        assert log.read(11) == payload(11)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_parquet_is_read_by_spark_in_order(spark: SparkSession, tmp_path: Path) -> None:
    source, target = make_log(tmp_path / "log"), tmp_path / "parquet"
    convert(spark, str(source), str(target), target_kind="parquet")
    assert (target / "_SUCCESS").exists()
    rows = spark.read.parquet(str(target)).orderBy("index").collect()
    assert [(r["index"], bytes(r["payload"])) for r in rows] == [
        (index, payload(index)) for index in range(1, 41)
    ]


def test_json_lines_hold_base64_or_text(spark: SparkSession, tmp_path: Path) -> None:
    source = make_log(tmp_path / "log", segments=1)
    convert(spark, str(source), str(tmp_path / "base64"), target_kind="jsonl")
    convert(spark, str(source), str(tmp_path / "text"), target_kind="jsonl", text=True)
    encoded, plain = (
        [
            json.loads(line)
            for line in (tmp_path / name / "part-00000.jsonl").read_text().splitlines()
        ]
        for name in ("base64", "text")
    )
    assert [b64decode(line["payload"]) for line in encoded] == contents(source)
    assert [line["payload"].encode() for line in plain] == contents(source)
    assert [line["index"] for line in plain] == list(range(1, 11))
    back = tmp_path / "back"
    convert(spark, str(tmp_path / "text"), str(back), source_kind="jsonl", text=True)
    assert contents(back) == contents(source)
    append(source, [b"\xff"])
    with pytest.raises(ValueError, match="entry 11 is not UTF-8: convert it as base64"):
        convert(spark, str(source), str(tmp_path / "no"), target_kind="jsonl", text=True)
    assert not list(tmp_path.glob("no*"))


def test_indexes_that_are_not_whole_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a.jsonl").write_text(
        '{"index": 1, "payload": "YQ=="}\n{"index": 3, "payload": "Yg=="}'
    )
    with pytest.raises(ValueError, match="each index once, without gaps"):
        convert(spark, str(lines), str(tmp_path / "log"), source_kind="jsonl")
    assert not list(tmp_path.glob("log*"))


def test_damage_is_not_converted(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    rot(path, SEGMENTS[1], 3)
    for kind in ("log", "parquet"):
        with pytest.raises(CorruptError, match="entry 14: checksum mismatch"):
            convert(spark, str(path), str(tmp_path / "no"), target_kind=kind)
    (path / SEGMENTS[1]).unlink()
    with pytest.raises(CorruptError, match=r"entries 11\.\.20"):
        convert(spark, str(path), str(tmp_path / "no"))
    for file in path.glob("*.wal"):
        file.write_bytes(b"no segment" * 500)
    with pytest.raises(CorruptError, match="invalid segment header"):
        convert(spark, str(path), str(tmp_path / "no"), target_kind="parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no Parquet files"):
        convert(spark, str(tmp_path / "empty"), str(tmp_path / "no"), source_kind="parquet")
    assert not list(tmp_path.glob("no*"))


def test_an_empty_log_stays_empty(spark: SparkSession, tmp_path: Path) -> None:
    ShanghaiLog(OsDisk(tmp_path / "log"), first_index=7).close()
    assert convert(spark, str(tmp_path / "log"), str(tmp_path / "copy")).first_index == 7
    assert ShanghaiReader(OsDisk(tmp_path / "copy")).first_index == 7
    convert(spark, str(tmp_path / "log"), str(tmp_path / "parquet"), target_kind="parquet")
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 0


def test_unsupported_conversions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="convert into a new directory"):
        convert(spark, str(tmp_path), str(tmp_path))
    with pytest.raises(ValueError, match="source or target must be a log"):
        convert(spark, "a", "b", source_kind="parquet", target_kind="jsonl")
