"""The data source `holdfast-bars`: read and write bar stores.  The page: docs/spark.md

    bars = spark.read.format("holdfast-bars").option("timeframe", "1Min")
    bars.option("attributes", "OHLCV").load("/the/root")

Columns: `symbol` STRING, `epoch_ns` BIGINT and those of the bucket; and on request `time` TIMESTAMP
and `timeframe` STRING.  A reader may run beside an owner; it takes no lock and changes nothing.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.spark.bar_columns import EPOCH_NS, refuse_other, unpacked
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.bar_reader import BarFrameReader, infer_schema
from holdfast.spark.bar_sink import BarTarget
from holdfast.spark.sources import StoreSource


class BarSource(StoreSource[BarOptions]):
    """`holdfast-bars`.

    Options of all
      timeframe, attributes  of SYMBOL/TIMEFRAME/ATTRIBUTES; required

    Options of read
      symbols               only these, separated by commas
      years                 the years to read, such as 2019,2021-2023
      startingTime          the first time: 2021-03-01T09:30, UTC, or nanoseconds since 1970; the
                            time of a bar is the start of its interval
      endingTime            the time to stop before
      columns               only these, separated by commas
      packed                true: a row holds up to 4096 bars of a symbol, each column as an array
                            (default false); see holdfast.spark.bars_frame
      maxPartitionBytes     bytes that one task reads, about (default 64 MiB)

    Options of write and writeStream
      symbol                of all rows, if there is no column `symbol`
      ticks                 true: an interval holds many rows (default false)
      txnAppId, txnVersion  name and number of a batch job that is written once: a number that is
                            not higher than the last one of this name writes nothing
    """

    kind = BarOptions

    def schema(self) -> StructType:
        return infer_schema(self._parsed.only_for("read"))

    def reader(self, schema: StructType) -> BarFrameReader:
        options = self._parsed.only_for("read")
        if options.columns not in (None, tuple(schema.fieldNames())):
            raise ValueError(
                "choose columns with .schema(...) or the option columns, not with both"
            )
        refuse_other(schema, infer_schema(options.choosing(schema.fieldNames())))
        return BarFrameReader(options, schema)

    def target(self, options: BarOptions, schema: StructType) -> BarTarget:
        return BarTarget(options, schema)


def bars_frame(
    spark: SparkSession,
    path: str,
    timeframe: str,
    attributes: str,
    *,
    columns: Sequence[str] | None = None,
    **options: str,
) -> DataFrame:
    """Return the same rows as the data source, faster: read packed, and unpacked by Spark.

    `options` are those of read, such as symbols="AAPL,MSFT" and startingTime="2021-03-01".
    """
    reader = spark.read.format(BarSource.name()).options(**options, packed="true")
    reader = reader.option("timeframe", timeframe).option("attributes", attributes)
    if columns is not None:
        wanted = dict.fromkeys([*columns, EPOCH_NS])  # `unpacked` needs it
        reader = reader.option("columns", ",".join(wanted))
    packed = reader.load(path)
    return unpacked(packed, packed.columns if columns is None else columns)
