import errno
import time

import pytest
from tests.kv.stores import Hand, collect, compact, latest, rows_of
from tests.kv.test_writer import opened

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import (
    ClosedError,
    CorruptError,
    DiskFullError,
    FencedError,
    UnavailableError,
)
from holdfast.formats.sst import Rows
from holdfast.kv import KvReader
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.names import manifest_name, wal_name
from holdfast.kv.wal import create, encode


class Gap:
    """The design's example: of SSTs 0 to 3, number 2 is late.  Ours are 2 to 5."""

    def __init__(self) -> None:
        self.bucket, self.hand = MemoryBucket(), Hand()
        opened(self.bucket, self.hand, parallel_writes_max=2).close()  # time 0: two fences
        self.write(3, b"b")  # time 1
        self.write(5, b"d")  # time 2

    def write(self, wal_id: int, key: bytes) -> None:
        rows = Rows.from_pairs([(key, b"of %d" % wal_id, wal_id)])
        create(self.bucket, wal_name(wal_id), encode(rows, 1, self.hand.runtime), 1)

    def reader(self, **options: object) -> KvReader:
        return read_kv(self.bucket, runtime=self.hand.runtime, **options)  # type: ignore[arg-type]


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


def test_a_reader_shows_one_state_until_it_is_refreshed() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        with read_kv(bucket, runtime=hand.runtime) as reader:
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
    assert not latest(bucket, hand).snapshots


def test_a_snapshot_keeps_what_a_reader_shows() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        for i in range(5):
            db.put(b"%d" % i, b"old").result()
        with read_kv(bucket, memory_bytes_max=0, runtime=hand.runtime) as reader:
            for i in range(5):
                db.put(b"%d" % i, b"new").result()
            compact(bucket, hand.runtime)
            db.refresh()
            collect(bucket, hand.runtime)
            assert {value for _, value in reader.items()} == {b"old"}
        db.refresh()  # gives back what the state before needed
        collect(bucket, hand.runtime)
        assert len(bucket.list("wal")) == 1  # with the reader gone, all but the last one go


