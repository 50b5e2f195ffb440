import asyncio
import logging
import time

import pyarrow as pa
import pytest
from tests.kv.stores import Hand, collect, compact, latest

from holdfast.bucket.bucket import Bucket, Buffer
from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import (
    ClosedError,
    CorruptError,
    FencedError,
    NotFoundError,
    PoisonedError,
    UnavailableError,
)
from holdfast.kv import Kv
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.names import wal_name
from holdfast.kv.plans import CompactionOptions
from holdfast.runtime import Runtime
from holdfast.testing.log_contract import run_all


def opened(bucket: Bucket, hand: Hand, **settings: int) -> Kv:
    options = {"flush_ms": None, "watch_ms": None, **settings}
    return open_kv(bucket, create=True, runtime=hand.runtime, **options)  # type: ignore[arg-type]


def test_what_is_written_can_be_read_at_once_and_after_reopening() -> None:
    bucket = MemoryBucket()
    with open_kv(bucket, create=True) as db:
        db.put(b"a", b"1")
        db.put(b"b", b"2")
        assert db.delete(b"a").result() == 3
        db.write([(b"c", b"3"), (b"d", b""), (b"b", None)])
        assert [db.get(key) for key in (b"a", b"b", b"c", b"d")] == [None, None, b"3", b""]
        assert list(db.items()) == [(b"c", b"3"), (b"d", b"")]
    with open_kv(bucket, create=True) as db:
        assert list(db.items(reverse=True)) == [(b"d", b""), (b"c", b"3")]
        assert db.put(b"e", b"5").seq == 7  # above everything that was replayed
        assert db.epoch == 2


def test_a_store_is_made_only_if_asked_for() -> None:
    with pytest.raises(NotFoundError, match="no manifest"):
        open_kv(MemoryBucket())


@pytest.mark.parametrize(
    "write",
    [
        lambda db: db.put("text", b"v"),
        lambda db: db.put(b"k", "text"),
        lambda db: db.delete("text"),
        lambda db: db.get("text"),
        lambda db: db.write({"text": b"v"}),
        lambda db: db.write({b"k": "text"}),
        lambda db: next(db.scan(prefix="text")),
        lambda db: db.put(b"", b"v"),
        lambda db: db.put(b"k" * 65_536, b"v"),
        lambda db: db.write({}),
        lambda db: db.write({b"k" * 65_536: b"v"}),
    ],
)
def test_what_cannot_be_written_is_refused_and_changes_nothing(write) -> None:  # type: ignore[no-untyped-def]
    hand = Hand()
    with opened(MemoryBucket(), hand) as db:
        with pytest.raises((TypeError, ValueError)):
            write(db)
        assert db.put(b"k" * 65_535, b"v").result() == 1


def test_a_batch_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kv.batches.BATCH_SIZE_MAX", 10_000)
    with opened(MemoryBucket(), Hand()) as db:
        with pytest.raises(ValueError, match="at most"):
            db.write({b"%d" % i: bytes(100) for i in range(100)})
        assert list(db.items()) == []


def test_a_view_never_changes() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand, memory_bytes_max=0) as db:
        db.put(b"a", b"flushed").result()
        db.put(b"b", b"in memory")
        with db.view() as view, db.view(durable_only=True) as durable:
            db.write({b"a": b"new", b"b": None, b"c": b"new"})
            scan = db.scan()
            first = next(scan)
            db.write({b"a": b"newest", b"d": b"newest"}).result()
            compact(bucket, hand.runtime)
            db.refresh()
            collect(bucket, hand.runtime)
            assert list(view.items()) == [(b"a", b"flushed"), (b"b", b"in memory")]
            assert view.get(b"b") == b"in memory"
            assert list(durable.items()) == [(b"a", b"flushed")]
            assert first.column("value").to_pylist() == [b"new", b"new"]
            assert list(scan) == []
        assert list(db.items()) == [(b"a", b"newest"), (b"c", b"new"), (b"d", b"newest")]


def test_what_is_compacted_leaves_memory_and_stays_readable() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        for i in range(20):
            db.put(b"%02d" % i, b"old").result()
        compact(bucket, hand.runtime, into_run=True)
        for i in range(0, 20, 3):
            db.put(b"%02d" % i, b"new").result()
        db.delete(b"07").result()
        assert db.wal_count > 20
        db.refresh()
        assert db.wal_count == 8
        model = {b"%02d" % i: b"old" if i % 3 else b"new" for i in range(20) if i != 7}
        assert dict(db.items()) == model
        compact(bucket, hand.runtime)
        db.refresh()
        assert db.wal_count == 0
        assert dict(db.items()) == model
        assert {key: db.get(key) for key in model} == model
        assert db.get(b"07") is None
        assert db.get(b"missing") is None
    with opened(bucket, hand) as db:
        assert dict(db.items()) == model
        assert db.put(b"x", b"y").seq == 29


