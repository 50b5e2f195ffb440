"""The run whose classes are saved: `python -m holdfast.spark.training JAVA OUTPUT`.

It does once what sessions do first: a DataFrame and a shuffle, `mapInArrow`, Parquet, a scan and a
stream of a log.  Java writes OUTPUT when it exits, which takes longer than the run.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from holdfast.doors import create_log
from holdfast.spark import jvm
from holdfast.spark.classcache import training_flags
from holdfast.spark.java import ask
from holdfast.spark.sessions import default_settings
from holdfast.spark.sources import register


def exercise(spark: SparkSession, scratch: Path) -> None:
    """Load the classes that most sessions need."""
    numbers = spark.range(100).withColumn("key", F.col("id") % 3)
    numbers.groupBy("key").count().orderBy("key").collect()
    numbers.mapInArrow(lambda batches: batches, "id long, key long").count()
    numbers.write.mode("overwrite").parquet(str(scratch / "numbers"))
    spark.read.parquet(str(scratch / "numbers")).count()
    register(spark)
    log = str(scratch / "log")
    with create_log(log) as owner:
        owner.append([b"entry"])
    spark.read.format("holdfast-log").load(log).count()
    stream = spark.readStream.format("holdfast-log").load(log).writeStream.format("noop")
    stream = stream.option("checkpointLocation", str(scratch / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()


def main(java_path: str, output: str) -> None:
    """Train, then wait until Java has written the file."""
    java = ask(Path(java_path), "training")
    started = jvm.start(java, default_settings("local[2]"), training_flags(java, Path(output)))
    spark = SparkSession.builder.getOrCreate()
    exercise(spark, started.scratch)
    spark.stop()
    started.close(seconds_max=600)


if __name__ == "__main__":
    main(*sys.argv[1:])
