"""The changes of a kv store as a stream, from its WAL: an offset is the id of the next SST to read.

1. Ids are read in order.  At a gap the stream waits for the missing SST, which is still being
   written, even if later ones exist.
2. While the query runs, a snapshot keeps the WAL that it has not read yet, also when that is
   compacted.  After a stop the snapshot lives on until it expires, for the restart.

Bulk loads do not go through the WAL, so a stream does not show them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles

from holdfast.bucket import Bucket
from holdfast.bucket.open import shown
from holdfast.errors import NotFoundError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import decode_sst
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import WAL, contiguous, id_of, wal_ids, wal_name
from holdfast.kv.snapshots import Snapshots, active_ids
from holdfast.runtime import Runtime
from holdfast.spark.following import FollowingReader, Offset
from holdfast.spark.kv_options import STREAM_COLUMNS, KvOptions
from holdfast.spark.kv_reader import kv_schema, shaped
from holdfast.spark.workers import grouped, in_worker

TTL_MS = 24 * 3_600_000
_TASK_SIZE = 32 << 20


@dataclass(frozen=True)
class WalPartition(InputPartition):
    """The SSTs of the WAL that one task reads."""

    wal_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Hold:
    """A snapshot that keeps the WAL after `compacted`."""

    id: UUID
    compacted: int
    renewed_ms: int


class KvStreamReader(FollowingReader):
    """Follows one store."""

    position = "walId"
    limit = ReadMaxFiles

    def __init__(self, options: KvOptions) -> None:
        url, most = shown(options.address.url), options.max_files_per_trigger
        super().__init__(url, most, fail_on_data_loss=options.fail_on_data_loss)
        self._options = options
        self._columns = options.columns or STREAM_COLUMNS
        self._ttl_ms = options.snapshot_ttl_ms or TTL_MS
        self._hold: _Hold | None = None

    def first(self) -> int:
        start = self._options.starting_wal_id
        if start == "earliest":
            active = map(self._manifests.get, self._active())
            first = min(found.wal_id_last_compacted for found in active) + 1
        else:
            first = self.end() if start == "latest" else int(start or 1)
        self._keep(first)
        return first

    def begin(self, start: int) -> int:
        boundary = self._latest().wal_gc_boundary
        if start >= boundary:
            return start
        # Below the boundary a fence may lie alone: what is readable reaches up to the boundary.
        there = set(wal_ids(self._bucket, after=start - 1))
        first = boundary
        while first > start and first - 1 in there:
            first -= 1
        if first > start:
            self._lost(start, first - 1)
        return first

    def end(self, begin: int | None = None) -> int:
        """Return the id after the last one without a gap before it."""
        begin = self._latest().wal_id_last_compacted + 1 if begin is None else begin
        return contiguous(begin, wal_ids(self._bucket, after=begin - 1)) + 1

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        self._keep(start[self.position])
        return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[WalPartition]:
        self._keep(start[self.position])
        begin, stop = self.begin(start[self.position]), end[self.position]
        sizes = {
            wal_id: info.size
            for info in self._bucket.list(WAL, after=wal_name(begin - 1))
            if (wal_id := id_of(info.name)) is not None and wal_id < stop
        }
        if missing := set(range(begin, stop)) - sizes.keys():
            self._lost(min(missing), max(missing))
        return [WalPartition(tuple(ids)) for ids in grouped(sizes, sizes.__getitem__, _TASK_SIZE)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = in_worker(partition, WalPartition)
        schema = to_arrow_schema(kv_schema(self._columns, changes=True), timezone="UTC")
        bucket = self._options.address.open_to_read()
        for wal_id in part.wal_ids if part else ():
            name = wal_name(wal_id)
            try:
                data = bucket.get(name)
            except FileNotFoundError:
                self._lost(wal_id, wal_id)
                continue
            _, rows = decode_sst(data, where=name)
            if len(rows):  # else it is a fence
                yield shaped(rows, self._columns, schema)

    def commit(self, end: Offset) -> None:
        """Keep only what is not read yet."""
        self._keep(end[self.position])
        compacted = self._latest().wal_id_last_compacted
        if self._hold is not None and self._hold.compacted < compacted < end[self.position]:
            self._move(end[self.position])

    @property
    def _bucket(self) -> Bucket:
        if self._opened is None:
            self._opened = self._options.address.open()
        return self._opened  # type: ignore[no-any-return]

    def _lost(self, first: int, last: int) -> None:
        advice = (
            "read the whole store with spark.read and use a new checkpoint, or set failOnDataLoss "
            "to false to skip them; a larger snapshotTtlMs keeps the WAL for longer while the "
            "query is stopped"
        )
        self.lost(f"SSTs {first}..{last} of the WAL were deleted before they were read", advice)

    def _keep(self, next_id: int) -> None:
        """Have a snapshot that keeps the WAL from `next_id` on, and renew it in time."""
        runtime, hold = Runtime(), self._hold
        if hold is None:
            self._move(next_id)
        elif runtime.monotonic_ms() - hold.renewed_ms > self._ttl_ms / 3:
            try:
                self._snapshots.extend(hold.id, self._ttl_ms)
            except KeyError:  # it has expired; `begin` reports what was deleted since
                self._move(next_id)
            else:
                self._hold = _Hold(hold.id, hold.compacted, runtime.monotonic_ms())

    def _move(self, next_id: int) -> None:
        """Take a snapshot of the newest active manifest that needs the WAL from `next_id` on."""
        snapshots, before = self._snapshots, self._hold
        for manifest_id in sorted(self._active(), reverse=True):
            compacted = self._manifests.get(manifest_id).wal_id_last_compacted
            if compacted >= next_id:
                continue
            try:
                made = snapshots.create(self._ttl_ms, manifest_id=manifest_id)
            except ValueError:  # no longer active; an older one may still be
                continue
            self._hold = _Hold(made.id, compacted, Runtime().monotonic_ms())
            if before is not None:
                snapshots.drop(before.id)
            return

    @property
    def _manifests(self) -> ManifestStore:
        return ManifestStore(self._bucket, Runtime())

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._manifests, Runtime())

    def _current(self) -> tuple[int, Manifest]:
        current = self._manifests.latest()
        if current is None:
            raise NotFoundError(f"no kv store in {self._where}")
        return current

    def _latest(self) -> Manifest:
        return self._current()[1]

    def _active(self) -> set[int]:
        return active_ids(*self._current(), Runtime().now_ms())
