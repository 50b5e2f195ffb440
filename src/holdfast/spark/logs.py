"""The data source `holdfast-log`: every log a DataFrame and a stream.  The page: docs/spark.md

    spark.read.format("holdfast-log").load("/the/directory")
    frame.write.format("holdfast-log").mode("append").save("/the/directory")

Columns: `index` BIGINT, `payload` BINARY, `segment` STRING (the file), `offset` BIGINT (the entry's
first byte in it), and with mode PERMISSIVE `_corrupt_record` STRING.  A reader is a guest: it may
run beside a live writer, and never writes, locks or cleans.  A writer needs the column `payload`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.log_options import parse_options
from holdfast.spark.log_reader import LogReader, log_schema
from holdfast.spark.log_sink import LogStreamWriter, LogWriter
from holdfast.spark.log_stream import LogStreamReader


class LogSource(DataSource):
    """`holdfast-log`.

    Options of read and readStream
      startingIndex         first entry to read: earliest (default) or a number; in streams latest
      endingIndex           last entry to read, itself included (not for streams)
      columns               only these, separated by commas; Spark itself cannot leave out any
      verify                check every checksum: true (default) or false
      mode                  at damage FAILFAST (default), or skip it: DROPMALFORMED, or make a row
                            with a `_corrupt_record` of it: PERMISSIVE
      maxEntriesPerTrigger  most entries in one micro-batch
      failOnDataLoss        fail when compaction removed what was not yet read: true (default)

    Options of write and writeStream
      format                of a log that is not there yet (default shanghai)
      segmentSizeMax        bytes at which the log begins a new segment (default 64 MiB)
      orderBy               the column that gives the order of the entries; it is not stored
      txnAppId, txnVersion  a batch job that is to be appended once: a version that is not higher
                            than the last one of its application appends nothing
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "holdfast-log"

    def schema(self) -> StructType:
        return log_schema(self._parsed)

    def reader(self, schema: StructType) -> LogReader:
        self._refuse_other(schema)
        return LogReader(self._parsed.only_for("read"))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        self._refuse_other(schema)
        return LogStreamReader(self._parsed.only_for("readStream"))

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        if overwrite:
            raise ValueError("use mode append: a log is appended to, never overwritten")
        return LogWriter(self._parsed.only_for("write"), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> LogStreamWriter:
        if overwrite:
            raise ValueError("use outputMode append: a log is appended to, never overwritten")
        return LogStreamWriter(self._parsed.only_for("writeStream"), schema)

    def _refuse_other(self, schema: StructType) -> None:
        if schema != self.schema():
            ours = self.schema().simpleString()
            raise ValueError(f"remove .schema(...): a log's is {ours}; choose with columns")
