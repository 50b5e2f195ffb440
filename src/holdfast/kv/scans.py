"""A scan of one state of a store, cut into tasks that know nothing of each other.

A task reads the rows with start <= key < stop, from objects that never change, so it may run
anywhere, again, or twice.  Tasks are dataclasses of ints, bytes and texts, to be shipped as they
are; the caller sees to it, with a snapshot, that the objects stay.

    pinned(bucket, runtime, ttl_s)          a snapshot of the newest state, its WAL included
    state_of(bucket, manifest)              what the state of a manifest is made of
    newest(bucket, runtime)                 what the newest state is made of, without a snapshot
    plan_scan(bucket, state, runtime, ...)  the tasks of a range, in key order
    scan_task(bucket, task, runtime)        the live rows of a task, in key order
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError
from holdfast.formats.manifest import Draft, Manifest, SstInfo
from holdfast.formats.sst import Rows
from holdfast.kv.commits import list_wal
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.merging import merge, without_tombstones
from holdfast.kv.names import contiguous, level_name, wal_name
from holdfast.kv.plans import SourceSst
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.kv.sources import HEADS_SIZE, anchors, cuts, fetch_wal, table_of, within
from holdfast.kv.tables import Cache
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
    """One range of keys.  `sources` are sorted streams, the newest first; None is no bound."""

    sources: tuple[tuple[SourceSst, ...], ...]
    start: bytes
    stop: bytes | None
    size: int  # of the SSTs that hold it, each counted whole


def pinned(bucket: Bucket, runtime: Runtime, ttl_s: float | None) -> Snapshot:
    """Keep the newest state: the manifest first, then the WAL's end, then the snapshot."""

    def list_end(draft: Draft[Manifest], manifest: Manifest) -> None:
        last = _wal_end(bucket, manifest)
        draft.message.wal_id_last_seen = max(draft.message.wal_id_last_seen, last)

    return Snapshots(ManifestStore(bucket, runtime), runtime).create(ttl_s, edit=list_end)


def newest(bucket: Bucket, runtime: Runtime) -> State:
    """What there is by now, kept by nobody; FileNotFoundError if there is no store.

    A list that was made after a newer manifest may begin with a gap, where garbage collection was:
    it would look as if the WAL had ended there.
    """
    store = ManifestStore(bucket, runtime)
    manifest = _latest(store)
    while True:
        first = manifest.wal_id_last_compacted + 1
        wal = list_wal(bucket, manifest)
        before, manifest = manifest, _latest(store)
        if manifest.wal_id_last_compacted == before.wal_id_last_compacted:
            last = contiguous(first, (wal_id for wal_id, _ in wal))
            return State(manifest, tuple(wal[: last - first + 1]))


def state_of(bucket: Bucket, manifest: Manifest) -> State:
    """The state that was there when the manifest was written; CorruptError if it is not whole."""
    first, last = manifest.wal_id_last_compacted + 1, manifest.wal_id_last_seen
    wal = tuple(sst for sst in list_wal(bucket, manifest) if sst[0] <= last)
    if [wal_id for wal_id, _ in wal] != list(range(first, max(first, last + 1))):
        raise CorruptError("wal", 0, f"SSTs {first} to {last} are due, but not all are there")
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
    """Tasks of about `task_size` bytes, or less so that there are `parallel` ones, if it pays.

    None where no SST can hold a key of the range.
    """
    units = [[(info, _source(info))] for info in state.manifest.l0 if _meets(info, start, stop)]
    for run in state.manifest.runs:
        units.append([(info, _source(info)) for info in run.range(start, stop)])
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
    """The live rows, in chunks.  FileNotFoundError: nobody has kept what was planned."""
    cache = Cache(HEADS_SIZE, runtime)
    fetched = fetch_wal(bucket, task.sources, task.start, task.stop, _WHOLE_SIZE_MAX, runtime)
    streams = [_stream(bucket, cache, fetched, run, task) for run in task.sources]
    for rows in merge(streams):
        live = without_tombstones(rows)
        if len(live):
            yield live


def _latest(store: ManifestStore) -> Manifest:
    current = store.latest()
    if current is None:
        raise FileNotFoundError("no store here: it has no manifest")
    return current[1]


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
    """Whether an SST may hold keys of a range; no last key: another SST says where it ends."""
    return (stop is None or info.first_key < stop) and not (info.last_key and info.last_key < start)


def _source(info: SstInfo) -> SourceSst:
    name = level_name(info.id)
    return SourceSst(name, info.size, info.filter_offset, info.row_count, info.first_key)


def _stream(
    bucket: Bucket,
    cache: Cache,
    fetched: dict[str, Rows],
    unit: Iterable[SourceSst],
    task: ScanTask,
) -> Iterator[Rows]:
    size = max(_BATCH_SIZE // len(task.sources), _READ_SIZE_LEAST)
    for sst in unit:
        if sst.name not in fetched:
            table = table_of(bucket, cache, sst)
            yield from table.scan(task.start, task.stop, read_size=size, chunk_size=size)
        elif len(fetched[sst.name]):
            yield fetched[sst.name]
