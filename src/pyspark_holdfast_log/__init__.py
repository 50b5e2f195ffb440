"""Found by Spark, which looks into packages of such names: `format("holdfast-log")` just works."""

from holdfast.spark.logs import LogSource as DefaultSource

__all__ = ["DefaultSource"]
