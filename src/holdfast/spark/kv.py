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
      maxPartitionBytes     what one task reads, about (default 32 MiB)
      manifestId            the state of this manifest, which must be active
      snapshotId            the state of this snapshot
      snapshotTtlSeconds    how long the read's own snapshot lives (default 3600)
      pin                   false: write no snapshot; the read fails if its SSTs are deleted
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "holdfast-kv"

    def schema(self) -> StructType:
        """Spark asks before it says whether it reads a state or a stream; see `streamReader`."""
        return kv_schema(self._parsed.columns or COLUMNS)

    def reader(self, schema: StructType) -> KvReader:
        return KvReader(self._parsed.only_for("read"))
