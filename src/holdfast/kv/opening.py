"""How a writer takes a store over.  The order matters; docs/kv.md says why, step by step.

1. Read the manifest, then list the WAL: fences will begin no later than at its first gap.
2. Update the manifest: raise the epoch, and add a snapshot that protects the WAL.
3. Write fences, until as many consecutive ids are ours as an older writer may have in flight.
4. Check that the epoch is still ours.  Now no older writer can write to the WAL.
5. Read the WAL up to the last fence.
"""

from contextlib import suppress
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, FencedError, LockedError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.formats.sst import Info, decode_info, decode_sst
from holdfast.kv.holders import record, refuse_if_held
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import ROW_OVERHEAD, Tail, layer_of
from holdfast.kv.names import contiguous, wal_ids, wal_name
from holdfast.kv.snapshots import Lease
from holdfast.kv.tables import Cache
from holdfast.kv.wal import Fencing, Tenure
from holdfast.runtime import Runtime, Workers

_FETCHED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Bump:
    """A store whose epoch was raised; older writers are not yet fenced."""

    manifest_id: int
    manifest: Manifest
    tenure: Tenure
    fencing: Fencing


class TakeOver:
    """The steps of opening, one call each."""

    def __init__(
        self,
        bucket: Bucket,
        store: ManifestStore,
        runtime: Runtime,
        lease: Lease,
        parallel: int,
        *,
        guarded: bool = False,
    ) -> None:
        """`guarded`: raise LockedError if there is a live writer."""
        self._bucket, self._store, self._runtime = bucket, store, runtime
        self._lease, self._parallel, self._guarded = lease, parallel, guarded

    def bump(self) -> Bump:
        """Do steps 1 and 2."""
        before_ms = self._runtime.monotonic_ms()
        mine = 0

        def raise_epoch(draft: Draft[Manifest], manifest: Manifest) -> None:
            nonlocal mine
            if self._guarded:
                refuse_if_held(self._store, manifest, self._runtime)
            mine = draft.message.writer_epoch = manifest.writer_epoch + 1
            # Not only ours: if this process dies before its fences are written, the next writer
            # must still write as many as the previous writer may have in flight.
            draft.message.max_parallel_writes = max(manifest.max_parallel_writes, self._parallel)
            see(draft, last_in_row(self._bucket, self._store, manifest))
            record(draft, self._runtime)

        manifest_id, manifest = self._lease.move(raise_epoch)
        tenure = Tenure(self._store, self._runtime, mine, manifest.gc_min_age_ms, before_ms)
        tenure.compare(manifest.writer_epoch, before_ms)
        start = manifest.wal_id_last_seen + 1
        fencing = Fencing(self._bucket, self._runtime, mine, start, manifest.max_parallel_writes)
        return Bump(manifest_id, manifest, tenure, fencing)

    def fence(self, bump: Bump) -> int:
        """Do steps 3 and 4; return the id of the last fence."""
        try:
            last = bump.fencing.run()
            bump.tenure.check()
        except (FencedError, LockedError):
            with suppress(UnavailableError):  # it expires; raise the first error
                self._lease.release()
            raise
        return last

    def settle(self, bump: Bump) -> None:
        """Record that the fences are written: now only our own writes in flight count."""
        if bump.manifest.max_parallel_writes == self._parallel:
            return

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            bump.tenure.compare(manifest.writer_epoch, 0)
            if manifest.max_parallel_writes == self._parallel:
                return None
            draft = manifest.edit()
            draft.message.max_parallel_writes = self._parallel
            return draft.freeze()

        self._store.update(change)


def see(draft: Draft[Manifest], wal_id: int) -> None:
    """Record that the WAL is contiguous up to this id."""
    draft.message.wal_id_last_seen = max(draft.message.wal_id_last_seen, wal_id)


def last_in_row(bucket: Bucket, store: ManifestStore, manifest: Manifest) -> int:
    """Return the last id of the WAL before its first gap, if there is one.

    A gap may be a write in flight.  It is a loss, and raises CorruptError, in two cases: the id was
    seen before, or there are ids above it that no writer starts before it is acknowledged.
    """
    done = manifest.wal_id_last_compacted
    found = wal_ids(bucket, after=done)
    last = contiguous(done + 1, found)
    newest = max(found, default=0)
    if last < max(manifest.wal_id_last_seen, newest - manifest.max_parallel_writes):
        current = store.latest()
        # Else it was compacted and collected meanwhile, and this manifest is not current.
        if current is not None and current[1].unique_id == manifest.unique_id:
            raise CorruptError(wal_name(last + 1), 0, f"missing, but the WAL continues to {newest}")
    return last


def replay(
    bucket: Bucket, cache: Cache, workers: Workers, first_id: int, last_id: int, size_max: int
) -> Tail:
    """Return the WAL from `first_id` to `last_id`: the newest SSTs in memory, within the budget."""
    tail = Tail(bucket, cache, size_max, first_id - 1)
    warm, size = last_id + 1, 0
    datas: dict[int, bytes] = {}
    while warm > first_id and size <= size_max:
        ids = range(max(first_id, warm - _FETCHED_AT_ONCE), warm)
        found = workers.map(lambda wal_id: bucket.get(wal_name(wal_id)), ids)
        datas.update(zip(ids, found, strict=True))
        infos = [decode_info(data, len(data)) for data in found]
        size += sum(info.size + ROW_OVERHEAD * info.row_count for info in infos)
        warm = ids.start
    cold = workers.map(lambda wal_id: _info_of(bucket, wal_id), range(first_id, warm))
    for wal_id, (sst_size, info) in zip(range(first_id, warm), cold, strict=True):
        tail.add_cold(wal_id, sst_size, info.max_seq, info.writer_epoch)
    for wal_id in range(warm, last_id + 1):
        data = datas.pop(wal_id)
        info, rows = decode_sst(data, where=wal_name(wal_id))
        tail.add(layer_of(rows, wal_id), len(data), info.max_seq, info.writer_epoch)
    return tail


def _info_of(bucket: Bucket, wal_id: int) -> tuple[int, Info]:
    """Return the size and the footer of an SST that is not kept in memory."""
    data = bucket.get(wal_name(wal_id))
    return len(data), decode_info(data, len(data), where=wal_name(wal_id))
