"""The design's worked examples, by their time lines.  Its ids begin at 0, ours at 1."""

import pytest
from tests.kv.stores import Hand, collect, compact, rows_of

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError, FencedError, LockedError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import EMPTY, Info, decode_info
from holdfast.kv import wal
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import wal_name
from holdfast.kv.opening import TakeOver
from holdfast.kv.snapshots import Lease
from holdfast.kv.wal import Fencing, Tenure, WalWriter, Window, create, encode, winner_of

GC_MIN_AGE_MS = 1000


class World:
    """One bucket, and writers that are moved step by step."""

    def __init__(self, parallel: int = 1) -> None:
        self.bucket, self.hand, self.parallel = MemoryBucket(), Hand(), parallel
        self.store = ManifestStore(self.bucket, self.hand.runtime)
        self.store.create(Manifest.create(created_ms=1, gc_min_age_ms=GC_MIN_AGE_MS))

    def bump(self, parallel: int | None = None) -> "Steps":
        """A writer that has raised the epoch, and written nothing yet."""
        runtime = self.hand.runtime
        lease = Lease(self.store, runtime, ttl_ms=10_000)
        opening = TakeOver(self.bucket, self.store, runtime, lease, parallel or self.parallel)
        return Steps(self, opening)

    def open(self, parallel: int | None = None) -> "Steps":
        steps = self.bump(parallel)
        steps.open()
        return steps

    def info(self, wal_id: int) -> Info:
        data = self.bucket.get(wal_name(wal_id))
        return decode_info(data, len(data))

    def epochs(self) -> list[int]:
        """Of the SSTs in the WAL, in order of their ids, which are contiguous."""
        count = len(self.bucket.list("wal"))
        return [self.info(wal_id).writer_epoch for wal_id in range(1, count + 1)]


class Steps:
    """A writer, one request at a time."""

    def __init__(self, world: World, opening: TakeOver) -> None:
        self.opening, self.bump = opening, opening.bump()
        self.fencing = self.bump.fencing
        self.writer = WalWriter(world.bucket, world.hand.runtime, self.bump.tenure)
        self.parallel = world.parallel

    def open(self) -> None:
        last = self.opening.fence(self.bump)
        self.opening.settle(self.bump)
        self.window = Window(last + 1, self.parallel)

    def begin(self) -> int:
        return self.window.take()

    def write(self, wal_id: int) -> None:
        self.writer.write(wal_id, rows_of(key=b"of writer %d" % self.bump.tenure.epoch))
        self.window.done(wal_id)


def test_a_new_writer_fences_an_older_one() -> None:
    world = World()
    one = world.open()  # time 0: its own fence
    one.write(one.begin())  # time 1
    two = world.bump()
    assert two.fencing.step()  # time 2
    with pytest.raises(FencedError, match="writer 1 was fenced by writer 2"):
        one.write(one.begin())  # time 3
    two.open()
    two.write(two.begin())  # time 4
    assert world.epochs() == [1, 1, 2, 2]


def test_a_new_writer_tries_the_next_id_when_an_older_one_was_faster() -> None:
    world = World()
    one = world.open()  # time 0
    one.write(one.begin())  # time 1
    two = world.bump()
    one.write(one.begin())  # time 2
    assert not two.fencing.step()  # time 3
    assert two.fencing.step()  # time 4
    assert two.fencing.done
    assert world.epochs() == [1, 1, 1, 2]
    with pytest.raises(FencedError):
        one.write(one.begin())


def test_two_writers_with_one_epoch_are_refused() -> None:
    world = World()
    world.open()
    two = world.bump()
    twin = encode(EMPTY, 2, world.hand.runtime)
    create(world.bucket, wal_name(2), twin, 2)
    with pytest.raises(CorruptError, match="two writers have epoch 2"):
        two.fencing.step()


def test_a_new_writer_is_fenced_before_its_own_fence_stands() -> None:
    world = World()
    one = world.open()  # time 0
    one.write(one.begin())  # time 1
    two, three = world.bump(), world.bump()
    assert three.fencing.step()  # time 2
    with pytest.raises(FencedError, match="writer 2 was fenced by writer 3"):
        two.fencing.step()  # time 3
    three.open()
    three.write(three.begin())  # time 4
    assert world.epochs() == [1, 1, 3, 3]


def test_two_parallel_writes_take_two_fences() -> None:
    world = World(parallel=2)
    one = world.open()  # times 0 and 1: two fences
    third, fourth = one.begin(), one.begin()
    two = world.bump()
    assert two.fencing.step()  # time 2: SST 2
    one.write(fourth)  # time 3: SST 3
    with pytest.raises(FencedError):
        one.write(third)  # time 4: SST 2
    with pytest.raises(ValueError, match="in flight"):
        one.begin()  # it halts
    assert not two.fencing.step()  # time 5: SST 3 is taken, so the row begins anew
    assert two.fencing.step()  # time 6: SST 4
    assert not two.fencing.done
    assert two.fencing.step()  # time 7: SST 5
    assert two.fencing.done
    assert world.epochs() == [1, 1, 2, 1, 2, 2]
    assert world.info(4).row_count == 1  # written by a zombie, and valid


