"""Time, ids and workers by hand, and a compaction and a collection as simple as can be."""

from collections.abc import Callable, Iterable
from random import Random
from uuid import UUID

from holdfast.bucket.bucket import Bucket
from holdfast.formats.manifest import Manifest, describe
from holdfast.formats.sst import Rows, decode_info, decode_sst, encode_sst
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.merging import merge_rows
from holdfast.kv.names import contiguous, level_name, manifest_name, wal_ids, wal_name
from holdfast.kv.snapshots import active_ids
from holdfast.runtime import Runtime


class Hand:
    """A world in which nothing happens by itself: the time, and what workers should do."""

    def __init__(self, seed: int = 0) -> None:
        self.ms = 1_700_000_000_000
        self.steps: list[Callable[[], None]] = []
        self._random = Random(seed)
        self.runtime = Runtime(
            now_ns=lambda: self.ms * 1_000_000,
            monotonic_ms=lambda: self.ms,
            new_id=lambda: UUID(bytes=self._random.randbytes(16)),
            sleep_ms=lambda delay_ms: None,
            workers=lambda count: self,  # type: ignore[arg-type, return-value]
            ticker=lambda interval_ms, step: self,
        )

    def submit(self, step: Callable[[], None], /) -> None:
        self.steps.append(step)

    def map(self, function: Callable[[int], object], items: Iterable[int], /) -> list[object]:
        return [function(item) for item in items]

    def close(self) -> None:
        self.work()

    def work(self) -> None:
        """Do what workers were asked for."""
        while self.steps:
            self.steps.pop(0)()


def rows_of(**pairs: bytes | None) -> Rows:
    """Rows by keyword, with seqs from 1."""
    items = sorted(pairs.items())
    return Rows.from_pairs([(key.encode(), value, i + 1) for i, (key, value) in enumerate(items)])


def compact(bucket: Bucket, runtime: Runtime, *, into_run: bool = False) -> Manifest:
    """Make one SST of the whole WAL, for L0 or as a run of its own."""
    store = ManifestStore(bucket, runtime)
    current = store.latest()
    assert current is not None
    done = current[1].wal_id_last_compacted
    last = contiguous(done + 1, wal_ids(bucket, after=done))
    if last == done:
        return current[1]
    parts = [decode_sst(bucket.get(wal_name(i)))[1] for i in range(last, done, -1)]
    rows = merge_rows([part for part in parts if len(part)])
    sst_id = current[1].next_sst_base + last
    data = encode_sst(rows, writer_epoch=0, unique_id=runtime.new_id().bytes)
    bucket.put_if_absent(level_name(sst_id), data)

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        if manifest.wal_id_last_compacted >= last:
            return None
        draft = manifest.edit()
        draft.message.next_sst_base += 2**32
        info = describe(sst_id, decode_info(data, len(data)))
        if len(rows) and into_run and not manifest.l0_count:  # a run is older than all of L0
            draft.add_run(sst_id, [info])
        elif len(rows):
            draft.add_l0(info)
        draft.message.wal_id_last_compacted = last
        draft.message.wal_id_last_seen = max(draft.message.wal_id_last_seen, last)
        draft.message.last_seq = max(manifest.last_seq, decode_info(data, len(data)).max_seq)
        return draft.freeze()

    return store.update(change)[1]


def collect(bucket: Bucket, runtime: Runtime, *, manifests_too: bool = True) -> list[str]:
    """Delete what no active manifest needs, however young; return the names."""
    store = ManifestStore(bucket, runtime)
    current = store.latest()
    assert current is not None
    kept = active_ids(*current, runtime.now_ms())
    manifests = [store.get(manifest_id) for manifest_id in kept]
    boundary = min(manifest.wal_id_last_compacted for manifest in manifests)
    ssts = {int(sst_id) for manifest in manifests for sst_id in manifest.sst_ids}
    gone = [manifest_name(i) for i in store.ids() if i not in kept and manifests_too]
    gone += [wal_name(i) for i in wal_ids(bucket, after=0) if i < boundary]
    levels = {level_name(sst_id) for sst_id in ssts}
    gone += [info.name for info in bucket.list("levels") if info.name not in levels]
    bucket.delete(*gone)
    return gone


def latest(bucket: Bucket, hand: Hand) -> Manifest:
    """The current manifest of a store."""
    return ManifestStore(bucket, hand.runtime).current()[1]
