from threading import Barrier
from typing import Any

import pytest
from tests.kv.stores import Hand, collect, compact
from tests.kv.test_wal import World
from tests.kv.test_writer import Broken, opened

from holdfast.bucket.bucket import Buffer
from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import CorruptError, FencedError, UnavailableError
from holdfast.formats.sst import EMPTY
from holdfast.kv.names import MANIFESTS, WAL, manifest_name, wal_ids, wal_name
from holdfast.kv.opening import replay
from holdfast.kv.snapshots import listed
from holdfast.kv.tables import Cache
from holdfast.kv.wal import FENCE_SIZE, create, encode


def test_opening_takes_one_manifest_and_one_fence() -> None:
    bucket, hand = MemoryBucket(), Hand()
    opened(bucket, hand)
    assert [info.name for info in bucket.list("")] == [
        manifest_name(1),
        manifest_name(2),
        wal_name(1),
    ]
    opened(bucket, hand)
    assert len(bucket.list("")) == 5


def test_the_snapshot_is_written_with_the_epoch() -> None:
    world = World()
    two = world.bump()
    manifest = world.store.get(two.bump.manifest_id)
    assert manifest.writer_epoch == 1
    assert [found.manifest_id for found in listed(manifest)] == [two.bump.manifest_id]


def test_a_wal_that_was_compacted_while_we_opened_is_not_fenced_below() -> None:
    """Between our listing and our epoch the writer before us goes on, compacted and collected."""
    world = World()
    one = world.open()
    one.write(one.begin())
    honest = world.store.update
    calls: list[object] = []

    def update(change):  # type: ignore[no-untyped-def]
        if not calls:
            calls.append(change)
            for _ in range(3):
                one.write(one.begin())
            compact(world.bucket, world.hand.runtime)
            world.hand.ms += 10**6
            collect(world.bucket, world.hand.runtime)
        return honest(change)

    world.store.update = update  # type: ignore[method-assign]
    two = world.bump()
    two.open()
    assert calls
    assert two.window.next_id == 7
    assert [info.name for info in world.bucket.list("wal")] == [wal_name(5), wal_name(6)]


def test_a_failed_open_drops_its_snapshot() -> None:
    world = World()
    world.open()
    two = world.bump()
    three = world.open()
    with pytest.raises(FencedError):
        two.open()
    latest = world.store.latest()
    assert latest is not None
    held = [found.manifest_id for found in listed(latest[1])]
    assert two.bump.manifest_id not in held
    assert three.bump.manifest_id in held


def test_the_remains_of_a_dead_opener_block_no_writer() -> None:
    bucket, hand = Broken(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
    bucket.is_broken = True
    with pytest.raises(UnavailableError):
        opened(bucket, hand)
    bucket.is_broken = False
    with opened(bucket, hand) as db:
        assert db.epoch == 3
        assert db.get(b"a") == b"1"


@pytest.mark.parametrize("memory_bytes", [0, 3000, 2**20])
def test_replay_reads_the_newest_into_memory_and_all_is_there(memory_bytes: int) -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        for i in range(40):
            db.put(b"%02d" % (i % 30), b"%d" % i).result()
    model = {b"%02d" % (i % 30): b"%d" % i for i in range(40)}
    with opened(bucket, hand, memory_bytes_max=memory_bytes) as db:
        assert dict(db.items()) == model
        assert {key: db.get(key) for key in model} == model
        assert db.put(b"x", b"y").result() == 41
    tail = replay(bucket, Cache(2**20, hand.runtime), hand, 1, 41, memory_bytes)  # type: ignore[arg-type]
    assert tail.last_seq == 40
    assert bool(tail.tables) == (memory_bytes < 2**20)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_lost_sst_raises_and_is_never_fenced_over(lost: int, crashed: bool) -> None:
    bucket, hand = MemoryBucket(), Hand()
    db = opened(bucket, hand)
    for i in range(3):
        db.put(b"%d" % i, b"v").result()
    if not crashed:
        db.close(maintain=False)  # it notes how far the WAL went
    bucket.delete(wal_name(lost))
    if crashed and lost == 4:  # the last one of a writer that crashed: nobody can know of it
        assert opened(bucket, hand).get(b"1") == b"v"
        return
    before = bucket.list("")
    with pytest.raises(CorruptError, match=wal_name(lost)):
        opened(bucket, hand)
    for lazy in (False, True):
        with pytest.raises(CorruptError, match=wal_name(lost)):
            read_kv(bucket, lazy=lazy, runtime=hand.runtime)
    assert bucket.list("") == before


def test_an_opening_that_outlasts_its_snapshot_is_not_trusted() -> None:
    bucket, hand = MemoryBucket(), Hand()
    with opened(bucket, hand) as db:
        db.put(b"a", b"1").result()
    honest = bucket.get

    def get(name: str) -> bytes:
        if name.startswith("wal"):
            hand.ms += 10**6
        return honest(name)

    bucket.get = get  # type: ignore[method-assign]
    with pytest.raises(UnavailableError, match="open again"):
        opened(bucket, hand)


def test_all_fences_are_created_in_one_round() -> None:
    """After a writer with 64 writes in flight, an open takes as long as a few creates."""
    fences = Barrier(64)

    class Slow(MemoryBucket):
        manifests = 0

        def put_if_absent(self, name: str, data: Buffer, **metadata: Any) -> None:
            if name.startswith(WAL) and len(data) == FENCE_SIZE:
                fences.wait(30)  # until all of them are on their way
            elif name.startswith(MANIFESTS):
                self.manifests += 1
            super().put_if_absent(name, data, **metadata)

    memory, slow = MemoryBucket(), Slow()
    with open_kv(memory, create=True, parallel_writes_max=64, maintain=False) as kv:
        kv.put(b"a", b"1").result()
    slow._objects, slow._names = memory._objects, memory._names
    with open_kv(slow, flush_ms=None, watch_ms=None, maintain=False) as kv:
        assert kv.get(b"a") == b"1"
        assert slow.manifests <= 4
        assert wal_ids(slow, after=0) == list(range(1, 130))


@pytest.mark.parametrize("lost", [5, 6, 7, 8])
def test_a_writer_that_dies_among_its_fences_leaves_a_gap_that_the_next_one_fences(
    lost: int,
) -> None:
    bucket, hand = MemoryBucket(), Hand()
    opened(bucket, hand, parallel_writes_max=4).close()
    honest = bucket.put_if_absent

    def dying(name: str, data: Buffer, **metadata: Any) -> None:
        if name == wal_name(lost):
            raise UnavailableError("it died here")
        honest(name, data, **metadata)

    bucket.put_if_absent = dying  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        open_kv(bucket, parallel_writes_max=4, flush_ms=None, watch_ms=None)
    bucket.put_if_absent = honest  # type: ignore[method-assign]
    for wal_id in {5, 6, 7, 8} - {lost, *wal_ids(bucket, after=4)}:  # which were on their way
        create(bucket, wal_name(wal_id), encode(EMPTY, 2, hand.runtime), 2)
    with opened(bucket, hand, parallel_writes_max=1) as db:
        assert db.put(b"a", b"1").result()
    with opened(bucket, hand) as db:
        assert db.get(b"a") == b"1"
