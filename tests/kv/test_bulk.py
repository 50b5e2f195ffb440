from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.kv.upkeep import (
    MIN_AGE_MS,
    TINY,
    Failing,
    World,
    apply,
    copied,
    latest,
    listed,
    load_rows,
    needed,
    read,
)

from holdfast.bucket.bucket import Bucket, ObjectInfo
from holdfast.errors import LeaseLostError, UnavailableError
from holdfast.formats.sst import Rows
from holdfast.kv import jobs
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.names import LEVELS, WAL


def begun(world: World, **kwargs: Any) -> BulkLoad:
    return BulkLoad(world.bucket, world.hand.runtime, TINY, **kwargs)


def put(world: World, key: bytes, value: bytes) -> None:
    world.db.put(key, value).result()
    world.model[key] = value


def load(world: World, load: BulkLoad, rows: dict[bytes, bytes | None]) -> None:
    assert load_rows(world.bucket, world.hand, load, rows)
    apply(world.model, rows)


def test_a_load_is_newer_than_what_was_acknowledged_before_and_older_than_what_comes() -> None:
    world = World()
    put(world, b"level", b"old")
    put(world, b"gone", b"old")
    world.compactor().compact_everything()
    put(world, b"l0", b"old")
    world.compactor().step()
    one = begun(world)
    put(world, b"wal", b"old")
    load(world, one, {b"level": b"new", b"l0": b"new", b"wal": b"new", b"gone": None})
    assert world.db.get(b"wal") == b"old"  # this writer has not looked yet
    world.check()
    assert world.model == {b"level": b"new", b"l0": b"new", b"wal": b"new"}
    put(world, b"wal", b"newest")
    world.check()
    world.compactor().compact_everything()
    world.check()


def test_no_reader_sees_a_part_of_a_load() -> None:
    world = World()
    put(world, b"a", b"1")
    one = begun(world)
    ssts = write_sorted(world.bucket, one.job, [Rows.from_pairs([(b"a", b"2", 0)])])
    world.check()
    assert one.commit(ssts)
    world.model[b"a"] = b"2"
    world.check()


def test_sequence_numbers_of_a_load_are_below_those_of_the_wal() -> None:
    world = World()
    put(world, b"a", b"1")
    world.compactor().compact_everything()
    put(world, b"b", b"1")
    one = begun(world)
    assert one.job.seq == 1
    load(world, one, {b"a": b"2", b"c": b"3"})
    assert world.manifest().last_seq == 2  # the WAL's, not the load's
    assert world.db.put(b"d", b"4").result() == 3


def test_a_replayed_batch_changes_nothing() -> None:
    world = World(5)
    assert world.load(transaction=("query", 7))
    assert not world.load(transaction=("query", 7))
    assert not world.load(transaction=("query", 3))
    assert world.load(transaction=("other", 7))
    early, late = begun(world, transaction=("query", 8)), begun(world, transaction=("query", 8))
    load(world, early, {b"key-01": b"once"})
    world.db.refresh()
    put(world, b"key-01", b"since")
    assert not load_rows(world.bucket, world.hand, late, {b"key-01": b"twice"})
    world.check()
    notes = {note.query_id: note.batch_id for note in world.manifest().transactions}
    assert notes == {"query": 8, "other": 7}
    assert not [job for job in world.manifest().jobs if not job.done]


def test_an_empty_batch_is_noted_too() -> None:
    world = World()
    assert begun(world, transaction=("query", 0)).commit([])
    assert begun(world, transaction=("query", 0)).is_committed
    assert not len(world.manifest().sst_ids)


def test_a_commit_that_is_repeated_changes_nothing() -> None:
    world = World()
    one = begun(world)
    ssts = write_sorted(world.bucket, one.job, [Rows.from_pairs([(b"a", b"1", 0)])])
    assert one.commit(ssts)
    before = latest(world.bucket, world.hand)[0]
    world.compactor().compact_everything()
    assert one.commit(ssts)
    one.abandon()
    assert latest(world.bucket, world.hand)[0] == before + 1  # the compactor's epoch
    world.model = {b"a": b"1"}
    world.check()


