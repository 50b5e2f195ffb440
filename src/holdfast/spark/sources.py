"""The common part of the data sources, and their registration in a session."""

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.options import Options
from holdfast.spark.sinks import BatchWriter, StreamWriter, Target

Parsed = TypeVar("Parsed", bound=Options)


class StoreSource(DataSource, Generic[Parsed]):
    """A store as a data source.  Options are checked when it is created."""

    kind: ClassVar[type[Options]]

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed: Parsed = self.kind.parse(options)  # type: ignore[assignment]

    @classmethod
    def name(cls) -> str:
        return cls.kind.source

    @abstractmethod
    def target(self, options: Parsed, schema: StructType) -> Target:
        """Return the store to write to.  ValueError if it cannot take these columns."""

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ValueError(f"use mode append: {self.name()} cannot replace a store")
        options = self._parsed.only_for("write")
        return BatchWriter(self.target(options, schema), options)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter:
        if overwrite:
            raise ValueError(f"use outputMode append: {self.name()} cannot replace a store")
        options = self._parsed.only_for("writeStream")
        return StreamWriter(self.target(options, schema), options)

    def _refuse_other(self, schema: StructType) -> None:
        if schema != (own := self.schema()):
            shown = own if isinstance(own, str) else own.simpleString()
            raise ValueError(f"remove .schema(...): it is {shown}; choose with the option columns")


def register(spark: SparkSession) -> None:
    """Register `holdfast-log`, `holdfast-kv` and `holdfast-bars` in a session."""
    from holdfast.spark.bars import BarSource
    from holdfast.spark.kv import KvSource
    from holdfast.spark.logs import LogSource

    for source in (LogSource, KvSource, BarSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # In a second session of a JVM, Spark may have found them by itself.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
