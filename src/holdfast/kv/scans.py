"""A scan of one state of a store, split into independent tasks.

A task reads the rows with start <= key < stop, from objects that never change, so it may run
anywhere, again, or twice.  Tasks are dataclasses of ints, bytes and texts, which can be pickled.
The caller holds a snapshot, so that the objects stay.

    pinned(bucket, runtime, ttl_ms)          a snapshot of the newest state, its WAL included
    state_of(bucket, manifest)              what the state of a manifest is made of
    newest(bucket, runtime)                 what the newest state is made of, without a snapshot
    plan_scan(bucket, state, runtime, ...)  the tasks of a range, in key order
    scan_task(bucket, task, runtime)        the live rows of a task, in key order
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError
from holdfast.formats.manifest import Draft, Manifest, SstInfo
from holdfast.formats.sst import Rows
from holdfast.kv.commits import list_wal, newest_wal
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.merging import merge, without_tombstones
from holdfast.kv.names import contiguous, wal_name
from holdfast.kv.plans import SourceSst, source_of
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.kv.tables import Cache
from holdfast.kv.tasks import HEADS_SIZE, anchors, cuts, fetch_wal, read_run, within
from holdfast.runtime import Runtime

TASK_SIZE = 128 << 20
_TASK_SIZE_LEAST = 16 << 20  # below that, to start a task costs more than to read
_WHOLE_SIZE_MAX = 1 << 20  # of an SST of the WAL that is read with one request
_BATCH_SIZE = 8 << 20  # of rows; with 1 MiB, Spark takes a third longer
_READ_SIZE_LEAST = 1 << 20


@dataclass(frozen=True, slots=True)
class State:
    """The levels of a manifest, and the WAL above them: ids and sizes, the oldest first."""

    manifest: Manifest
    wal: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One range of keys.  `sources` are sorted streams, the newest first; None: unbounded."""

    sources: tuple[tuple[SourceSst, ...], ...]
    start: bytes
    stop: bytes | None
    size: int  # of the SSTs that hold it, each counted whole


def pinned(bucket: Bucket, runtime: Runtime, ttl_ms: float | None) -> Snapshot:
    """Take a snapshot of the newest state: read the manifest, then the end of the WAL, then create
    it.
    """

    def list_end(draft: Draft[Manifest], manifest: Manifest) -> None:
        last = _wal_end(bucket, manifest)
        draft.message.wal_id_last_seen = max(draft.message.wal_id_last_seen, last)

    return Snapshots(ManifestStore(bucket, runtime), runtime).create(ttl_ms, edit=list_end)


def newest(bucket: Bucket, runtime: Runtime) -> State:
    """Return the newest state, without a snapshot; NotFoundError without a store."""
    manifest, wal = newest_wal(bucket, ManifestStore(bucket, runtime))
    return State(manifest, tuple(wal))


def state_of(bucket: Bucket, manifest: Manifest) -> State:
    """Return the state of when the manifest was written; CorruptError if it is not whole."""
    first, last = manifest.wal_id_last_compacted + 1, manifest.wal_id_last_seen
    wal = tuple(sst for sst in list_wal(bucket, manifest) if sst[0] <= last)
    if [wal_id for wal_id, _ in wal] != list(range(first, max(first, last + 1))):
        raise CorruptError("wal", 0, f"SSTs {first} to {last} are needed, but some are missing")
    return State(manifest, wal)


def plan_scan(
    bucket: Bucket,
    state: State,
    runtime: Runtime,
    *,
    start: bytes = b"",
    stop: bytes | None = None,
    task_size: int = TASK_SIZE,
    parallel: int = 1,
) -> list[ScanTask]:
    """Plan tasks of about `task_size` bytes, or less so that there are `parallel` ones.

    None where no SST can hold a key of the range.
    """
    units = [
        [(info, source_of(info.id, info))]
        for info in state.manifest.l0
        if _meets(info, start, stop)
    ]
    for run in state.manifest.runs:
        units.append([(info, source_of(info.id, info)) for info in run.range(start, stop)])
        # The last one of a run says where it ends; the others end where the next one begins.
        units[-1] = [pair for pair in units[-1] if _meets(pair[0], start, stop)]
    levels = [[source for _, source in unit] for unit in units if unit]
    wal = [[SourceSst(wal_name(wal_id), size)] for wal_id, size in reversed(state.wal)]
    if not levels and not wal:
        return []
    ssts = [sst for unit in levels for sst in unit]
    size = sum(sst.size for sst in ssts)
    task_size = min(task_size, max(size // parallel, _TASK_SIZE_LEAST))
    found = anchors(bucket, ssts, task_size // 2, runtime) if size > task_size else []
    inside = [pair for pair in found if start < pair[0] and (stop is None or pair[0] < stop)]
    bounds = cuts(inside, task_size)
    ranges = zip([start, *bounds], [*bounds, stop], strict=True)
    return [_task(levels, wal, first, behind) for first, behind in ranges]


def scan_task(bucket: Bucket, task: ScanTask, runtime: Runtime) -> Iterator[Rows]:
    """Yield the live rows, in chunks.  FileNotFoundError: no snapshot has protected an SST."""
    cache = Cache(HEADS_SIZE, runtime)
    fetched = fetch_wal(bucket, task.sources, task.start, task.stop, _WHOLE_SIZE_MAX, runtime)
    size = max(_BATCH_SIZE // max(len(task.sources), 1), _READ_SIZE_LEAST)
    bounds, sizes = (task.start, task.stop), {"read_size": size, "chunk_size": size}
    streams = [read_run(bucket, cache, fetched, run, bounds, **sizes) for run in task.sources]
    for rows in merge(streams):
        live = without_tombstones(rows)
        if len(live):
            yield live


def _wal_end(bucket: Bucket, manifest: Manifest) -> int:
    wal_ids = (wal_id for wal_id, _ in list_wal(bucket, manifest))
    return contiguous(manifest.wal_id_last_compacted + 1, wal_ids)


def _task(
    levels: Sequence[Sequence[SourceSst]],
    wal: Sequence[Sequence[SourceSst]],
    start: bytes,
    stop: bytes | None,
) -> ScanTask:
    inside = [within(unit, start, stop) for unit in levels]
    sources = tuple(map(tuple, [*wal, *(unit for unit in inside if unit)]))
    return ScanTask(sources, start, stop, sum(sst.size for unit in sources for sst in unit))


def _meets(info: SstInfo, start: bytes, stop: bytes | None) -> bool:
    """Return whether an SST may hold keys of a range; the last key may be unknown."""
    return (stop is None or info.first_key < stop) and not (info.last_key and info.last_key < start)
