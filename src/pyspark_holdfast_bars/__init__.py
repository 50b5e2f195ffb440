"""Found by Spark, which looks into packages of such names: `format("holdfast-bars")` just works."""

from holdfast.spark.bars import BarSource as DefaultSource

__all__ = ["DefaultSource"]
