"""zmq-raft's logs as DataFrames: found by their bytes, an index file to a task."""

from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.samples import tree

from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileLog
from holdfast.spark.jobs import scrub


def test_a_file_log_is_a_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    with FileLog(OsDisk(tmp_path / "raft"), capacity=16) as log:
        log.append([b"%d" % number for number in range(1, 41)])
        log.create_snapshot(20, b"the first twenty")
    before = tree(tmp_path)
    frame = spark.read.format("holdfast-log").load(str(tmp_path / "raft"))
    rows = frame.orderBy("index").collect()
    assert [(row["index"], bytes(row.payload)) for row in rows] == [
        (number, b"%d" % number) for number in range(21, 41)
    ]
    assert {row.segment for row in rows} == {
        f"log/00000/00/00/{index:014x}.rlog" for index in (16, 32)
    }
    report = scrub(spark, [str(tmp_path / "raft")])
    assert (report.verdict, report.entries) == ("clean", 20)
    assert tree(tmp_path) == before, "a guest changes nothing"
    frame.select("payload").write.format("holdfast-log").mode("append").save(str(tmp_path / "raft"))
    with FileLog(OsDisk(tmp_path / "raft")) as log:
        assert (log.last_index, log.read(60)) == (60, b"40")
