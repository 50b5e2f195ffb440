"""Import files of other systems into a new log, in the order of their column `index`.

Spark sorts; the log's sink appends all or nothing.
"""

from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from holdfast.doors import create_log

FileKind = Literal["parquet", "jsonl"]


def import_rows(
    spark: SparkSession,
    source: str,
    kind: FileKind,
    target: str,
    segment_size_max: int,
    *,
    text: bool,
) -> tuple[int, int]:
    """Create a log from the rows in `source`; return its first and last index.

    ValueError if an index occurs twice or is missing: entries would get other indexes.
    """
    rows = _read(spark, source, kind, text=text)
    index = F.col("index")
    found = rows.agg(F.count("*"), F.count_distinct(index), F.min(index), F.max(index)).collect()[0]
    count, distinct, first, last = tuple(found)
    if not count:
        first, last = 1, 0
    elif not count == distinct == last + 1 - first or first < 1:
        raise ValueError(
            f"{source} has {count} rows with {distinct} different indexes from {first} to {last}: "
            "a log needs each index once, without gaps, from 1 or more on"
        )
    create_log(target, first_index=first).close()
    if count:
        ordered = rows.orderBy("index").select("payload")
        sink = ordered.write.format("holdfast-log").option("maxSegmentBytes", segment_size_max)
        sink.mode("append").save(target)
    return first, last


def _read(spark: SparkSession, source: str, kind: FileKind, *, text: bool) -> DataFrame:
    where = Path(source).as_uri()
    if kind == "parquet":
        try:
            rows = spark.read.parquet(where)
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                raise
            raise ValueError(f"{source} holds no Parquet files: name another place") from error
        missing = {"index", "payload"} - set(rows.columns)
        if missing:
            raise ValueError(f"{source} needs the columns index and payload: it has {rows.columns}")
        return rows.select(F.col("index").cast("long"), F.col("payload").cast("binary"))
    lines = spark.read.schema("index LONG, payload STRING").option("mode", "FAILFAST").json(where)
    payload = F.col("payload")
    shown = payload.cast("binary") if text else F.to_binary(payload, F.lit("base64"))
    return lines.select("index", shown.alias("payload"))
