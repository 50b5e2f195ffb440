"""The status of a store, compared with what is in it."""

from dataclasses import asdict

from tests.kv.stores import Hand

from holdfast.bucket import MemoryBucket
from holdfast.doors import open_kv
from holdfast.kv import Kv
from holdfast.kv.bulk import BulkLoad
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.options import KvOptions
from holdfast.kv.snapshots import Snapshots
from holdfast.kv.status import (
    list_manifests,
    report_manifest,
    snapshots_of,
    status_of,
)
from holdfast.kv.verify import verify_store


def open_db(bucket: MemoryBucket, hand: Hand) -> Kv:
    options = KvOptions(flush_ms=None, watch_ms=None, gc_min_age_ms=60_000)
    return open_kv(bucket, create=True, runtime=hand.runtime, maintain=False, **options)


def test_a_report_counts_what_there_is_and_writes_nothing() -> None:
    hand = Hand()
    bucket = MemoryBucket(clock=lambda: hand.ms)
    with open_db(bucket, hand) as db:
        db.write({b"a": b"1", b"b": b"2"}).result()
    compactor = Compactor(bucket, hand.runtime)
    compactor.compact_everything()
    with open_db(bucket, hand) as db:
        db.delete(b"a").result()
        BulkLoad(bucket, hand.runtime, transaction=("stream", 3))
        before = bucket.list("")
        report = status_of(bucket, hand.runtime)
        assert bucket.list("") == before
    assert (report.wal.objects, report.wal.rows, report.wal_fences) == (2, 1, 1)
    assert (report.run_count, report.runs.objects, report.runs.rows) == (1, 1, 2)
    assert (report.l0.objects, report.everything.rows) == (0, 3)
    assert (report.writer_epoch, report.compactor_epoch) == (2, 1)
    assert (report.snapshots, report.snapshots_expired) == (1, 0)
    assert report.jobs == 2  # the load, and the compactor's spare one
    assert report.everything.objects == len(before)
    assert report.everything.bytes == sum(info.size for info in before)
    assert (report.garbage.objects, report.garbage_young > 0) == (0, True)
    hand.ms += 3_600_000
    open_db(bucket, hand).close()  # the store's clock is that of its newest object
    assert status_of(bucket, hand.runtime).garbage.objects > 0


def test_a_manifest_is_shown_completely() -> None:
    hand = Hand()
    bucket = MemoryBucket(clock=lambda: hand.ms)
    with open_db(bucket, hand) as db:
        db.write({b"a": b"1", b"b": None}).result()
    Compactor(bucket, hand.runtime).compact_everything()
    store = ManifestStore(bucket, hand.runtime)
    kept = Snapshots(store, hand.runtime).create(10)
    report = report_manifest(bucket, runtime=hand.runtime)
    (level,) = report.levels
    assert (level.kind, level.rows, level.first_key, level.last_key) == ("run", 1, b"a", b"a")
    assert [sst.size for sst in level.ssts] == [level.size]
    assert {job.kind for job in report.jobs} == {"compaction"}
    assert asdict(report)["snapshots"][0]["id"] == str(kept.id)
    assert report_manifest(bucket, 1).levels == ()
    states = {entry.id: entry.state for entry in list_manifests(bucket, hand.runtime)}
    assert states[1] == "unneeded"
    assert states[report.id] == "current"
    current = store.latest()
    assert current is not None
    assert [each.expired for each in snapshots_of(current[1], hand.ms + 20_000)] == [True]


def test_verify_reads_everything_and_reports_problems() -> None:
    hand = Hand()
    bucket = MemoryBucket(clock=lambda: hand.ms)
    with open_db(bucket, hand) as db:
        db.write({b"a": b"1", b"b": b"2"}).result()
    seen: list[tuple[int, int]] = []
    report = verify_store(bucket, lambda done, total: seen.append((done, total)), hand.runtime)
    assert (report.verdict, report.rows) == ("clean", 2)
    assert seen[-1][0] == seen[-1][1] == report.size
    bucket.delete("wal/00000000000000000002.sst")
    (problem,) = verify_store(bucket, runtime=hand.runtime).problems
    assert (problem.name, "missing" in problem.why) == ("wal/00000000000000000002.sst", True)
