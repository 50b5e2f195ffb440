"""The state of a kv store in numbers: of the bucket, of a manifest, and of an open handle.

Nothing here writes to the bucket.  It may run beside a live writer, a compactor and a garbage
collector; the counts are then not of one point in time.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from uuid import UUID

from holdfast.bucket.bucket import Bucket, ObjectInfo
from holdfast.errors import FencedError
from holdfast.formats.manifest import JobKind, Manifest, SstInfo
from holdfast.formats.sst import Info
from holdfast.kv.commits import list_wal
from holdfast.kv.gc import Garbage, GarbageCollector, GcOptions
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import Tail
from holdfast.kv.names import MANIFESTS, id_of, wal_name
from holdfast.kv.plans import WalSst
from holdfast.kv.snapshots import Snapshot, active_ids, listed
from holdfast.kv.tables import Cache, Table
from holdfast.kv.view import Current
from holdfast.kv.write_queue import WriteQueue
from holdfast.metrics import Metric
from holdfast.runtime import Runtime

_FETCHES = 8  # footers at the same time
_HEADS_SIZE = 16 << 20


@dataclass(frozen=True, slots=True)
class Amount:
    """Objects of one kind.  Rows are counted where they lie: also those that newer ones hide."""

    objects: int
    bytes: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class KvStatus:
    """A summary of a bucket: see `status()` of a handle."""

    manifest_id: int
    writer_epoch: int
    compactor_epoch: int
    wal: Amount  # what is not compacted
    wal_fences: int  # of them, those without rows
    l0: Amount
    runs: Amount
    run_count: int
    manifests: Amount
    snapshots: int
    snapshots_expired: int  # of them, by our clock
    jobs: int  # that have yet to commit
    transactions: int
    everything: Amount  # in the bucket, garbage included; rows of the current state
    garbage: Amount  # to be deleted by the next collection
    garbage_young: int  # garbage, but not yet old enough
    gc_min_age_ms: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class SstReport:
    """An SST of the levels, as the manifest describes it; in a run, the last key may be unknown."""

    id: int
    rows: int
    size: int
    max_seq: int
    first_key: bytes
    last_key: bytes


@dataclass(frozen=True, slots=True)
class LevelReport:
    """An SST of L0, or a sorted run; the newest has the number 0."""

    number: int
    kind: str
    id: int
    rows: int
    size: int
    first_key: bytes
    last_key: bytes
    ssts: tuple[SstReport, ...]


@dataclass(frozen=True, slots=True)
class JobReport:
    id: str
    kind: str
    compactor_epoch: int
    started_ms: int
    expires_ms: int
    done: bool


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    id: str
    manifest_id: int
    expires_ms: int | None  # None: never
    expired: bool  # by our clock; it is kept for a while longer


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The fields of a manifest."""

    id: int
    writer_epoch: int
    compactor_epoch: int
    wal_id_last_compacted: int
    wal_id_last_seen: int
    wal_gc_boundary: int
    manifest_gc_boundary: int
    max_parallel_writes: int
    next_sst_base: int
    last_seq: int
    gc_min_age_ms: int
    created_ms: int
    levels: tuple[LevelReport, ...]
    snapshots: tuple[SnapshotReport, ...]
    jobs: tuple[JobReport, ...]
    transactions: dict[str, int]  # the last batch of each stream


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """An existing manifest, and why it is kept."""

    id: int
    size: int
    modified_ms: int
    state: str  # current, kept (a snapshot names it), or unneeded


