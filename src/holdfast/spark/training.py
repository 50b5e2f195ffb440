"""The run whose classes are saved: `python -m holdfast.spark.training JAVA OUTPUT`.

It does once what our sessions do first: a DataFrame and a shuffle, a scan of a Python data source,
`mapInArrow`, a streaming query.  Java writes OUTPUT as it exits, which takes longer than the run.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from holdfast.spark import jvm
from holdfast.spark.classcache import training_flags
from holdfast.spark.java import ask
from holdfast.spark.sessions import default_settings


class _Numbers(DataSource):
    """One row, in a batch and as a stream."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-training"

    def schema(self) -> str:
        return "number long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return _StreamReader()


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield _batch()


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"stop": 0}

    def latestOffset(self, *limits: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"stop": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield _batch()


def _batch() -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array([1], pa.int64())})


def exercise(spark: SparkSession, scratch: Path) -> None:
    """Load the classes of everything our sessions do first."""
    numbers = spark.range(100).withColumn("key", F.col("id") % 3)
    numbers.groupBy("key").count().orderBy("key").collect()
    numbers.mapInArrow(lambda batches: batches, "id long, key long").count()
    numbers.write.mode("overwrite").parquet(str(scratch / "numbers"))
    spark.read.parquet(str(scratch / "numbers")).count()
    spark.dataSource.register(_Numbers)
    source = _Numbers.name()
    spark.read.format(source).load().count()
    query = (
        spark.readStream.format(source)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(java_path: str, output: str) -> None:
    """Train, then wait for as long as Java takes to write the file."""
    java = ask(Path(java_path), "training")
    started = jvm.start(java, default_settings("local[2]"), training_flags(java, Path(output)))
    spark = SparkSession.builder.getOrCreate()
    exercise(spark, started.scratch)
    spark.stop()
    started.close(seconds_max=600)


if __name__ == "__main__":
    main(*sys.argv[1:])
