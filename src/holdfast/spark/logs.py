"""The data source `holdfast-log`: read and write logs, also as streams.  The page: docs/spark.md

    spark.read.format("holdfast-log").load("/the/directory")
    frame.write.format("holdfast-log").mode("append").save("/the/directory")

Columns: `index` BIGINT, `payload` BINARY, `segment` STRING (the file), `offset` BIGINT (the entry's
first byte in it), and with mode PERMISSIVE `_corrupt_record` STRING.  A reader may run beside an
owner; it takes no lock and changes nothing.  A writer needs the column `payload`.
"""

from pyspark.sql.types import StructType

from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import LogFrameReader, log_schema
from holdfast.spark.log_sink import LogTarget
from holdfast.spark.log_stream import LogStreamReader
from holdfast.spark.sources import StoreSource


class LogSource(StoreSource[LogOptions]):
    """`holdfast-log`.

    Options of read and readStream
      startingIndex         first entry: earliest (default) or a number; in streams also latest
      endingIndex           the entry to stop before (not for streams)
      columns               only these, separated by commas
      verify                check every checksum: true (default) or false
      mode                  at damage: FAILFAST (default), DROPMALFORMED (skip it) or PERMISSIVE
                            (return a row with `_corrupt_record`)
      maxEntriesPerTrigger  the largest number of entries in one micro-batch
      failOnDataLoss        fail if entries were deleted before they were read: true (default)

    Options of write and writeStream
      format                of a log that is created
      maxSegmentBytes       size at which a segment is sealed
      orderBy               the column that gives the order of the entries; it is not stored
      txnAppId, txnVersion  name and number of a batch job that is written once: a number that is
                            not higher than the last one of this name writes nothing
    """

    kind = LogOptions

    def schema(self) -> StructType:
        return log_schema(self._parsed)

    def reader(self, schema: StructType) -> LogFrameReader:
        self._refuse_other(schema)
        return LogFrameReader(self._parsed.only_for("read"))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        self._refuse_other(schema)
        return LogStreamReader(self._parsed.only_for("readStream"))

    def target(self, options: LogOptions, schema: StructType) -> LogTarget:
        return LogTarget(options, schema)
