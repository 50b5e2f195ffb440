"""The data source `holdfast-kv`: every kv store a DataFrame and a stream.  docs/spark.md

    spark.read.format("holdfast-kv").load("s3://bucket/kv")
    frame.write.format("holdfast-kv").mode("append").save("s3://bucket/kv")

Columns: `key` BINARY, `value` BINARY, `sequence` BIGINT, and of a stream of changes `deleted`
BOOLEAN.  A writer needs `key` and `value`, and takes `deleted`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.kv_options import COLUMNS, STREAM_COLUMNS, parse_options
from holdfast.spark.kv_reader import KvReader, kv_schema
from holdfast.spark.kv_sink import KvStreamWriter, KvWriter
from holdfast.spark.kv_stream import KvStreamReader


class KvSource(DataSource):
    """`holdfast-kv`.

    Options of all
      cas                   where the records of two-phase writes are, for object stores without
                            create-if-absent
      bucket.*              for the object store's client: bucket.endpoint, bucket.region, ...

    Options of read
      prefix                only keys that begin so
      startKey, endKey      only keys from this one on, and below that one
      keyEncoding           of these three: utf-8 (default) or hex
      columns               only these, separated by commas; Spark itself cannot leave out any
      maxPartitionBytes     what one task reads, about (default: 128 MiB at most)
      manifestId            the state of this manifest, which must be active
      snapshotId            the state of this snapshot
      snapshotTtlSeconds    how long the read's own snapshot lives (default 3600)
      pin                   false: write no snapshot; the read fails if its SSTs are deleted

    Options of readStream, which shows changes
      startingWalId         where a new query begins: earliest, latest or a number; it is needed
      maxFilesPerTrigger    most SSTs of the WAL in one micro-batch
      failOnDataLoss        fail when the WAL was deleted before it was read: true (default)
      snapshotTtlSeconds    how long the WAL is kept while the query is stopped (default 86400)
      columns               as above

    Options of write and writeStream
      duplicates            of a key that comes twice the last row counts: last (default); or error
      sort                  none: partitions are ranges of keys, and sorted; task (default): they
                            are not (write only)
      runBytes              what a task sorts at once (default 256 MiB)
      compression           of the SSTs: none (default) or zstd
      txnAppId, txnVersion  a batch job that is to be loaded once: a version that is not higher
                            than the last one of its application changes nothing
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "holdfast-kv"

    def schema(self) -> StructType:
        """Spark asks before it says what for, but only a stream has a place to start."""
        if self._parsed.first_wal_id is not None:
            return kv_schema(self._parsed.columns or STREAM_COLUMNS, changes=True)
        return kv_schema(self._parsed.columns or COLUMNS)

    def reader(self, schema: StructType) -> KvReader:
        self._refuse_other(schema)
        return KvReader(self._parsed.only_for("read"))

    def streamReader(self, schema: StructType) -> KvStreamReader:  # noqa: N802 - Spark's name
        options = self._parsed.only_for("readStream")
        self._refuse_other(schema)
        return KvStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> KvWriter:
        if overwrite:
            raise ValueError("use mode append: a row replaces the one of its key, and no other")
        return KvWriter(self._parsed.only_for("write"), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> KvStreamWriter:
        if overwrite:
            raise ValueError("use outputMode append: no row replaces another's key")
        return KvStreamWriter(self._parsed.only_for("writeStream"), schema)

    def _refuse_other(self, schema: StructType) -> None:
        if schema != self.schema():
            ours = self.schema().simpleString()
            raise ValueError(f"remove .schema(...): it is {ours}; choose with columns")
