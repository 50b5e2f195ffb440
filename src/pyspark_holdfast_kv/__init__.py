"""Found by Spark, which looks into packages of such names: `format("holdfast-kv")` just works."""

from holdfast.spark.kv import KvSource as DefaultSource

__all__ = ["DefaultSource"]
