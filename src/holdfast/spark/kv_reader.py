"""Batch reads of kv stores: a snapshot, cut by keys on the driver, merged in the workers.

1. All tasks read one state: that of the frame's first use, of a manifest or of a snapshot.
2. The driver keeps that state with a snapshot of its own, which expires.  A task that begins when
   half of its time is over prolongs it, so a frame lives for as long as it is used.  Spark tells a
   source nothing of the end of a read: who wants the snapshot to end with it uses `pinned`.
3. Keys that were not asked for cost nothing but the index of an SST at the edge of the range.

Rows travel as Arrow batches from the vectorised merge; no Python runs per row.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, LongType, StructField, StructType

from holdfast.bucket import Bucket
from holdfast.errors import HoldfastError
from holdfast.formats.sst import Rows
from holdfast.kv import scans
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.scans import ScanTask, State, plan_scan, scan_task
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.runtime import Runtime
from holdfast.spark.kv_options import COLUMNS, Address, KvOptions, address_of
from holdfast.spark.workers import freeze_imports

TTL_S = 3600
_FIELDS = {
    "key": StructField("key", BinaryType(), False),
    "value": StructField("value", BinaryType(), False),
    "sequence": StructField("sequence", LongType(), False),
    "deleted": StructField("deleted", BooleanType(), False),
}


@dataclass(frozen=True)
class Pin:
    """A snapshot of ours that tasks prolong."""

    id: UUID
    expires_s: int
    ttl_s: int


@dataclass(frozen=True)
class KvPartition(InputPartition):
    """What one task reads."""

    task: ScanTask
    pin: Pin | None


def kv_schema(columns: Sequence[str], *, changes: bool = False) -> StructType:
    """The columns in their order; of changes, a value may be null."""
    fields = [_FIELDS[name] for name in columns]
    if changes:
        fields = [StructField(f.name, f.dataType, f.name == "value") for f in fields]
    return StructType(fields)


class KvReader(DataSourceReader):
    """Reads one state of one store."""

    def __init__(self, options: KvOptions) -> None:
        self._options = options
        self._columns = options.columns or COLUMNS

    def partitions(self) -> Sequence[KvPartition]:
        options, runtime = self._options, Runtime()
        bucket = options.address.open() if options.pin else options.address.open_to_read()
        state, pin = _choose(bucket, options, runtime)
        tasks = plan_scan(
            bucket,
            state,
            runtime,
            start=options.start,
            stop=options.stop,
            task_size=options.partition_bytes or scans.TASK_SIZE,
            parallel=1 if options.partition_bytes else os.cpu_count() or 1,
        )
        return [KvPartition(task, pin) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        if not isinstance(partition, KvPartition):  # Spark's own, when nothing had to be read
            return
        runtime, address = Runtime(), self._options.address
        if partition.pin is not None:
            _prolong(address, partition.pin, runtime)
        schema = to_arrow_schema(kv_schema(self._columns), timezone="UTC")
        try:
            for rows in scan_task(address.open_to_read(), partition.task, runtime):
                yield shaped(rows, self._columns, schema)
        except FileNotFoundError as error:
            raise HoldfastError(
                "the snapshot of this read expired, and what it kept was deleted: load again, "
                f"with a larger snapshotTtlSeconds ({error})"
            ) from error


def shaped(rows: Rows, columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Exactly the schema that Spark was told."""
    arrays = {
        "key": lambda: rows.keys,
        "value": lambda: rows.values,
        "sequence": lambda: rows.seqs.view(pa.int64()),
        "deleted": lambda: rows.values.is_null(),
    }
    return pa.RecordBatch.from_arrays([arrays[name]() for name in columns], schema=schema)


@contextmanager
def pinned(
    spark: SparkSession,
    url: str,
    *,
    cas: str | None = None,
    ttl_s: int = 24 * TTL_S,
    **options: str | int,
) -> Iterator[DataFrame]:
    """The newest state of a store as a frame, with a snapshot that ends with the block."""
    address, runtime = address_of(url, cas, _client(options)), Runtime()
    bucket = address.open()
    snapshot = scans.pinned(bucket, runtime, ttl_s)
    try:
        reader = spark.read.format("holdfast-kv").option("snapshotId", str(snapshot.id))
        if cas is not None:
            reader = reader.option("cas", cas)
        yield reader.options(**options).load(url)
    finally:
        Snapshots(ManifestStore(bucket, runtime), runtime).drop(snapshot.id)


def _client(options: dict[str, str | int]) -> dict[str, str]:
    return {
        name.removeprefix("bucket."): str(value)
        for name, value in options.items()
        if name.startswith("bucket.")
    }


def _choose(bucket: Bucket, options: KvOptions, runtime: Runtime) -> tuple[State, Pin | None]:
    """The state to read, and what keeps it."""
    store, ttl_s = ManifestStore(bucket, runtime), options.ttl_s or TTL_S
    if store.latest() is None:
        raise HoldfastError(f"{options.address.url} holds no kv store: name another place")
    snapshots, manifest_id = Snapshots(store, runtime), options.manifest_id
    if options.snapshot_id is not None:
        manifest_id = _find(snapshots, options.snapshot_id).manifest_id
    elif options.pin:
        if manifest_id is not None:
            made = snapshots.create(ttl_s, manifest_id=manifest_id)
        else:
            made = scans.pinned(bucket, runtime, ttl_s)
        kept = scans.state_of(bucket, store.get(made.manifest_id))
        return kept, Pin(made.id, made.expires_s, ttl_s)
    if manifest_id is None:
        return scans.newest(bucket, runtime), None
    return scans.state_of(bucket, store.get(manifest_id)), None


def _find(snapshots: Snapshots, id: UUID) -> Snapshot:
    for snapshot in snapshots.list():
        if snapshot.id == id:
            return snapshot
    raise HoldfastError(f"set snapshotId to one that is there: {id} has expired or was dropped")


def _prolong(address: Address, pin: Pin, runtime: Runtime) -> None:
    """Let a snapshot that half its time is over live on, unless another task was first."""
    left_s = pin.expires_s - runtime.now_ms() / 1000
    if left_s > pin.ttl_s / 2:
        return
    bucket = address.open_proved()
    snapshots = Snapshots(ManifestStore(bucket, runtime), runtime)
    found = _find(snapshots, pin.id)
    if found.expires_s - runtime.now_ms() / 1000 <= pin.ttl_s / 2:
        snapshots.extend(pin.id, pin.ttl_s)
