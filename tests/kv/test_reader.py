import time

import pytest
from tests.kv.stores import Hand, collect, compact
from tests.kv.test_db import opened

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError, FencedError, PoisonedError, UnavailableError
from holdfast.formats.sst import Rows
from holdfast.kv import Db, Reader
from holdfast.kv.names import manifest_name, wal_name
from holdfast.kv.wal import create, encode


class Gap:
    """The design's example: of SSTs 0 to 3, number 2 is late.  Ours are 2 to 5."""

    def __init__(self) -> None:
        self.bucket, self.hand = MemoryBucket(), Hand()
        opened(self.bucket, self.hand, max_parallel_writes=2).close()  # time 0: two fences
        self.write(3, b"b")  # time 1
        self.write(5, b"d")  # time 2

    def write(self, wal_id: int, key: bytes) -> None:
        rows = Rows.from_pairs([(key, b"of %d" % wal_id, wal_id)])
        create(self.bucket, wal_name(wal_id), encode(rows, 1, self.hand.runtime), 1)

    def reader(self, **options: object) -> Reader:
        return Reader(self.bucket, runtime=self.hand.runtime, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_reader_waits_at_a_gap(lazy: bool) -> None:
    world = Gap()
    with world.reader(lazy=lazy) as reader:
        assert dict(reader.items()) == {b"b": b"of 3"}
        assert reader.last_wal_id == 3
        assert reader.poll() == 0
        reader.refresh()
        assert reader.get(b"d") is None
        if not lazy:
            assert reader.manifest.wal_id_last_seen == 3  # and so no snapshot counts on it
        world.write(4, b"c")
        assert reader.poll() == 2
        assert list(reader.items()) == [(b"b", b"of 3"), (b"c", b"of 4"), (b"d", b"of 5")]


def test_the_next_writer_fills_the_gap() -> None:
    world = Gap()
    with world.reader() as reader, opened(world.bucket, world.hand) as db:
        assert db.last_wal_id == 7  # a fence at 4, SST 5, and two fences in a row
        assert reader.poll() == 4
        assert dict(reader.items()) == {b"b": b"of 3", b"d": b"of 5"}
        assert dict(db.items()) == dict(reader.items())


def test_a_reader_shows_one_state_until_it_moves_on() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        with Reader(bucket, runtime=hand.runtime) as reader:
            db.put(b"a", b"2").result()
            assert reader.get(b"a") == b"1"
            view = reader.view()
            assert reader.poll() == 1
            assert (reader.get(b"a"), view.get(b"a")) == (b"2", b"1")
            compact(bucket, hand.runtime)
            db.refresh()
            db.put(b"a", b"3").result()
            reader.refresh()
            collect(bucket, hand.runtime)
            assert (reader.get(b"a"), view.get(b"a")) == (b"3", b"1")
            assert list(view.items()) == [(b"a", b"1")]
            view.close()
            held = len(db.snapshots.list())
            reader.poll()
            assert len(db.snapshots.list()) == held - 1  # the view's is given back
    assert db.snapshots.list() == []


def test_a_snapshot_keeps_what_a_reader_shows() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        for i in range(5):
            db.put(b"%d" % i, b"old").result()
        with Reader(bucket, memory_bytes=0, runtime=hand.runtime) as reader:
            for i in range(5):
                db.put(b"%d" % i, b"new").result()
            compact(bucket, hand.runtime)
            db.refresh()
            collect(bucket, hand.runtime)
            assert {value for _, value in reader.items()} == {b"old"}
        db.refresh()  # gives back what the state before needed
        collect(bucket, hand.runtime)
        assert len(bucket.list("wal")) == 1  # with the reader gone, all but the last one go


def test_a_lazy_reader_writes_nothing_and_follows_collected_ssts() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        before = bucket.list("")
        with Reader(bucket, lazy=True, memory_bytes=0, runtime=hand.runtime) as reader:
            assert reader.get(b"a") == b"1"
            reader.refresh()
            assert bucket.list("") == before
            view = reader.view()
            for value in (b"2", b"3"):
                db.put(b"a", value).result()
                compact(bucket, hand.runtime)
                db.refresh()
            collect(bucket, hand.runtime)
            reader._cache.put(("", 0), None, 2**40)  # forget everything
            with pytest.raises(UnavailableError, match="read anew"):
                list(view.items())
            assert reader.get(b"a") == b"3"
            db.put(b"a", b"4").result()
            db.put(b"a", b"5").result()
            compact(bucket, hand.runtime)
            db.refresh()
            collect(bucket, hand.runtime)
            reader.poll()  # what it waits for is not late, but gone
            assert reader.get(b"a") == b"5"


def test_time_travel_needs_an_active_manifest() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        states = {}
        for i in range(4):
            db.put(b"a", b"%d" % i)
            states[db.snapshot(ttl_s=10 * (i + 1)).manifest_id] = b"%d" % i
            compact(bucket, hand.runtime)
            db.refresh()
        hand.ms += 15_000
        collect(bucket, hand.runtime)
        expired, *active = states
        for manifest_id in active:
            for lazy in (False, True):
                with Reader(bucket, at=manifest_id, lazy=lazy, runtime=hand.runtime) as reader:
                    assert reader.get(b"a") == states[manifest_id]
                    reader.refresh()
                    assert reader.poll() == 0
                    assert reader.get(b"a") == states[manifest_id]
        for lazy in (False, True):
            with pytest.raises(ValueError, match="not active"):
                Reader(bucket, at=expired, lazy=lazy, runtime=hand.runtime)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_manifest_that_goes_while_it_is_opened_was_not_active_for_long(lazy: bool) -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1")
        at = db.snapshot(ttl_s=10).manifest_id
        db.snapshot()
        honest = bucket.get
        overtaken: list[str] = []

        def get(name: str) -> bytes:
            if name == manifest_name(at) and not overtaken:
                overtaken.append(name)
                hand.ms += 3600_000  # we slept, and our snapshot expired, too
                collect(bucket, hand.runtime)
            return honest(name)

        bucket.get = get  # type: ignore[method-assign]
        with pytest.raises(ValueError, match="not active any more"):
            Reader(bucket, at=at, lazy=lazy, runtime=hand.runtime)


def test_a_reader_renews_its_snapshot_and_survives_losing_it() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = Reader(bucket, snapshot_ttl_ms=10_000, runtime=hand.runtime)
        kept = Reader(bucket, at=reader.manifest_id, snapshot_ttl_ms=10_000, runtime=hand.runtime)

        def expiries() -> list[int]:
            return [found.expires_s for found in db.snapshots.list()]

        before = expiries()
        hand.ms += 4000
        reader.poll()
        kept.poll()
        assert sum(expiries()) - sum(before) == 8
        db.put(b"a", b"2").result()
        compact(bucket, hand.runtime)
        hand.ms += 20_000  # it sleeps; both expire, and are dropped
        db.snapshots.drop(*[found.id for found in db.snapshots.list()])
        collect(bucket, hand.runtime)
        reader.poll()
        assert reader.get(b"a") == b"2"
        with pytest.raises(UnavailableError, match="expired"):
            kept.poll()
        reader.close()
        kept.close()


def test_a_reader_may_keep_up_by_itself() -> None:
    bucket = MemoryBucket()
    with Db.open(bucket) as db, Reader.open(bucket, poll_ms=2) as reader:
        db.put(b"a", b"1").result()
        deadline = time.monotonic() + 10
        while reader.get(b"a") is None and time.monotonic() < deadline:
            time.sleep(0.002)
        assert reader.get(b"a") == b"1"


def test_a_reader_opens_while_the_manifest_changes_under_it() -> None:
    """Who loses the slot reads the manifest and lists the WAL again, and then tries the next."""
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        honest = bucket.list
        calls: list[str] = []

        def listing(prefix: str, after: str = "") -> list[object]:
            found = honest(prefix, after)
            if prefix == "wal" and not calls:
                calls.append(after)
                db.put(b"a", b"2").result()
                compact(bucket, hand.runtime)  # between the reader's list and its write
                db.refresh()
                collect(bucket, hand.runtime, manifests_too=False)  # those are too young
            return found  # type: ignore[return-value]

        bucket.list = listing  # type: ignore[method-assign, assignment]
        with Reader(bucket, runtime=hand.runtime) as reader:
            assert calls
            assert dict(reader.items()) == {b"a": b"2"}


def test_there_must_be_a_store_and_it_must_be_open() -> None:
    for lazy in (False, True):
        with pytest.raises(FileNotFoundError, match="no manifest"):
            Reader.open(MemoryBucket(), lazy=lazy)
    world = Gap()
    reader = world.reader()
    reader.close()
    reader.close()
    for call in (reader.poll, reader.refresh, reader.view, lambda: reader.get(b"a")):
        with pytest.raises(PoisonedError, match="closed"):
            call()


@pytest.mark.parametrize("lazy", [False, True])
def test_what_a_zombie_writes_into_a_collected_slot_is_never_shown(lazy: bool) -> None:
    """A reader that slept finds, where it would read on, an SST that nobody acknowledged."""
    bucket, hand = MemoryBucket(), Hand()
    zombie = opened(bucket, hand)
    zombie.put(b"a", b"1").result()
    reader = Reader(bucket, lazy=lazy, runtime=hand.runtime)
    stalled = zombie.put(b"a", b"never acknowledged")
    with opened(bucket, hand) as db:
        db.put(b"b", b"2").result()
        db.put(b"c", b"3").result()
        compact(bucket, hand.runtime)
        hand.ms += 10**7  # the reader's snapshot expires
        db.refresh()
        collect(bucket, hand.runtime)
        with pytest.raises(FencedError, match="writer 2 has taken over"):
            stalled.result()
        assert bucket.get(wal_name(3))  # the trap: it is there, and next in line
        reader.poll()
        assert dict(reader.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
        reader.close()


@pytest.mark.parametrize("value", [b"x", b"of another length"])
@pytest.mark.parametrize("at", [False, True])
def test_an_old_view_does_not_show_what_a_fenced_writer_put_into_a_collected_id(
    at: bool, value: bytes
) -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        wal_id = db.last_wal_id
        kept = db.snapshot(ttl_s=10)
        reader = Reader(
            bucket,
            at=kept.manifest_id if at else None,
            lazy=True,
            memory_bytes=0,
            cache_bytes=0,
            runtime=hand.runtime,
        )
        view = reader.view()
        assert dict(view.items()) == {b"a": b"1"}
        db.put(b"b", b"2").result()
        db.put(b"c", b"3").result()
        compact(bucket, hand.runtime)
        db.refresh()
        hand.ms += 3600_000
        db.refresh()
        db.refresh()
        collect(bucket, hand.runtime)
        rows = Rows.from_pairs([(b"a", value, 1)])
        create(bucket, wal_name(wal_id), encode(rows, db.epoch - 1, hand.runtime), db.epoch - 1)
        for read in (view.get, lambda key: dict(view.items())):
            with pytest.raises(UnavailableError):
                read(b"a")
        if at:
            with pytest.raises(UnavailableError, match="not active any more"):
                reader.get(b"a")
        else:
            assert reader.get(b"a") == b"1"  # it looks at the newest state
        reader.close()


def test_who_loses_its_snapshot_to_somebody_is_told_that_and_not_of_damage() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = Reader(bucket, memory_bytes=0, cache_bytes=0, runtime=hand.runtime)
        view = reader.view()
        db.put(b"b", b"2").result()
        db.snapshots.drop(*(entry.id for entry in db.snapshots.list()))
        db.put(b"c", b"3").result()
        compact(bucket, hand.runtime)
        collect(bucket, hand.runtime)
        with pytest.raises(UnavailableError, match="its snapshot is gone"):
            view.get(b"a")
        bucket.delete(*(info.name for info in bucket.list("levels")))
        with pytest.raises(CorruptError, match="a snapshot keeps it, but it is gone"):
            reader.refresh()
            dict(reader.items())
        reader.close()
