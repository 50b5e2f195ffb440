import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.names import level_name, manifest_name, wal_name
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.verify import KvReport, judge, plan_verify, verify_sst
from holdfast.runtime import Runtime

RUNTIME = Runtime()


def verify(bucket: MemoryBucket) -> KvReport:
    plan = plan_verify(bucket, RUNTIME)
    return judge(bucket, plan, [verify_sst(bucket, n, RUNTIME) for n in plan.needs], RUNTIME)


@pytest.fixture
def store() -> tuple[MemoryBucket, Kv]:
    bucket = MemoryBucket()
    db = open_kv(bucket, create=True, flush_ms=None, watch_ms=None)
    db.write({b"k%04d" % i: bytes(50) for i in range(500)}).result()
    options = CompactionOptions(sst_size=1 << 13, block_size=1 << 10)
    Compactor(bucket, options=options).compact_everything()
    for _ in range(2):  # it moves on, and then releases what it had read
        db.refresh()
    db.put(b"a", b"b").result()
    return bucket, db


def test_a_sound_store_is_counted(store: tuple[MemoryBucket, Kv]) -> None:
    bucket, db = store
    report = verify(bucket)
    assert report.verdict == "clean"
    assert (report.rows, report.ssts) == (501, len(db.manifest.sst_ids) + 1)
    db.close()


def test_every_flipped_or_missing_object_is_found(store: tuple[MemoryBucket, Kv]) -> None:
    bucket, db = store
    level = level_name(int(db.manifest.sst_ids[2]))
    last = wal_name(db.last_wal_id)
    for name in (level, last):
        data = bucket.get(name)
        for offset in (30, len(data) // 2, len(data) - 3):
            bucket.delete(name)
            bucket.put_if_absent(
                name, data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :]
            )
            assert [problem.name for problem in verify(bucket).problems] == [name]
        bucket.delete(name)
        if name == level:
            assert [problem.why for problem in verify(bucket).problems] == ["missing"]
        bucket.put_if_absent(name, data)
    assert verify(bucket).verdict == "clean"
    db.snapshot()
    bucket.delete(last)
    assert [problem.name for problem in verify(bucket).problems] == [last]
    db.close()


def test_a_manifest_that_a_snapshot_names_is_read_too(store: tuple[MemoryBucket, Kv]) -> None:
    bucket, db = store
    kept = db.snapshot()
    db.put(b"c", b"d").result()
    Compactor(bucket).compact_everything()
    db.close()
    assert verify(bucket).manifests == 2
    bucket.delete(manifest_name(kept.manifest_id))
    assert verify(bucket).problems[0].name == manifest_name(kept.manifest_id)


def test_objects_that_are_collected_meanwhile_are_not_losses(
    store: tuple[MemoryBucket, Kv],
) -> None:
    bucket, db = store
    db.close()
    plan = plan_verify(bucket, RUNTIME)
    Compactor(bucket).compact_everything()
    bucket.delete(*(need.name for need in plan.needs))
    checked = [verify_sst(bucket, need, RUNTIME) for need in plan.needs]
    assert judge(bucket, plan, checked, RUNTIME).verdict == "clean"
