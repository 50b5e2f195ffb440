"""Our data sources, made known to a session."""

from pyspark.sql import SparkSession

from holdfast.spark.kv import KvSource
from holdfast.spark.logs import LogSource


def register(spark: SparkSession) -> None:
    """Make `holdfast-log` and `holdfast-kv` known.  Holdfast's own sessions know them already."""
    for source in (LogSource, KvSource):
        spark.dataSource.register(source)