def test_three_writers_at_once() -> None:
    world = World(parallel=2)
    runtime = world.hand.runtime
    one = world.open()  # times 0 and 1
    third, fourth = one.begin(), one.begin()
    # In the text, writer 2 lists the WAL after it has raised the epoch, and so begins at SST 3.
    two = Fencing(world.bucket, runtime, epoch=2, start=4, count=2)
    three = Fencing(world.bucket, runtime, epoch=3, start=3, count=2)
    assert three.step()  # time 2: SST 2
    one.write(fourth)  # time 3: SST 3
    with pytest.raises(FencedError):
        one.write(third)  # time 4: SST 2
    assert not two.step()  # time 5: SST 3
    assert not three.step()  # time 6: SST 3
    assert two.step()  # time 7: SST 4
    assert not three.step()  # time 8: SST 4
    assert three.step()  # time 9: SST 5
    with pytest.raises(FencedError, match="writer 2 was fenced by writer 3"):
        two.step()  # time 10: SST 5
    assert three.step()  # time 11: SST 6
    assert three.done
    assert world.epochs() == [1, 1, 3, 1, 2, 3, 3]
    assert [world.info(i).row_count for i in range(1, 8)] == [0, 0, 0, 1, 0, 0, 0]


def test_a_slow_opener_never_fences_among_a_newer_writers_ids() -> None:
    world = World()
    world.open()
    two = world.bump()  # lists, raises the epoch, and stalls
    three = world.open()
    three.write(three.begin())
    with pytest.raises(FencedError, match="writer 2 was fenced by writer 3"):
        two.fencing.step()
    assert world.epochs() == [1, 3, 3]


def test_an_id_is_not_begun_before_the_window_reaches_it() -> None:
    window = Window(next_id=5, parallel=3)
    assert [window.take(), window.take(), window.take()] == [5, 6, 7]
    window.done(7)
    window.done(6)
    assert not window.has_room  # one is in flight only, but 8 - 3 is not acknowledged
    window.done(5)
    assert window.last_done == 7
    assert [window.take(), window.take(), window.take()] == [8, 9, 10]
    with pytest.raises(ValueError, match="at least one"):
        Window(1, 0)


def test_fences_cover_whatever_any_older_writer_may_have_in_flight() -> None:
    world = World(parallel=4)
    one = world.open()
    flying = [one.begin() for _ in range(4)]
    world.bump(parallel=1)  # raises the epoch, and dies before its fences stand
    three = world.open(parallel=1)
    for wal_id in flying:
        with pytest.raises(FencedError):
            one.write(wal_id)
    assert world.epochs() == [1, 1, 1, 1, 3, 3, 3, 3]
    latest = world.store.latest()
    assert latest is not None
    assert latest[1].max_parallel_writes == 1  # the next one needs one fence only
    assert three.window.next_id == 9


def test_a_stalled_writer_does_not_acknowledge_what_it_wrote_into_a_collected_slot() -> None:
    world = World()
    one = world.open()
    stalled = one.begin()
    two = world.open()
    for _ in range(3):
        two.write(two.begin())
    compact(world.bucket, world.hand.runtime)
    world.hand.ms += 100 * GC_MIN_AGE_MS  # all snapshots expire
    assert wal_name(stalled) in collect(world.bucket, world.hand.runtime)
    with pytest.raises(FencedError, match="writer 1 was fenced: writer 2 has taken over"):
        one.write(stalled)
    assert world.info(stalled).writer_epoch == 1  # the trap: it was created


def test_a_stalled_opener_does_not_open_in_a_collected_slot() -> None:
    world = World()
    world.open()
    two = world.bump()
    three = world.open()
    for _ in range(3):
        three.write(three.begin())
    compact(world.bucket, world.hand.runtime)
    world.hand.ms += 100 * GC_MIN_AGE_MS
    assert wal_name(2) in collect(world.bucket, world.hand.runtime)
    with pytest.raises(FencedError, match="writer 2 was fenced: writer 3 has taken over"):
        two.open()
    assert world.info(2).writer_epoch == 2  # its fence stands where nobody will ever look


def test_the_epoch_is_looked_up_only_when_it_was_known_too_long_ago() -> None:
    world = World()
    one = world.open()
    known = world.store.latest
    looked: list[int] = []

    def latest() -> tuple[int, Manifest] | None:
        looked.append(world.hand.ms)
        return known()

    world.store.latest = latest  # type: ignore[method-assign]
    for _ in range(6):
        world.hand.ms += 200
        one.write(one.begin())
    begun = looked[0] - 600
    assert looked == [begun + 600, begun + 1200]


def test_without_a_minimum_age_every_write_is_validated() -> None:
    world = World()
    world.open()
    tenure = Tenure(world.store, world.hand.runtime, 1, 0, world.hand.ms)
    zealous = WalWriter(world.bucket, world.hand.runtime, tenure)
    zealous.write(2, rows_of(a=b"1"))
    world.bump()
    with pytest.raises(FencedError):
        zealous.write(3, rows_of(a=b"2"))


def test_an_older_writers_object_above_its_fence_is_never_written_around() -> None:
    world = World()
    world.open()
    two = world.open()
    wal_id = two.begin()
    create(world.bucket, wal_name(wal_id), encode(EMPTY, 1, world.hand.runtime), 1)
    with pytest.raises(CorruptError, match="taken by writer 1"):
        two.write(wal_id)


def test_our_own_object_does_not_conflict() -> None:
    world = World()
    data = encode(rows_of(a=b"1"), 7, world.hand.runtime)
    create(world.bucket, wal_name(1), data, 7)
    assert winner_of(world.bucket, wal_name(1), data) == 7
    assert winner_of(world.bucket, wal_name(2), data) is None


def test_a_busy_writer_cannot_starve_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "FENCE_LOSSES_MAX", 5)
    world = World()
    one = world.open()
    two = world.bump()
    for _ in range(4):
        one.write(one.begin())
        assert not two.fencing.step()
    one.write(one.begin())
    with pytest.raises(LockedError, match="busy writer"):
        two.fencing.step()