def status_of(
    bucket: Bucket, runtime: Runtime | None = None, options: GcOptions | None = None
) -> KvStatus:
    """Count all objects of a store, from names, manifests and the footers of the WAL."""
    runtime = runtime or Runtime()
    manifest_id, manifest = ManifestStore(bucket, runtime).current()
    wal = list_wal(bucket, manifest)
    infos = _wal_infos(bucket, wal, runtime)
    plan = GarbageCollector(bucket, runtime, options).plan()
    objects, found = bucket.list(""), snapshots_of(manifest, runtime.now_ms())
    kept = Amount(len(wal), sum(size for _, size in wal), sum(info.row_count for info in infos))
    l0, runs = _amount(manifest.l0), _amount(sst for run in manifest.runs for sst in run)
    return KvStatus(
        manifest_id=manifest_id,
        writer_epoch=manifest.writer_epoch,
        compactor_epoch=manifest.compactor_epoch,
        wal=kept,
        wal_fences=sum(not info.row_count for info in infos),
        l0=l0,
        runs=runs,
        run_count=len(manifest.runs),
        manifests=_stored(info for info in objects if info.name.startswith(f"{MANIFESTS}/")),
        snapshots=len(found),
        snapshots_expired=sum(snapshot.expired for snapshot in found),
        jobs=sum(not job.done for job in manifest.jobs),
        transactions=len(manifest.transactions),
        everything=replace(_stored(objects), rows=kept.rows + l0.rows + runs.rows),
        garbage=_stored(plan.garbage),
        garbage_young=plan.young_count,
        gc_min_age_ms=manifest.gc_min_age_ms,
        created_ms=manifest.created_ms,
    )


def report_manifest(
    bucket: Bucket, manifest_id: int | None = None, runtime: Runtime | None = None
) -> ManifestReport:
    """Return one manifest, or the current one; FileNotFoundError if it is missing."""
    runtime = runtime or Runtime()
    if manifest_id is None:
        manifest_id, manifest = ManifestStore(bucket, runtime).current()
    else:
        manifest = ManifestStore(bucket, runtime).get(manifest_id)
    return ManifestReport(
        id=manifest_id,
        writer_epoch=manifest.writer_epoch,
        compactor_epoch=manifest.compactor_epoch,
        wal_id_last_compacted=manifest.wal_id_last_compacted,
        wal_id_last_seen=manifest.wal_id_last_seen,
        wal_gc_boundary=manifest.wal_gc_boundary,
        manifest_gc_boundary=manifest.manifest_gc_boundary,
        max_parallel_writes=manifest.max_parallel_writes,
        next_sst_base=manifest.next_sst_base,
        last_seq=manifest.last_seq,
        gc_min_age_ms=manifest.gc_min_age_ms,
        created_ms=manifest.created_ms,
        levels=tuple(_levels(manifest)),
        snapshots=snapshots_of(manifest, runtime.now_ms()),
        jobs=tuple(_jobs(manifest)),
        transactions={noted.query_id: noted.batch_id for noted in manifest.transactions},
    )


def list_manifests(bucket: Bucket, runtime: Runtime | None = None) -> list[ManifestEntry]:
    """Return the existing manifests, oldest first."""
    runtime = runtime or Runtime()
    manifest_id, manifest = ManifestStore(bucket, runtime).current()
    kept = active_ids(manifest_id, manifest, runtime.now_ms())
    found = []
    for info in bucket.list(MANIFESTS):
        number = id_of(info.name)
        if number is not None:
            state = "current" if number >= manifest_id else "kept" if number in kept else "unneeded"
            found.append(ManifestEntry(number, info.size, info.modified_ms, state))
    return found


def snapshots_of(manifest: Manifest, now_ms: int) -> tuple[SnapshotReport, ...]:
    """Return the snapshots in a manifest, in the order in which they were created."""
    return tuple(report_snapshot(snapshot, now_ms) for snapshot in listed(manifest))


def report_snapshot(snapshot: Snapshot, now_ms: int) -> SnapshotReport:
    expires_ms = snapshot.expires_s * 1000 or None
    expired = expires_ms is not None and expires_ms < now_ms
    return SnapshotReport(str(snapshot.id), snapshot.manifest_id, expires_ms, expired)


