import pickle

import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv
from holdfast.errors import CorruptError
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import wal_name
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.scans import ScanTask, newest, pinned, plan_scan, scan_task, state_of
from holdfast.runtime import Runtime

RUNTIME = Runtime()
SMALL = CompactionOptions(wal_count=1, sst_size=1 << 13, block_size=1 << 10)


class Counting:
    """A bucket that counts what is read of it."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.size = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._bucket, name)

    def get(self, name: str) -> bytes:
        data = self._bucket.get(name)
        self.size += len(data)
        return data

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        data = self._bucket.get_range(name, start, stop)
        self.size += len(data)
        return data


@pytest.fixture
def db() -> Kv:
    """Two runs and an SST of L0 that overlap, and a WAL."""
    db = open_kv(MemoryBucket(), create=True, flush_ms=None, watch_ms=None, maintain=False)
    for part in range(3):
        db.write({b"k%04d" % i: b"%d" % part * 40 for i in range(part, 900, part + 1)}).result()
        if part < 2:
            Compactor(db.bucket, options=SMALL).compact_everything()
    Compactor(db.bucket, options=SMALL).step()
    db.write({b"k0100": None, b"k0007": b"new", b"z": b"last"}).result()
    db.put(b"k0007", b"newer").result()
    return db


def tasks_of(db: Kv, start: bytes, stop: bytes | None, task_size: int = 1 << 12) -> list[ScanTask]:
    state = newest(db.bucket, RUNTIME)
    return plan_scan(db.bucket, state, RUNTIME, start=start, stop=stop, task_size=task_size)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (b"", None),
        (b"k0100", b"k0500"),
        (b"k05", None),
        (b"", b"k0001"),
        (b"x", b"zz"),
        (b"zzz", None),
    ],
)
def test_all_tasks_together_are_the_scan(db: Kv, start: bytes, stop: bytes | None) -> None:
    tasks = [pickle.loads(pickle.dumps(task)) for task in tasks_of(db, start, stop)]
    found = [
        (key, value)
        for task in tasks
        for rows in scan_task(db.bucket, task, RUNTIME)
        for key, value, _ in rows.to_pairs()
    ]
    assert found == list(db.items(start, stop))
    if not start and stop is None:
        assert len(tasks) > 8


def test_what_is_outside_of_the_range_is_not_read(db: Kv) -> None:
    Compactor(db.bucket, options=SMALL).compact_everything()
    db.refresh()

    def read(start: bytes, stop: bytes | None) -> int:
        bucket = Counting(db.bucket)  # type: ignore[arg-type]
        for task in tasks_of(db, start, stop, 1 << 20):
            assert sum(map(len, scan_task(bucket, task, RUNTIME))) > 0  # type: ignore[arg-type]
        return bucket.size

    everything = read(b"", None)
    assert read(b"k0400", b"k0402") < everything / 10
    (task,) = tasks_of(db, b"k0400", b"k0402")
    assert sum(map(len, task.sources)) == 1
    assert tasks_of(db, b"zz", None) == []


def test_a_pinned_state_stays_and_shows_its_wal(db: Kv) -> None:
    before = list(db.items())
    kept = pinned(db.bucket, RUNTIME, 600_000)
    db.write({b"k0001": b"later", b"k0002": None}).result()
    Compactor(db.bucket, options=SMALL).compact_everything()
    state = state_of(db.bucket, ManifestStore(db.bucket, RUNTIME).get(kept.manifest_id))
    (task,) = plan_scan(db.bucket, state, RUNTIME)
    rows = [row for rows in scan_task(db.bucket, task, RUNTIME) for row in rows.to_pairs()]
    assert [(key, value) for key, value, _ in rows] == before
    db.bucket.delete(wal_name(state.wal[0][0]))
    with pytest.raises(CorruptError, match="some are missing"):
        state_of(db.bucket, state.manifest)


def test_an_sst_that_is_not_the_one_of_the_manifest_is_refused(db: Kv) -> None:
    (task,) = tasks_of(db, b"", None, task_size=1 << 30)
    run = next(run for run in task.sources if len(run) > 1)
    data = db.bucket.get(run[1].name)
    db.bucket.delete(run[0].name)
    db.bucket.put_if_absent(run[0].name, data)
    with pytest.raises(CorruptError, match="not the SST that the manifest names"):
        list(scan_task(db.bucket, task, RUNTIME))