def test_a_get_of_what_was_collected_looks_at_the_newest_manifest() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand, memory_bytes_max=0) as db:
        db.put(b"a", b"1").result()
        compact(bucket, hand.runtime)
        hand.ms += 10**8  # our snapshot expires
        assert wal_name(2) not in collect(bucket, hand.runtime)
        db.put(b"b", b"2").result()
        compact(bucket, hand.runtime)
        assert wal_name(2) in collect(bucket, hand.runtime)
        assert db.get(b"a") == b"1"
        bucket.delete(*[info.name for info in bucket.list("levels")])
        db._cache.put(("", 0), None, 2**40)  # forget everything
        with pytest.raises(CorruptError, match="levels"):
            db.get(b"a")


def test_an_old_view_ends_with_a_clear_error() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand, memory_bytes_max=0) as db:
        db.put(b"a", b"1").result()
        view = db.view()
        db.put(b"a", b"2").result()
        hand.ms += 10**8
        compact(bucket, hand.runtime)
        collect(bucket, hand.runtime)
        with pytest.raises(UnavailableError, match="has expired"):
            list(view.items())
        with pytest.raises(UnavailableError, match="has expired"):
            view.get(b"a")


def test_the_writer_before_is_fenced() -> None:
    bucket, hand = MemoryBucket(), Hand()
    one = opened(bucket, hand)
    one.put(b"a", b"1").result()
    lost = one.put(b"b", b"never seen")
    with opened(bucket, hand) as two:
        with pytest.raises(FencedError, match="writer 1 was fenced by writer 2"):
            lost.result()
        for call in (lambda: one.put(b"c", b""), lambda: one.get(b"a"), one.view, one.flush):
            with pytest.raises(FencedError):
                call()
        with pytest.raises(FencedError):
            one.close()
        assert list(two.items()) == [(b"a", b"1")]


def test_refresh_notices_a_new_writer_before_anything_is_written() -> None:
    bucket, hand = MemoryBucket(), Hand()
    one = opened(bucket, hand)
    with opened(bucket, hand):
        with pytest.raises(FencedError, match="writer 2 has taken over"):
            one.refresh()
        with pytest.raises(FencedError):
            one.get(b"a")
        one.close()  # it had nothing to lose


