"""A store that is compacted, loaded and collected, beside a dict that says what it must hold."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.kv.stores import Hand

from holdfast.bucket.bucket import Bucket, Buffer, ObjectInfo
from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import UnavailableError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import Rows
from holdfast.kv import Kv
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcReport
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import LEVELS, MANIFESTS, WAL, ids, level_name, manifest_name, wal_name
from holdfast.kv.plans import CompactionOptions

Model = dict[bytes, bytes]
Result = TypeVar("Result")

# Everything so small that a few rows fill several SSTs, tasks and runs.
TINY = CompactionOptions(
    wal_count=2, wal_size_max=2000, unit_count=3, sst_size=300, task_size=600, block_size=128
)
MIN_AGE_MS, SKEW_MS = 60_000, 3600_000


class World:
    """One store, its clock, and what it must hold."""

    def __init__(
        self, seed: int = 0, bucket: Bucket | None = None, hand: Hand | None = None
    ) -> None:
        self.random, self.hand = Random(seed), hand or Hand(seed)
        self.memory = MemoryBucket(clock=lambda: self.hand.ms)
        self.bucket: Bucket = bucket or self.memory
        self.model: Model = {}
        self.snapshots: dict[UUID, tuple[int, Model]] = {}
        self.db = self.open()

    def open(self) -> Kv:
        return open_kv(
            self.bucket,
            create=True,
            flush_ms=None,
            watch_ms=None,
            gc_min_age_ms=MIN_AGE_MS,
            runtime=self.hand.runtime,
            maintain=False,
        )

    def key(self) -> bytes:
        return b"key-%02d" % self.random.randrange(40)

    def put(self, count: int = 5) -> None:
        batch = {self.key(): self.random.randbytes(20) for _ in range(count)}
        deleted = {self.key() for _ in range(count // 3)} - batch.keys()
        self.db.write({**batch, **dict.fromkeys(deleted)}).result()
        self.model |= batch
        for key in deleted:
            self.model.pop(key, None)

    def compactor(self, bucket: Bucket | None = None) -> Compactor:
        return Compactor(bucket or self.bucket, self.hand.runtime, TINY)

    def load(self, count: int = 8, **kwargs: Any) -> bool:
        """A bulk load of two tasks; a quarter of its rows are deletions."""
        load = BulkLoad(self.bucket, self.hand.runtime, TINY, **kwargs)
        if load.is_committed:
            return False
        rows = {self.key(): self.random.choice([b"a", b"b", b"c", None]) for _ in range(count)}
        loaded = load_rows(self.bucket, self.hand, load, rows)
        if loaded:
            apply(self.model, rows)
        return loaded

    def snapshot(self, ttl_ms: float | None) -> None:
        made = self.db.snapshot(ttl_ms)
        self.snapshots[made.id] = (made.manifest_id, dict(self.model))

    def let_go(self) -> None:
        """The writer moves on to the newest state, and then gives back the one before."""
        self.db.refresh()
        self.db.refresh()

    def forget_expired(self) -> None:
        """Forget what an expired snapshot held."""
        there = {
            entry.id
            for entry in self.db.snapshots.list()
            if not 0 < entry.expires_s * 1000 < self.hand.ms
        }
        self.snapshots = {id: kept for id, kept in self.snapshots.items() if id in there}

    def collect(self, bucket: Bucket | None = None) -> GcReport:
        report = self.collect_in(bucket or self.bucket, self.hand)
        self.forget_expired()
        return report

    @staticmethod
    def collect_in(bucket: Bucket, hand: Hand) -> GcReport:
        report = GarbageCollector(bucket, hand.runtime).collect()
        assert not missing(bucket, hand)
        return report

    def check(self) -> None:
        """The writer, a reader, and every snapshot say what the model says."""
        self.db.refresh()
        self.forget_expired()
        assert dict(self.db.items()) == self.model
        assert {key: self.db.get(key) for key in self.model} == self.model
        assert self.read() == self.model
        for manifest_id, model in self.snapshots.values():
            assert self.read(manifest_id) == model

    def read(self, at: int | None = None) -> Model:
        return read(self.bucket, self.hand, at)

    def manifest(self) -> Manifest:
        return latest(self.bucket, self.hand)[1]


def read(bucket: Bucket, hand: Hand, at: int | None = None) -> Model:
    """All rows, without a trace in the bucket."""
    with read_kv(bucket, at=at, lazy=True, runtime=hand.runtime) as reader:
        return dict(reader.items())


def latest(bucket: Bucket, hand: Hand) -> tuple[int, Manifest]:
    current = ManifestStore(bucket, hand.runtime).latest()
    assert current is not None
    return current


def apply(model: Model, rows: Mapping[bytes, bytes | None]) -> None:
    for key, value in rows.items():
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def load_rows(
    bucket: Bucket, hand: Hand, load: BulkLoad, rows: Mapping[bytes, bytes | None]
) -> bool:
    """Load in two tasks, and one twin whose work is thrown away."""
    pairs = [(key, rows[key], 0) for key in sorted(rows)]
    half = len(pairs) // 2
    ssts = []
    for part in (pairs[:half], pairs[half:]):
        write_sorted(bucket, load.job, [Rows.from_pairs(part)], hand.runtime)
        ssts += write_sorted(bucket, load.job, [Rows.from_pairs(part)], hand.runtime)
    return load.commit(ssts)


def needed(bucket: Bucket, hand: Hand) -> set[str]:
    """What the current manifest and all its snapshots need, found as naively as can be."""
    current_id, current = latest(bucket, hand)
    store = ManifestStore(bucket, hand.runtime)
    names = set()
    for manifest_id in {current_id, *(entry.manifest_id for entry in current.snapshots)}:
        names.add(manifest_name(manifest_id))
        try:
            manifest = store.get(manifest_id)
        except FileNotFoundError:
            continue
        names |= {level_name(sst_id) for sst_id in manifest.sst_ids.tolist()}
        first = max(manifest.wal_id_last_compacted, 1)
        last = max([*ids(bucket.list(WAL)), manifest.wal_id_last_seen])
        names |= {wal_name(wal_id) for wal_id in range(first, last + 1)}
    return names


def missing(bucket: Bucket, hand: Hand) -> set[str]:
    return needed(bucket, hand) - listed(bucket)


def listed(bucket: Bucket) -> set[str]:
    return {info.name for part in (MANIFESTS, WAL, LEVELS) for info in bucket.list(part)}


class Failing:
    """A bucket that does not answer its nth call, before or after it took effect; then never."""

    def __init__(self, bucket: Bucket, number: int, *, after: bool) -> None:
        self._bucket, self._number, self._after = bucket, number, after
        self.calls = 0

    def get(self, name: str) -> bytes:
        return self._call(lambda: self._bucket.get(name))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._call(lambda: self._bucket.get_range(name, start, stop))

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._call(lambda: self._bucket.put_if_absent(name, data))

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return self._call(lambda: self._bucket.list(prefix, after))

    def delete(self, *names: str) -> None:
        self._call(lambda: self._bucket.delete(*names))

    def copy(self, source: str, destination: str) -> None:
        self._call(lambda: self._bucket.copy(source, destination))

    def _call(self, act: Callable[[], Result]) -> Result:
        self.calls += 1
        if self.calls >= self._number:
            if self._after and self.calls == self._number:
                act()
            raise UnavailableError(f"call {self.calls} was not answered")
        return act()


def copied(bucket: MemoryBucket, hand: Hand) -> MemoryBucket:
    """The same objects in another bucket, as old as they are."""
    copy = MemoryBucket(clock=lambda: hand.ms)
    copy._objects, copy._names = dict(bucket._objects), list(bucket._names)
    return copy
