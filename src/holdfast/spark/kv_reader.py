"""Batch reads of kv stores: one state, cut into key ranges on the driver, merged in the workers.

1. All tasks read one state: that of the frame's first use, of a manifest or of a snapshot.
2. The driver keeps that state with a snapshot, which expires.  A task that begins after half of its
   time extends it, so the state lives as long as the frame is used.  Spark does not report the end
   of a read to a source: use `pinned` for a snapshot that ends with a block.
3. Keys outside of the range cost nothing but the index of an SST at its edge.

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
from holdfast.bucket.open import shown
from holdfast.errors import HoldfastError, NotFoundError
from holdfast.formats.sst import Rows
from holdfast.kv import scans
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.scans import ScanTask, State, plan_scan, scan_task
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.runtime import Runtime
from holdfast.spark.kv_options import COLUMNS, Address, KvOptions, address_of
from holdfast.spark.workers import in_worker

TTL_MS = 3_600_000
_FIELDS = {
    "key": StructField("key", BinaryType(), False),
    "value": StructField("value", BinaryType(), False),
    "sequence": StructField("sequence", LongType(), False),
    "deleted": StructField("deleted", BooleanType(), False),
}


@dataclass(frozen=True)
class Pin:
    """A snapshot that tasks extend."""

    id: UUID
    expires_s: int
    ttl_ms: int


@dataclass(frozen=True)
class KvPartition(InputPartition):
    """What one task reads."""

    task: ScanTask
    pin: Pin | None


def kv_schema(columns: Sequence[str], *, changes: bool = False) -> StructType:
    """Return the schema of these columns.  The value of a change may be null."""
    fields = [_FIELDS[name] for name in columns]
    if changes:
        fields = [StructField(f.name, f.dataType, f.name == "value") for f in fields]
    return StructType(fields)


class KvFrameReader(DataSourceReader):
    """Reads one state of one store."""

    def __init__(self, options: KvOptions) -> None:
        self._options = options
        self._columns = options.columns or COLUMNS

    def partitions(self) -> Sequence[KvPartition]:
        options, runtime = self._options, Runtime()
        bucket = options.address.open() if options.pin else options.address.open_to_read()
        start, stop = options.bounds
        state, pin = _choose(bucket, options, runtime)
        tasks = plan_scan(
            bucket,
            state,
            runtime,
            start=start,
            stop=stop,
            task_size=options.max_partition_bytes or scans.TASK_SIZE,
            parallel=1 if options.max_partition_bytes else os.cpu_count() or 1,
        )
        return [KvPartition(task, pin) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = in_worker(partition, KvPartition)
        if part is None:
            return
        runtime, address = Runtime(), self._options.address
        if part.pin is not None:
            _extend(address, part.pin, runtime)
        schema = to_arrow_schema(kv_schema(self._columns), timezone="UTC")
        try:
            for rows in scan_task(address.open_to_read(), part.task, runtime):
                yield shaped(rows, self._columns, schema)
        except FileNotFoundError as error:
            raise HoldfastError(
                f"the snapshot of this read expired and {error} was deleted: load again, with a "
                "larger snapshotTtlMs"
            ) from error


def shaped(rows: Rows, columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the schema that Spark knows."""
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
    ttl_ms: int = 24 * TTL_MS,
    **options: str | int,
) -> Iterator[DataFrame]:
    """Return the newest state of a store as a frame, with a snapshot that ends with the block."""
    client = {key[7:]: str(value) for key, value in options.items() if key.startswith("bucket.")}
    address, runtime = address_of(url, cas, client), Runtime()
    bucket = address.open()
    snapshot = scans.pinned(bucket, runtime, ttl_ms)
    try:
        reader = spark.read.format("holdfast-kv").option("snapshotId", str(snapshot.id))
        if cas is not None:
            reader = reader.option("cas", cas)
        yield reader.options(**options).load(url)
    finally:
        Snapshots(ManifestStore(bucket, runtime), runtime).drop(snapshot.id)


def _choose(bucket: Bucket, options: KvOptions, runtime: Runtime) -> tuple[State, Pin | None]:
    """Return the state to read, and the snapshot that keeps it."""
    store, ttl_ms = ManifestStore(bucket, runtime), options.snapshot_ttl_ms or TTL_MS
    if store.latest() is None:
        raise NotFoundError(f"no kv store in {shown(options.address.url)}")
    snapshots, manifest_id = Snapshots(store, runtime), options.manifest_id
    if options.snapshot_id is not None:
        manifest_id = _find(snapshots, options.snapshot_id).manifest_id
    elif options.pin:
        if manifest_id is not None:
            made = snapshots.create(ttl_ms, manifest_id=manifest_id)
        else:
            made = scans.pinned(bucket, runtime, ttl_ms)
        kept = scans.state_of(bucket, store.get(made.manifest_id))
        return kept, Pin(made.id, made.expires_s, ttl_ms)
    if manifest_id is None:
        return scans.newest(bucket, runtime), None
    return scans.state_of(bucket, store.get(manifest_id)), None


def _find(snapshots: Snapshots, id: UUID) -> Snapshot:
    for snapshot in snapshots.list():
        if snapshot.id == id:
            return snapshot
    raise NotFoundError(f"snapshot {id} does not exist: it has expired or was dropped")


def _extend(address: Address, pin: Pin, runtime: Runtime) -> None:
    """Extend a snapshot after half of its time, unless another task has done so."""

    def is_due(expires_s: int) -> bool:
        return expires_s * 1000 - runtime.now_ms() <= pin.ttl_ms / 2

    if not is_due(pin.expires_s):
        return
    snapshots = Snapshots(ManifestStore(address.open_proved(), runtime), runtime)
    if is_due(_find(snapshots, pin.id).expires_s):
        snapshots.extend(pin.id, pin.ttl_ms)