def test_wrong_rows_are_refused_and_leave_the_store_alone() -> None:
    world = World()
    one = begun(world)
    with pytest.raises(ValueError, match="rise"):
        write_sorted(world.bucket, one.job, [Rows.from_pairs([(b"b", b"", 0), (b"a", b"", 0)])])
    chunks = [Rows.from_pairs([(b"a", b"", 0)]), Rows.from_pairs([(b"a", b"", 0)])]
    with pytest.raises(ValueError, match="does not follow"):
        write_sorted(world.bucket, one.job, chunks)
    large = [Rows.from_pairs([(b"b", bytes(400), 0)]), Rows.from_pairs([(b"a", b"", 0)])]
    with pytest.raises(ValueError, match="does not follow"):
        write_sorted(world.bucket, one.job, large)
    twice = [
        sst
        for _ in range(2)
        for sst in write_sorted(world.bucket, one.job, [Rows.from_pairs([(b"a", b"", 0)])])
    ]
    with pytest.raises(ValueError, match="must not overlap"):
        one.commit(twice)
    world.check()


def test_an_abandoned_or_expired_load_cannot_commit() -> None:
    world = World()
    one, two = begun(world), begun(world)
    one.abandon()
    with pytest.raises(LeaseLostError):
        one.commit([])
    world.hand.ms += jobs.JOB_TTL_MS + 7200_000
    world.collect()
    with pytest.raises(LeaseLostError):
        two.commit([])


def test_a_compactor_that_is_faster_during_the_commit_does_no_harm() -> None:
    world = World()
    for _ in range(3):
        world.put()
    compactor = world.compactor()
    bucket = Interrupted(world.bucket, compactor.step)
    rows: dict[bytes, bytes | None] = {b"key-05": b"loaded", b"key-06": None}
    assert load_rows(bucket, world.hand, BulkLoad(bucket, world.hand.runtime, TINY), rows)
    assert bucket.fired
    apply(world.model, rows)
    world.check()


def test_a_second_faster_collector_does_no_harm() -> None:
    """A part of the WAL is compacted and deleted between two looks of the commit."""
    for number in count(1):
        world = World()
        for _ in range(10):
            put(world, b"key", b"old")
        world.hand.ms += 2 * MIN_AGE_MS

        def everything(world: World = world) -> object:
            plan = world.compactor().step()
            assert plan is not None
            assert 1 < plan.wal_last < 11
            world.let_go()
            return world.collect()

        bucket = Interrupted(world.bucket, everything, number)
        load = BulkLoad(world.bucket, world.hand.runtime, TINY)
        ssts = write_sorted(world.bucket, load.job, [Rows.from_pairs([(b"key", b"new", 0)])])
        load._bucket = load._store._bucket = bucket
        assert load.commit(ssts)
        world.model[b"key"] = b"new"
        world.check()
        if not bucket.fired:
            break
    assert number > 6


class Interrupted(Failing):
    """Lets others act before its nth call, or the first that reads an SST of the WAL."""

    def __init__(self, bucket: Bucket, act: Callable[[], object], number: int = 0) -> None:
        super().__init__(bucket, 10**9, after=False)
        self._act, self._when, self.fired = act, number, False

    def get(self, name: str) -> bytes:
        self._look(name.startswith(WAL) and not self._when)
        return super().get(name)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        self._look(False)
        return super().list(prefix, after)

    def _look(self, is_wal: bool) -> None:
        if not self.fired and (is_wal or self.calls + 1 == self._when):
            self.fired = True
            assert self._act() is not None


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "lost_answer"])
def test_a_load_that_dies_anywhere_is_there_or_not_and_its_replay_makes_it_once(
    after: bool,
) -> None:
    world = World(2)
    for _ in range(3):
        world.put()
    origin, hand, before = world.memory, world.hand, dict(world.model)
    world.db.close()
    rows = {b"key-%02d" % i: (b"loaded-%d" % i if i % 3 else None) for i in range(20)}
    loaded = dict(before)
    apply(loaded, rows)
    outcomes = set()
    for number in count(1):
        bucket = copied(origin, hand)
        failing = Failing(bucket, number, after=after)
        try:
            one = BulkLoad(failing, hand.runtime, TINY, transaction=("query", 1))
            load_rows(failing, hand, one, rows)
        except UnavailableError:
            found = read(bucket, hand)
            assert found in (before, loaded)
            outcomes.add(found == loaded)
        else:
            break
        again = BulkLoad(bucket, hand.runtime, TINY, transaction=("query", 1))
        if not again.is_committed:
            assert load_rows(bucket, hand, again, rows)
        assert read(bucket, hand) == loaded
        hand.ms += jobs.JOB_TTL_MS + 3600_000 + 2 * MIN_AGE_MS
        World.collect_in(bucket, hand)
        levels = {name for name in listed(bucket) if name.startswith(LEVELS)}
        assert levels == {name for name in needed(bucket, hand) if name.startswith(LEVELS)}
        assert read(bucket, hand) == loaded
    assert number > 15
    assert outcomes == {True, False}  # the look after the commit may fail, too
