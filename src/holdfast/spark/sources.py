"""Our data sources, made known to a session."""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from holdfast.spark.bars import BarSource
from holdfast.spark.kv import KvSource
from holdfast.spark.logs import LogSource


def register(spark: SparkSession) -> None:
    """Make `holdfast-log`, `holdfast-kv` and `holdfast-bars` known, as our own sessions have it."""
    for source in (LogSource, KvSource, BarSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # A second session of a JVM, where Spark has found them in our wheel by itself.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
