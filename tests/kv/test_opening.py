import pytest
from tests.kv.stores import Hand, collect, compact
from tests.kv.test_db import Broken, opened
from tests.kv.test_wal import World

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError, FencedError, UnavailableError
from holdfast.kv import Reader
from holdfast.kv.names import manifest_name, wal_name
from holdfast.kv.opening import replay
from holdfast.kv.snapshots import listed
from holdfast.kv.tables import Cache


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


def test_an_opener_who_fails_gives_its_snapshot_back() -> None:
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


def test_what_a_dead_opener_left_hinders_nobody() -> None:
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
    with opened(bucket, hand, memory_bytes=memory_bytes) as db:
        assert dict(db.items()) == model
        assert {key: db.get(key) for key in model} == model
        assert db.put(b"x", b"y").result() == 41
    tail = replay(bucket, Cache(2**20, hand.runtime), hand, 1, 41, memory_bytes)  # type: ignore[arg-type]
    assert tail.last_seq == 40
    assert bool(tail.tables) == (memory_bytes < 2**20)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", [2, 3, 4])
def test_an_sst_that_was_lost_is_told_and_never_fenced_over(lost: int, crashed: bool) -> None:
    bucket, hand = MemoryBucket(), Hand()
    db = opened(bucket, hand)
    for i in range(3):
        db.put(b"%d" % i, b"v").result()
    if not crashed:
        db.close()  # it notes how far the WAL went
    bucket.delete(wal_name(lost))
    if crashed and lost == 4:  # the last one of a writer that crashed: nobody can know of it
        assert opened(bucket, hand).get(b"1") == b"v"
        return
    before = bucket.list("")
    with pytest.raises(CorruptError, match=wal_name(lost)):
        opened(bucket, hand)
    for lazy in (False, True):
        with pytest.raises(CorruptError, match=wal_name(lost)):
            Reader(bucket, lazy=lazy, runtime=hand.runtime)
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
