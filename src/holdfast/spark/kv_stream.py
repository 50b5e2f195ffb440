"""The changes of a kv store as a stream, from its WAL: an offset is the id of the next SST to read.

1. The same range of offsets is the same rows whenever it is read, so a batch that Spark replays is
   the batch that it was.
2. Ids are read in their order; at a gap the stream waits for the missing SST, which is still being
   written, however many there are behind it.
3. While the query runs, a snapshot keeps the WAL that it has yet to read, even if it is compacted.
   After a stop that snapshot lives on for a while, for the restart.  What was deleted before it
   was read is an error, unless `failOnDataLoss` is false: then the stream goes on behind it.

Bulk loads do not go through the WAL, so a stream does not show them.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from holdfast.bucket import Bucket
from holdfast.errors import HoldfastError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import decode_sst
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import WAL, contiguous, id_of, wal_ids, wal_name
from holdfast.kv.snapshots import Snapshots, active_ids
from holdfast.runtime import Runtime
from holdfast.spark.kv_options import STREAM_COLUMNS, KvOptions
from holdfast.spark.kv_reader import kv_schema, shaped
from holdfast.spark.workers import freeze_imports

TTL_S = 24 * 3600
_TASK_SIZE = 32 << 20
_LOG = logging.getLogger("holdfast")

Offset = dict[str, int]


@dataclass(frozen=True)
class WalPartition(InputPartition):
    """The SSTs of the WAL that one task reads."""

    wal_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Hold:
    """A snapshot that keeps the WAL behind `compacted`."""

    id: UUID
    compacted: int
    renewed_ms: int


class KvStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one store.  It lives as long as the query."""

    def __init__(self, options: KvOptions) -> None:
        self._options = options
        self._columns = options.columns or STREAM_COLUMNS
        self._ttl_s = options.ttl_s or TTL_S
        self._hold: _Hold | None = None
        self._target: int | None = None  # where an available-now run stops
        self._opened: Bucket | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # connections do not travel

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        bucket, start = self._bucket(), self._options.first_wal_id
        manifest = self._latest(bucket)
        if start == "earliest":
            first = min(found.wal_id_last_compacted for found in self._active(bucket)) + 1
        elif start == "latest":
            first = self._end(bucket, manifest.wal_id_last_compacted + 1)
        else:
            first = int(start or 1)
        self._keep(bucket, first)
        return {"walId": first}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.files_max
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        bucket = self._bucket()
        self._keep(bucket, start["walId"])
        begin = self._begin(bucket, start["walId"])
        stop = self._end(bucket, begin)
        if self._target is not None:
            stop = min(stop, self._target)
        if isinstance(limit, ReadMaxFiles):
            stop = min(stop, begin + limit.max_files)
        return {"walId": max(stop, start["walId"])}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        bucket = self._bucket()
        return {"walId": self._end(bucket, self._latest(bucket).wal_id_last_compacted + 1)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.reportLatestOffset()["walId"]

    def partitions(self, start: Offset, end: Offset) -> Sequence[WalPartition]:
        bucket = self._bucket()
        self._keep(bucket, start["walId"])
        begin = self._begin(bucket, start["walId"])
        sizes = {
            wal_id: info.size
            for info in bucket.list(WAL, after=wal_name(begin - 1))
            if (wal_id := id_of(info.name)) is not None and wal_id < end["walId"]
        }
        if missing := set(range(begin, end["walId"])) - sizes.keys():
            self._tell_loss(min(missing), max(missing))
        groups: list[list[int]] = []
        held = 0
        for wal_id, size in sizes.items():
            if not groups or held + size > _TASK_SIZE:
                groups.append([])
                held = 0
            groups[-1].append(wal_id)
            held += size
        return [WalPartition(tuple(group)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        if not isinstance(partition, WalPartition):  # Spark's own, when nothing had to be read
            return
        schema = to_arrow_schema(kv_schema(self._columns, changes=True), timezone="UTC")
        bucket = self._options.address.open_to_read()
        for wal_id in partition.wal_ids:
            name = wal_name(wal_id)
            try:
                data = bucket.get(name)
            except FileNotFoundError:
                self._tell_loss(wal_id, wal_id)
                continue
            _, rows = decode_sst(data, where=name)
            if len(rows):  # else it is a fence
                yield shaped(rows, self._columns, schema)

    def commit(self, end: Offset) -> None:
        """Keep only what is not read yet."""
        bucket = self._bucket()
        self._keep(bucket, end["walId"])
        compacted = self._latest(bucket).wal_id_last_compacted
        if self._hold is not None and self._hold.compacted < compacted < end["walId"]:
            self._move(bucket, end["walId"])

    def stop(self) -> None:
        """The snapshot lives on, for the restart; it expires."""

    def _bucket(self) -> Bucket:
        if self._opened is None:
            self._opened = self._options.address.open()
        return self._opened

    def _begin(self, bucket: Bucket, start: int) -> int:
        """Where there is still something to read from `start` on; loud about what is not."""
        there = wal_ids(bucket, after=start - 1)
        boundary = self._latest(bucket).wal_gc_boundary
        if there[:1] == [start] or start >= boundary:
            return start
        first = there[0] if there else boundary
        self._tell_loss(start, first - 1)
        return first

    def _tell_loss(self, first: int, last: int) -> None:
        what = f"SSTs {first}..{last} of the WAL were deleted before they were read"
        advice = (
            "read the whole store with spark.read and begin a new checkpoint, or set "
            "failOnDataLoss to false to go on without them; a larger snapshotTtlSeconds keeps the "
            "WAL for longer while the query is stopped"
        )
        if self._options.fail_on_data_loss:
            raise HoldfastError(f"{self._options.address.url}: {what}; {advice}")
        _LOG.warning("%s: %s; failOnDataLoss is false", self._options.address.url, what)

    def _end(self, bucket: Bucket, begin: int) -> int:
        """The id behind the unbroken row that begins there."""
        return contiguous(begin, wal_ids(bucket, after=begin - 1)) + 1

    def _keep(self, bucket: Bucket, next_id: int) -> None:
        """Have a snapshot that keeps the WAL from `next_id` on, and renew it in time."""
        runtime, hold = Runtime(), self._hold
        if hold is None:
            self._move(bucket, next_id)
        elif runtime.monotonic_ms() - hold.renewed_ms > self._ttl_s * 1000 / 3:
            try:
                self._snapshots(bucket).extend(hold.id, self._ttl_s)
            except KeyError:  # we slept too long; what it kept may be gone, which _begin will tell
                self._move(bucket, next_id)
            else:
                self._hold = _Hold(hold.id, hold.compacted, runtime.monotonic_ms())

    def _move(self, bucket: Bucket, next_id: int) -> None:
        """A snapshot of the newest active manifest that needs the WAL from `next_id` on."""
        runtime, store = Runtime(), ManifestStore(bucket, Runtime())
        snapshots, before = self._snapshots(bucket), self._hold
        for manifest_id in sorted(self._active_ids(bucket), reverse=True):
            compacted = store.get(manifest_id).wal_id_last_compacted
            if compacted >= next_id:
                continue
            try:
                made = snapshots.create(self._ttl_s, manifest_id=manifest_id)
            except ValueError:  # not active any more; an older one may still be
                continue
            self._hold = _Hold(made.id, compacted, runtime.monotonic_ms())
            if before is not None:
                snapshots.drop(before.id)
            return

    def _snapshots(self, bucket: Bucket) -> Snapshots:
        runtime = Runtime()
        return Snapshots(ManifestStore(bucket, runtime), runtime)

    def _active_ids(self, bucket: Bucket) -> set[int]:
        current = ManifestStore(bucket, Runtime()).latest()
        if current is None:
            raise HoldfastError(f"{self._options.address.url} holds no kv store")
        return active_ids(*current, Runtime().now_ms())

    def _active(self, bucket: Bucket) -> list[Manifest]:
        store = ManifestStore(bucket, Runtime())
        return [store.get(manifest_id) for manifest_id in self._active_ids(bucket)]

    def _latest(self, bucket: Bucket) -> Manifest:
        current = ManifestStore(bucket, Runtime()).latest()
        if current is None:
            raise HoldfastError(f"{self._options.address.url} holds no kv store")
        return current[1]
