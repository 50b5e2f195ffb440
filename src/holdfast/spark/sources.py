"""Our data sources, made known to a session."""

from pyspark.sql import SparkSession

from holdfast.spark.bars import BarSource
from holdfast.spark.logs import LogSource


def register(spark: SparkSession) -> None:
    """Make `holdfast-log` and `holdfast-bars` known.  Our own sessions know them already."""
    for source in (LogSource, BarSource):
        spark.dataSource.register(source)
