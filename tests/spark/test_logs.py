from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertSchemaEqual
from tests.spark.samples import SEGMENTS, make_log, payload, tree

_COLUMNS = (
    "index BIGINT NOT NULL",
    "payload BINARY NOT NULL",
    "segment STRING NOT NULL",
    "offset BIGINT NOT NULL",
)


def load(spark: SparkSession, path: Path | str, **options: str | float) -> DataFrame:
    return spark.read.format("holdfast-log").options(**options).load(str(path))


def test_a_log_is_a_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    before = tree(path)
    frame = load(spark, path)
    rows = frame.orderBy("index").collect()
    assert [(row["index"], bytes(row.payload)) for row in rows] == [
        (index, payload(index)) for index in range(1, 41)
    ]
    assert {(row.segment, row.offset) for row in rows} == {
        (segment, 64 + 13 * entry) for segment in SEGMENTS for entry in range(10)
    }
    assert tree(path) == before, "a guest changes nothing"


def test_the_schema_is_known_without_reading_the_log(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    assert load(spark, path).schema.toDDL() == ",".join(_COLUMNS)
    permissive = load(spark, path, mode="permissive").schema
    nullable = [column.removesuffix(" NOT NULL") for column in _COLUMNS[:2]]
    wanted = [*nullable, *_COLUMNS[2:], "_corrupt_record STRING"]
    assert permissive.toDDL() == ",".join(wanted)
    assertSchemaEqual(load(spark, path, columns="offset, index").schema,
                      load(spark, path).select("offset", "index").schema)  # fmt: skip


def test_chosen_columns_come_in_the_chosen_order(spark: SparkSession, tmp_path: Path) -> None:
    frame = load(spark, make_log(tmp_path / "log"), columns="segment,index", endingIndex=2)
    assert [tuple(row) for row in frame.collect()] == [(SEGMENTS[0], 1)]


def test_options_are_refused_with_advice(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    with pytest.raises(AnalysisException, match="remove the option 'startindex'"):
        load(spark, path, startIndex=3).collect()
    with pytest.raises(AnalysisException, match="remove the option failOnDataLoss"):
        load(spark, path, failOnDataLoss=True).collect()
    with pytest.raises(AnalysisException, match="choose with the option columns"):
        spark.read.schema("payload BINARY").format("holdfast-log").load(str(path)).collect()
    with pytest.raises(AnalysisException, match="name the log's directory"):
        spark.read.format("holdfast-log").load().collect()
    with pytest.raises(AnalysisException, match="does not exist"):
        load(spark, tmp_path / "nowhere").collect()


def test_sql_can_read_a_log(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW entries USING `holdfast-log` OPTIONS (path '{path}')"
    )
    found = spark.sql("SELECT segment, count(*) AS n FROM entries GROUP BY segment").collect()
    assert {row.segment: row.n for row in found} == dict.fromkeys(SEGMENTS, 10)


def test_spark_finds_the_source_by_its_package(spark: SparkSession, tmp_path: Path) -> None:
    path = make_log(tmp_path / "log")
    unregistered = spark.newSession()
    assert load(unregistered, path).count() == 40