class Broken(MemoryBucket):
    """Does not answer when it is asked to write a WAL."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def put_if_absent(self, name: str, data: Buffer, **metadata: object) -> None:
        if self.is_broken and name.startswith("wal"):
            raise UnavailableError("no answer")
        super().put_if_absent(name, data)


def test_after_a_failure_what_was_acknowledged_can_be_read_and_nothing_written() -> None:
    bucket, hand = Broken(), Hand()
    db = opened(bucket, hand)
    db.put(b"a", b"1").result()
    bucket.is_broken = True
    with pytest.raises(UnavailableError):
        db.put(b"b", b"2").result()
    bucket.is_broken = False
    with pytest.raises(PoisonedError, match="reopen"):
        db.put(b"c", b"3")
    assert list(db.items()) == [(b"a", b"1")]
    assert db.get(b"b") is None
    with pytest.raises(PoisonedError):
        db.close()
    with opened(bucket, hand) as db:
        assert list(db.items()) == [(b"a", b"1")]


def test_the_error_that_ends_a_block_is_reported() -> None:
    bucket = Broken()

    def fail_inside() -> None:
        with opened(bucket, Hand()) as db:
            bucket.is_broken = True
            db.put(b"b", b"2")
            db.flush()

    with pytest.raises(UnavailableError):
        fail_inside()


def test_a_closed_store_raises_closed_error() -> None:
    bucket, hand = MemoryBucket(), Hand()
    db = opened(bucket, hand)
    db.put(b"a", b"1")
    view, scan = db.view(), db.scan()
    batch = next(scan)
    db.close()
    calls = [
        lambda: db.put(b"c", b""),
        lambda: db.write({b"c": b""}),
        lambda: db.delete(b"c"),
        lambda: db.get(b"a"),
        lambda: view.get(b"a"),
        lambda: next(scan),
        lambda: db.items(),
        lambda: db.scan(),
        lambda: pa.table(db),
        *(lambda name=name: getattr(db, name) for name in ("epoch", "manifest", "snapshots")),
        *(lambda name=name: getattr(db, name) for name in ("last_wal_id", "wal_count")),
        *(db.view, db.flush, db.refresh, db.snapshot, db.status, db.verify, db.metrics),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert batch.column("key").to_pylist() == [b"a"]  # what was handed out stays valid
    assert "closed" in repr(db)
    assert "closed" in db._repr_html_()
    assert not latest(bucket, hand).snapshots  # its own was dropped
    db.close()


def test_an_open_store_describes_itself() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db, read_kv(bucket, runtime=hand.runtime) as reader:
        db.write({b"a": b"1", b"b": b"2"}).result()
        for handle in (db, reader):
            assert handle.status().wal.rows == 2
            assert handle.verify().verdict == "clean"
            assert (handle.damage, handle.recovered) == ((), ())
            assert "<table>" in handle._repr_html_()
        assert (repr(db), repr(reader)) == (
            f"<Kv {bucket!r}: writer 1>",
            f"<KvReader {bucket!r}: manifest 3>",
        )
    with opened(bucket, hand) as db:
        assert db.recovered == ("read 3 SSTs of the WAL, up to 3",)


def test_arrow_tables_go_in_and_out() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db, read_kv(bucket, runtime=hand.runtime) as reader:
        db.put(b"b", b"0")
        table = pa.table({"value": [b"1", None, b"3"], "key": ["a", "b", "c"]})
        assert db.write(table).result() == 4
        reader.poll()
        expected = {"key": [b"a", b"c"], "value": [b"1", b"3"]}
        for source in (db, reader, db.view(), db.scan(), reader.scan()):
            assert pa.table(source).to_pydict() == expected
        assert pa.table(db.scan(b"b", seqs=True)).to_pydict() == {
            "key": [b"c"],
            "value": [b"3"],
            "seq": [4],
        }
        db.write(db.scan(prefix=b"c")).result()  # what goes out can come in
    for columns, why in [
        ({"key": [b"a"]}, "one column 'value'; their columns are 'key'"),
        ({"key": [b"a", None], "value": [b"", b""]}, "column 'key' is null in row 1"),
        ({"key": [b""], "value": [b""]}, "the key has 0 bytes"),
        ({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())}, "empty"),
    ]:
        with opened(bucket, hand) as db, pytest.raises(ValueError, match=why):
            db.write(pa.table(columns))
    with opened(bucket, hand) as db, pytest.raises(TypeError, match="'value' is int64"):
        db.write(pa.table({"key": ["a"], "value": [1]}))


def test_ticks_flush_and_watch_and_maintain() -> None:
    eager = MaintenanceOptions(CompactionOptions(wal_count=1))
    with open_kv(MemoryBucket(), create=True, flush_ms=5, watch_ms=5, maintain=eager) as db:
        handle = db.put(b"a", b"1")
        deadline = time.monotonic() + 10
        while not (handle.done() and db.manifest.l0_count) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert handle.done()
        assert db.manifest.l0_count == 1
        assert db.get(b"a") == b"1"


def test_a_fenced_writer_raises_fenced_error_on_every_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bucket = MemoryBucket()
    caplog.set_level(logging.WARNING, "holdfast")
    with open_kv(bucket, create=True, watch_ms=5) as one, open_kv(bucket, create=True):
        deadline = time.monotonic() + 10
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.005)
        with pytest.raises(FencedError):
            one.put(b"a", b"1")
    assert "writer 2 has taken over" in caplog.text


def test_snapshots_keep_a_state() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1")
        kept = db.snapshot(ttl_ms=60_000)
        db.put(b"a", b"2").result()
        compact(bucket, hand.runtime)
        db.refresh()
        collect(bucket, hand.runtime)
        with read_kv(bucket, at=kept.manifest_id, runtime=hand.runtime) as reader:
            assert list(reader.items()) == [(b"a", b"1")]
        assert db.get(b"a") == b"2"
        db.snapshots.drop(kept.id)


def test_awaiting_many_puts_takes_few_objects() -> None:
    bucket = MemoryBucket()

    async def main() -> None:
        with open_kv(bucket, create=True, flush_ms=None) as db:
            handles = [db.put(b"%d" % i, b"v") for i in range(1000)]
            seqs = [await handle for handle in handles]
            assert seqs == list(range(1, 1001))

    asyncio.run(main())
    assert len(bucket.list("wal")) < 50


def test_threads_write_and_scan_consistent_states() -> None:
    """Transfers between accounts: whoever looks, and whenever, the sum is the same."""
    bucket = MemoryBucket()
    accounts = [b"account/%d" % i for i in range(8)]
    with open_kv(bucket, create=True, parallel_writes_max=3, flush_bytes=20_000, flush_ms=1) as db:
        db.write(dict.fromkeys(accounts, b"100")).result()
        lock = Runtime().lock()
        sums: list[int] = []

        def transfer() -> None:
            for i in range(150):
                source, target = accounts[i % 8], accounts[(i * 3 + 1) % 8]
                with lock:
                    a, b = int(db.get(source) or 0), int(db.get(target) or 0)
                    if source != target:
                        handle = db.write({source: b"%d" % (a - 7), target: b"%d" % (b + 7)})
                if i % 25 == 0:
                    handle.result()

        def watch() -> None:
            for _ in range(100):
                values = [value for _, value in db.items(prefix=b"account/")]
                sums.append(sum(map(int, values)))

        def read() -> None:
            with read_kv(bucket) as reader:
                for _ in range(50):
                    reader.poll()
                    sums.append(sum(int(value) for _, value in reader.items()))

        run_all([transfer, transfer, watch, read])
        compact(bucket, Runtime())
        db.refresh()
        watch()
    assert set(sums) == {800}
    assert len(sums) == 250


def test_a_fenced_writer_that_is_closed_keeps_no_garbage() -> None:
    bucket, hand = MemoryBucket(), Hand()
    first = opened(bucket, hand)
    second = opened(bucket, hand)
    with pytest.raises(FencedError):
        first.refresh()
    assert len(second.snapshots.list()) == 2
    first.close()
    assert [kept.id for kept in second.snapshots.list()] == list(second._lease._held.values())
    second.close()