REFUSALS = (
    OSError(errno.EROFS, "Read-only file system"),
    PermissionError(errno.EACCES, "Permission denied"),
    DiskFullError(errno.ENOSPC, "No space left on device"),
)


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.strerror)
@pytest.mark.parametrize("when", ["before it opens", "later"])
def test_a_reader_needs_no_space_and_no_rights(
    error: OSError, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        compact(bucket, hand.runtime)
        at = db.snapshots.create(10**9).manifest_id

    def refuse(*arguments: object, **options: object) -> None:
        raise error

    options = {"runtime": hand.runtime, "snapshot_ttl_ms": 9000}
    readers = [read_kv(bucket, at=at, **options), read_kv(bucket, **options)]  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(bucket, "put_if_absent", refuse)
        if when == "before it opens":
            readers = [read_kv(bucket, at=at, **options), read_kv(bucket, **options)]  # type: ignore[arg-type]
        hand.ms += 4000
        for reader in readers:
            for step in (reader.poll, reader.refresh):
                step()
                assert dict(reader.items()) == {b"a": b"1"}
            assert reader.manifest_id == at or reader is readers[1]
        readers[1].close()
    readers[0].close()
    with opened(bucket, hand) as db:
        db.put(b"a", b"2").result()


def test_any_other_error_of_a_reader_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, hand = MemoryBucket(), Hand()
    opened(bucket, hand).close()

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(bucket, "put_if_absent", fail)
    with pytest.raises(OSError, match="Input/output"):
        read_kv(bucket, runtime=hand.runtime)


def test_a_lazy_reader_writes_nothing_and_follows_collected_ssts() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        before = bucket.list("")
        with read_kv(bucket, lazy=True, memory_bytes_max=0, runtime=hand.runtime) as reader:
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
            with pytest.raises(UnavailableError, match="open a new view"):
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
            states[db.snapshot(ttl_ms=10_000 * (i + 1)).manifest_id] = b"%d" % i
            compact(bucket, hand.runtime)
            db.refresh()
        hand.ms += 15_000
        collect(bucket, hand.runtime)
        expired, *active = states
        for manifest_id in active:
            for lazy in (False, True):
                with read_kv(bucket, at=manifest_id, lazy=lazy, runtime=hand.runtime) as reader:
                    assert reader.get(b"a") == states[manifest_id]
                    reader.refresh()
                    assert reader.poll() == 0
                    assert reader.get(b"a") == states[manifest_id]
        for lazy in (False, True):
            with pytest.raises(ValueError, match="not active"):
                read_kv(bucket, at=expired, lazy=lazy, runtime=hand.runtime)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_manifest_that_goes_while_it_is_opened_was_not_active_for_long(lazy: bool) -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1")
        at = db.snapshot(ttl_ms=10_000).manifest_id
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
        with pytest.raises(ValueError, match="no longer active"):
            read_kv(bucket, at=at, lazy=lazy, runtime=hand.runtime)


def test_a_reader_renews_its_snapshot_and_survives_losing_it() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = read_kv(bucket, snapshot_ttl_ms=10_000, runtime=hand.runtime)
        kept = read_kv(bucket, at=reader.manifest_id, snapshot_ttl_ms=10_000, runtime=hand.runtime)

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


def test_a_reader_can_poll_in_the_background() -> None:
    bucket = MemoryBucket()
    with open_kv(bucket, create=True) as db, read_kv(bucket, poll_ms=2) as reader:
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
        with read_kv(bucket, runtime=hand.runtime) as reader:
            assert calls
            assert dict(reader.items()) == {b"a": b"2"}


def test_there_must_be_a_store_and_it_must_be_open() -> None:
    for lazy in (False, True):
        with pytest.raises(FileNotFoundError, match="no manifest"):
            read_kv(MemoryBucket(), lazy=lazy)
    world = Gap()
    reader = world.reader()
    reader.close()
    reader.close()
    for call in (reader.poll, reader.refresh, reader.view, lambda: reader.get(b"a")):
        with pytest.raises(ClosedError, match="closed"):
            call()


@pytest.mark.parametrize("lazy", [False, True])
def test_what_a_zombie_writes_into_a_collected_slot_is_never_shown(lazy: bool) -> None:
    """A reader that slept finds, where it would read on, an SST that nobody acknowledged."""
    bucket, hand = MemoryBucket(), Hand()
    zombie = opened(bucket, hand)
    zombie.put(b"a", b"1").result()
    reader = read_kv(bucket, lazy=lazy, runtime=hand.runtime)
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
        kept = db.snapshot(ttl_ms=10_000)
        reader = read_kv(
            bucket,
            at=kept.manifest_id if at else None,
            lazy=True,
            memory_bytes_max=0,
            cache_bytes_max=0,
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
            with pytest.raises(UnavailableError, match="no longer active"):
                reader.get(b"a")
        else:
            assert reader.get(b"a") == b"1"  # it looks at the newest state
        reader.close()


def test_a_dropped_snapshot_is_reported_as_dropped_and_not_as_damage() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = read_kv(bucket, memory_bytes_max=0, cache_bytes_max=0, runtime=hand.runtime)
        view = reader.view()
        db.put(b"b", b"2").result()
        db.snapshots.drop(*(entry.id for entry in db.snapshots.list()))
        db.put(b"c", b"3").result()
        compact(bucket, hand.runtime)
        collect(bucket, hand.runtime)
        with pytest.raises(UnavailableError, match="has expired"):
            view.get(b"a")
        bucket.delete(*(info.name for info in bucket.list("levels")))
        reader.refresh()
        with pytest.raises(CorruptError, match="missing; the manifest names it"):
            dict(reader.items())
        with pytest.raises(CorruptError, match="a live snapshot needs it"):
            dict(reader.view().items())
        reader.close()


def test_a_lazy_reader_that_polls_follows_the_newest_manifest() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = read_kv(bucket, lazy=True, memory_bytes_max=0, runtime=hand.runtime)
        for number in range(3):  # each compaction replaces what the reader has read
            db.put(b"b", b"%d" % number).result()
            compact(bucket, hand.runtime)
            db.refresh()
            db.refresh()  # without the snapshot of the state before
            collect(bucket, hand.runtime)
            reader.poll()
            view = reader.view()
            assert dict(view.items()) == {b"a": b"1", b"b": b"%d" % number}
        load = BulkLoad(bucket, hand.runtime)
        load.commit(write_sorted(bucket, load.job, [rows_of(c=b"loaded")], hand.runtime))
        assert reader.poll() == 0
        assert reader.get(b"c") == b"loaded"
        assert dict(reader.items())[b"c"] == b"loaded"
        reader.close()


def test_a_scan_of_a_lazy_reader_reads_the_newest_state_if_an_sst_was_collected() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        db.put(b"b", b"2").result()
        db.put(b"c", b"3").result()
        reader = read_kv(
            bucket, lazy=True, memory_bytes_max=0, cache_bytes_max=0, runtime=hand.runtime
        )
        scan = reader.items()  # not started
        compact(bucket, hand.runtime)
        db.refresh()
        db.refresh()
        collect(bucket, hand.runtime)
        assert dict(scan) == dict(reader.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
        bucket.delete(*(info.name for info in bucket.list("levels")))
        with pytest.raises(CorruptError, match="missing; the manifest names it"):
            dict(reader.items())
        with pytest.raises(CorruptError, match="missing; the manifest names it"):
            reader.get(b"a")
        reader.close()


def test_a_reader_whose_clock_stood_still_shows_what_was_written_meanwhile() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
        reader = read_kv(bucket, runtime=hand.runtime)
        db.put(b"b", b"2").result()
        db.put(b"c", b"3").result()
        snapshots = [kept.id for kept in db.snapshots.list()]
        db.snapshots.drop(*snapshots)  # expired, by all clocks but the reader's
        compact(bucket, hand.runtime)
        collect(bucket, hand.runtime)
        reader.poll()
        assert dict(reader.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
        reader.close()
