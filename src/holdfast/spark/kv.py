"""The data source `holdfast-kv`: read and write kv stores, also as streams.  docs/spark.md

    spark.read.format("holdfast-kv").load("s3://bucket/kv")
    frame.write.format("holdfast-kv").mode("append").save("s3://bucket/kv")

Columns: `key` BINARY, `value` BINARY, `sequence` BIGINT, and of a stream of changes `deleted`
BOOLEAN.  A writer needs `key` and `value`, and takes `deleted`.
"""

from pyspark.sql.types import StructType

from holdfast.spark.kv_options import COLUMNS, STREAM_COLUMNS, KvOptions
from holdfast.spark.kv_reader import KvFrameReader, kv_schema
from holdfast.spark.kv_sink import KvTarget
from holdfast.spark.kv_stream import KvStreamReader
from holdfast.spark.sources import StoreSource


class KvSource(StoreSource[KvOptions]):
    """`holdfast-kv`.

    Options of all
      cas                   where the records of two-phase writes are, for object stores without
                            create-if-absent
      bucket.*              for the object store's client: bucket.endpoint, bucket.region, ...

    Options of read
      prefix                only keys with this prefix
      startingKey           the first key to read
      endingKey             the key to stop before
      keyEncoding           of these three: utf-8 (default) or hex
      columns               only these, separated by commas
      maxPartitionBytes     bytes that one task reads, about (default: 128 MiB at most)
      manifestId            the state of this manifest, which must be active
      snapshotId            the state of this snapshot
      snapshotTtlMs         milliseconds that the read's snapshot lives (default one hour)
      pin                   false: write no snapshot; the read fails if its SSTs are deleted

    Options of readStream, which shows changes
      startingWalId         the first SST of a new query: earliest, latest or a number; required
      maxFilesPerTrigger    the largest number of SSTs of the WAL in one micro-batch
      failOnDataLoss        fail if SSTs of the WAL were deleted before they were read: true
                            (default)
      snapshotTtlMs         milliseconds that the WAL is kept while the query is stopped
                            (default one day)
      columns               as above

    Options of write and writeStream
      duplicates            last (default): keep the last row of a key; error: fail
      sort                  task (default): tasks sort their rows; none: partitions are sorted
                            ranges of keys already (write only)
      maxRunBytes           bytes that a task sorts at a time (default 256 MiB)
      compression           of the SSTs: none (default) or zstd
      txnAppId, txnVersion  name and number of a batch job that is written once: a number that is
                            not higher than the last one of this name writes nothing
    """

    kind = KvOptions

    def schema(self) -> StructType:
        """Return the schema.  Spark does not pass the use here, but only streams have
        `startingWalId`.
        """
        if self._parsed.starting_wal_id is not None:
            return kv_schema(self._parsed.columns or STREAM_COLUMNS, changes=True)
        return kv_schema(self._parsed.columns or COLUMNS)

    def reader(self, schema: StructType) -> KvFrameReader:
        self._refuse_other(schema)
        return KvFrameReader(self._parsed.only_for("read"))

    def streamReader(self, schema: StructType) -> KvStreamReader:  # noqa: N802 - Spark's name
        options = self._parsed.only_for("readStream")
        self._refuse_other(schema)
        return KvStreamReader(options)

    def target(self, options: KvOptions, schema: StructType) -> KvTarget:
        return KvTarget(options, schema)