def _wal_infos(bucket: Bucket, wal: Sequence[WalSst], runtime: Runtime) -> list[Info]:
    """Return the footers of those of these SSTs that still exist."""
    cache = Cache(_HEADS_SIZE, runtime)

    def read(sst: WalSst) -> Info | None:
        try:
            return Table(bucket, cache, wal_name(sst[0]), sst[1]).info
        except FileNotFoundError:  # compacted and collected since it was listed
            return None

    with closing(runtime.workers(_FETCHES)) as workers:
        return [info for info in workers.map(read, wal) if info is not None]


def _levels(manifest: Manifest) -> Iterator[LevelReport]:
    units: list[tuple[str, int, tuple[SstInfo, ...]]]
    units = [("L0", sst.id, (sst,)) for sst in manifest.l0]
    units += [("run", run.id, tuple(run)) for run in manifest.runs]
    for number, (kind, id, ssts) in enumerate(units):
        held = _amount(ssts)
        described = tuple(
            SstReport(s.id, s.row_count, s.size, s.max_seq, s.first_key, s.last_key) for s in ssts
        )
        first, last = ssts[0].first_key, ssts[-1].last_key
        yield LevelReport(number, kind, id, held.rows, held.bytes, first, last, described)


def _jobs(manifest: Manifest) -> Iterator[JobReport]:
    for job in manifest.jobs:
        yield JobReport(
            str(UUID(bytes=job.id)),
            JobKind.Name(job.kind).lower().replace("_", " "),
            job.compactor_epoch,
            job.started_ms,
            job.expires_ms,
            job.done,
        )


def _amount(ssts: Iterable[SstInfo]) -> Amount:
    found = list(ssts)
    return Amount(len(found), sum(sst.size for sst in found), sum(sst.row_count for sst in found))


def _stored(objects: Iterable[ObjectInfo | Garbage]) -> Amount:
    sizes = [each.size for each in objects]
    return Amount(len(sizes), sum(sizes))


def measure_reads(current: Current, tail: Tail, cache: Cache) -> list[Metric]:
    """Return the metrics that writers and readers have in common.

    Reads are counted without a lock: with many threads a few may be missed.
    """
    return [
        Metric("gets_total", "counter", current.gets, "calls of get"),
        current.seconds.metric("get_seconds", "latency of gets that memory cannot answer"),
        Metric("cache_hits_total", "counter", cache.hits, "blocks and indexes found in the cache"),
        Metric("cache_misses_total", "counter", cache.misses, "blocks and indexes that were read"),
        Metric("cache_bytes", "gauge", cache.size, "bytes in the cache"),
        Metric("wal_ssts", "gauge", tail.wal_count, "SSTs of the WAL that are not compacted"),
        Metric("wal_bytes", "gauge", tail.wal_bytes, "bytes of these SSTs"),
    ]


def measure_writes(
    epoch: int, written: int, queue: WriteQueue, tail: Tail, refusal: Exception | None
) -> list[Metric]:
    """Return the metrics of a writer.  With the queue's lock held."""
    memory = tail.size + sum(layer.size for layer in queue.unwritten())
    fenced = isinstance(refusal, FencedError)
    return [
        Metric("writer_epoch", "gauge", epoch, "epoch of this writer"),
        Metric("rows_written_total", "counter", written, "puts and deletes, durable or not"),
        Metric("flushes_total", "counter", queue.flushes, "SSTs of the WAL that were written"),
        Metric("flushed_bytes_total", "counter", queue.flushed_bytes, "bytes of these SSTs"),
        queue.seconds.metric("flush_seconds", "from the first put of a flush until it is durable"),
        Metric("memory_bytes", "gauge", memory, "bytes of rows in memory, flushed or not"),
        Metric("fenced", "gauge", int(fenced), "1 if another writer has taken over"),
        Metric("poisoned", "gauge", int(refusal is not None), "1 if writes are refused"),
    ]
