"""The data source `holdfast-bars`: every bar store a DataFrame.  The page: docs/spark.md

    bars = spark.read.format("holdfast-bars").option("timeframe", "1Min")
    bars.option("attributes", "OHLCV").load("/the/root")

Columns: `symbol` STRING, `epoch_ns` BIGINT and those of the bucket; and on request `time` TIMESTAMP
and `timeframe` STRING.  A reader is a guest: it may run beside a live owner, and never writes,
locks or cleans.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.bar_columns import EPOCH_NS, refuse_other, unpacked
from holdfast.spark.bar_options import parse_options
from holdfast.spark.bar_reader import BarReading, infer_schema
from holdfast.spark.bar_sink import BarStreamWriter, BarWriter


class BarSource(DataSource):
    """`holdfast-bars`.

    Options of all
      timeframe, attributes  of SYMBOL/TIMEFRAME/ATTRIBUTES; needed

    Options of read
      symbols               only these, separated by commas
      years                 only these, such as 2019,2021-2023
      start, end            only rows from then to then, both included: 2021-03-01T09:30, UTC, or
                            nanoseconds since 1970; a bar counts if any of its interval does
      columns               only these, separated by commas; Spark itself cannot leave out any
      packed                true: a row holds some thousand bars of a symbol, each of its columns an
                            array of as many values (default false); see holdfast.spark.read_bars
      maxPartitionBytes     what one task reads, about (default 64 MiB)

    Options of write and writeStream
      symbol                of all rows, if there is no column `symbol`
      ticks                 true: an interval holds many rows (default false)
      txnAppId, txnVersion  a batch job that is to be written once: a version that is not higher
                            than the last one of its application writes nothing
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "holdfast-bars"

    def schema(self) -> StructType:
        return infer_schema(self._parsed.only_for("read"))

    def reader(self, schema: StructType) -> BarReading:
        options = self._parsed.only_for("read")
        if options.columns not in (None, tuple(schema.fieldNames())):
            raise ValueError(
                "choose columns with .schema(...) or the option columns, not with both"
            )
        refuse_other(schema, infer_schema(options.choosing(schema.fieldNames())))
        return BarReading(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BarWriter:
        if overwrite:
            raise ValueError("use mode append: a bar replaces the one of its interval, no other")
        return BarWriter(self._parsed.only_for("write"), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> BarStreamWriter:
        if overwrite:
            raise ValueError("use outputMode append: no bar replaces another interval's")
        return BarStreamWriter(self._parsed.only_for("writeStream"), schema)


def read_bars(
    spark: SparkSession,
    path: str,
    timeframe: str,
    attributes: str,
    *,
    columns: Sequence[str] | None = None,
    **options: str,
) -> DataFrame:
    """The same rows as the format's, faster: they are read packed, and unpacked by Spark itself.

    `options` are those of read, such as symbols="AAPL,MSFT" and start="2021-03-01".
    """
    reader = spark.read.format(BarSource.name()).options(**options, packed="true")
    reader = reader.option("timeframe", timeframe).option("attributes", attributes)
    if columns is not None:
        wanted = dict.fromkeys([*columns, EPOCH_NS])  # by which the rows are told apart
        reader = reader.option("columns", ",".join(wanted))
    packed = reader.load(path)
    return unpacked(packed, packed.columns if columns is None else columns)
