from collections.abc import Callable
from itertools import count

import pytest
from tests.kv.stores import Hand
from tests.kv.upkeep import (
    MIN_AGE_MS,
    SKEW_MS,
    TINY,
    Failing,
    World,
    copied,
    latest,
    listed,
    missing,
    needed,
    read,
)

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError, FencedError, UnavailableError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import EMPTY, Rows
from holdfast.kv import Kv, gc, jobs
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.cas.two_phase import TwoPhaseBucket
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.names import LEVELS, MANIFESTS, WAL, manifest_name, wal_name
from holdfast.kv.wal import FENCE_SIZE, encode
from holdfast.runtime import Runtime
from holdfast.testing.sim_records import SimRecords


def aged(world: World) -> World:
    """A store with some of everything that becomes garbage, all of it old enough."""
    compactor = world.compactor()
    for _ in range(3):
        world.put()
        world.put()
        compactor.step()
    world.load()
    world.put()
    compactor.compact_everything()
    world.let_go()
    world.hand.ms += 2 * MIN_AGE_MS
    return world


@pytest.mark.parametrize("seed", range(8))
def test_no_needed_object_is_ever_deleted(seed: int) -> None:
    world = World(seed)
    compactor, deleted = world.compactor(), 0

    def drop() -> None:
        for id in list(world.snapshots)[:1]:
            world.db.snapshots.drop(id)
            del world.snapshots[id]

    def reopen() -> None:
        world.db.close()
        world.db = world.open()

    def collect() -> None:
        nonlocal deleted
        deleted += world.collect().count

    def snapshot() -> None:
        world.snapshot(world.random.choice([None, 60_000, 3_600_000, 8_000_000]))

    often: list[Callable[[], object]] = [world.put, compactor.step, collect]
    acts = [*often, *often, compactor.compact_everything, world.load, snapshot, drop, reopen]
    for _ in range(50):
        world.random.choice(acts)()
        world.hand.ms += world.random.choice([0, 1000, MIN_AGE_MS, SKEW_MS])
        if world.random.random() < 0.15:
            world.check()
    world.check()
    assert deleted > 5


def test_in_the_end_only_what_is_needed_is_left() -> None:
    world = aged(World(1))
    report = world.collect()
    assert set(report.counts) == {"manifest", "wal", "level"}
    assert all(report.sizes[rule] > 100 for rule in report.counts)
    world.hand.ms += 2 * MIN_AGE_MS
    left = listed(world.bucket) - needed(world.bucket, world.hand)
    alone = {manifest_name(report.manifest_id - 1)}  # young then, and alone now
    assert left <= {*alone, wal_name(1)}  # and a fence
    world.hand.ms += GcOptions().fence_age_ms
    assert world.collect().counts["wal"] == 1
    world.check()


def test_a_plan_lists_what_is_removed_and_why_and_changes_nothing() -> None:
    world = aged(World(1))
    world.put()  # so that the store's clock has moved
    before = listed(world.bucket)
    plan = GarbageCollector(world.bucket, world.hand.runtime).plan()
    assert listed(world.bucket) == before
    rules = {item.rule for item in plan.garbage}
    assert rules == {"manifest", "wal", "level"}
    world.collect()
    gone = before - listed(world.bucket)
    assert {item.name for item in plan.garbage} == gone


def test_an_idle_store_is_not_written_again_and_again() -> None:
    world = aged(World(1))
    world.collect()
    for _ in range(3):
        world.hand.ms += 2 * MIN_AGE_MS
        before = listed(world.bucket)
        assert not world.collect().count
        assert listed(world.bucket) == before


def test_snapshots_are_kept_for_slow_clocks_and_then_dropped() -> None:
    world = aged(World(1))
    world.snapshot(60_000)
    (kept,) = world.snapshots.values()
    world.put()
    compactor = world.compactor()
    compactor.compact_everything()
    world.hand.ms += SKEW_MS
    world.db.refresh()
    GarbageCollector(world.bucket, world.hand.runtime).collect()
    assert manifest_name(kept[0]) in listed(world.bucket)
    world.hand.ms += 120_000
    assert world.collect().expired_snapshots == 1
    assert manifest_name(kept[0]) not in listed(world.bucket)
    assert not [entry for entry in world.manifest().snapshots if entry.manifest_id == kept[0]]
    world.check()


def test_age_is_by_the_clock_of_the_store() -> None:
    store_ms = 1_600_000_000_000
    world = World(1, MemoryBucket(clock=lambda: store_ms))  # years behind ours
    compactor = world.compactor()
    for _ in range(4):
        world.put()
    compactor.compact_everything()
    compactor.compact_everything()
    world.db.refresh()
    assert not world.collect().count
    assert world.collect().young_count > 3
    store_ms += MIN_AGE_MS
    assert world.collect().count > 3
    world.check()


def test_what_a_live_job_wrote_is_left_alone_however_old() -> None:
    world = aged(World(1))
    load = BulkLoad(world.bucket, world.hand.runtime, TINY)
    ssts = write_sorted(world.bucket, load.job, [Rows.from_pairs([(b"a", b"1", 0)])])
    world.hand.ms += 10 * MIN_AGE_MS
    world.collect()
    assert load.commit(ssts)
    world.model[b"a"] = b"1"
    world.check()
    world.collect()
    world.check()


@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_if_a_manifest_cannot_be_read_nothing_is_deleted(damage: str) -> None:
    world = aged(World(1))
    world.snapshot(None)
    ((manifest_id, _),) = world.snapshots.values()
    name = manifest_name(manifest_id)
    data = bytearray(world.bucket.get(name))
    world.put()
    world.compactor().compact_everything()
    world.db.refresh()
    world.hand.ms += 2 * MIN_AGE_MS
    world.bucket.delete(name)
    if damage == "flip":
        data[-1] ^= 1
        world.bucket.put_if_absent(name, bytes(data))
    before = listed(world.bucket)
    collector = GarbageCollector(world.bucket, world.hand.runtime)
    with pytest.raises(CorruptError, match=name):
        collector.plan()
    with pytest.raises(CorruptError, match=name):
        collector.collect()
    assert listed(world.bucket) == before


def test_strange_files_go_after_a_day_and_only_where_the_text_says() -> None:
    world = aged(World(1))
    strays = [f"{MANIFESTS}/x.tmp", f"{WAL}/{1:019}.sst", f"{LEVELS}/note", "elsewhere/file"]
    for name in strays:
        world.bucket.put_if_absent(name, b"?")
    world.collect()
    assert listed(world.bucket) >= set(strays[:3])
    world.hand.ms += 25 * 3600_000
    report = world.collect()
    assert (report.counts["manifest_other"], report.counts["wal_other"]) == (1, 1)
    assert {info.name for info in world.bucket.list("")} >= set(strays[2:])
    assert not listed(world.bucket) & set(strays[:2])


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "lost_answer"])
def test_a_collection_that_dies_anywhere_loses_nothing_and_the_next_one_ends_it(
    after: bool,
) -> None:
    world = World(4)
    world.put()
    world.snapshot(None)
    aged(world)
    origin, hand = world.memory, world.hand
    ((manifest_id, model),) = world.snapshots.values()
    for number in count(1):
        bucket = copied(origin, hand)
        try:
            GarbageCollector(Failing(bucket, number, after=after), hand.runtime).collect()
        except UnavailableError:
            assert not missing(bucket, hand)
            assert read(bucket, hand) == world.model
            assert read(bucket, hand, manifest_id) == model
        else:
            break
        hand.ms += 2 * MIN_AGE_MS
        World.collect_in(bucket, hand)
        left = listed(bucket) - needed(bucket, hand)
        assert all(name.startswith(MANIFESTS) for name in left)
        assert read(bucket, hand) == world.model
    assert number > 8


def only_current(active: dict[int, Manifest]) -> int:
    return active[max(active)].wal_id_last_compacted


def no_jobs(manifest: Manifest) -> int:
    return manifest.next_sst_base


def snapshots_forgotten(
    self: GarbageCollector, manifest_id: int, manifest: Manifest, expired: object
) -> dict[int, Manifest]:
    return {manifest_id: manifest}


@pytest.mark.parametrize(
    ("modules", "name", "mutant"),
    [
        ([gc], "wal_first", only_current),  # the rule of the design's text
        ([gc], "first_live_id", no_jobs),
        ([GarbageCollector], "_active", snapshots_forgotten),
    ],
    ids=["the_text", "no_jobs", "no_snapshots"],
)
def test_a_collector_with_a_wrong_rule_is_caught(
    monkeypatch: pytest.MonkeyPatch, modules: list[object], name: str, mutant: Callable[..., object]
) -> None:
    world = World(4)
    world.put()
    world.snapshot(None)
    aged(world)
    load = BulkLoad(world.bucket, world.hand.runtime, TINY)
    ssts = write_sorted(world.bucket, load.job, [Rows.from_pairs([(b"a", b"1", 0)])])
    world.hand.ms += 2 * MIN_AGE_MS
    for module in modules:
        monkeypatch.setattr(module, name, mutant)
    GarbageCollector(world.bucket, world.hand.runtime).collect()
    load.commit(ssts)
    assert missing(world.bucket, world.hand)


def slept(world: World, options: GcOptions | None = None) -> tuple[Kv, str]:
    """A writer that slept while its successor wrote, compacted and collected; and its next id."""
    sleeper = world.db
    world.db = world.open()
    for _ in range(6):
        world.put()
    world.compactor().compact_everything()
    world.hand.ms += SKEW_MS + 700_000  # by then its snapshot has expired
    world.db.refresh()
    collector = GarbageCollector(world.bucket, world.hand.runtime, options)
    assert collector.collect().counts["wal"] > 3
    return sleeper, wal_name(sleeper.last_wal_id + 1)


def test_a_writer_whose_clocks_stood_still_is_refused_by_the_fence() -> None:
    world = World()
    sleeper, fence = slept(world)
    assert len(world.bucket.get(fence)) == FENCE_SIZE
    world.hand.ms -= SKEW_MS + 700_000  # what its clocks show
    with pytest.raises(FencedError, match=f"fenced by writer 2 at {fence}"):
        sleeper.put(b"key-01", b"lost").result()
    world.hand.ms += SKEW_MS + 700_000
    world.check()


def test_fences_are_kept_for_their_own_time() -> None:
    options = GcOptions(fence_age_ms=SKEW_MS)
    world = World()
    _, fence = slept(world, options)
    assert fence not in listed(world.bucket)  # it was older than an hour
    world = World()
    _, fence = slept(world, GcOptions(fence_age_ms=3 * SKEW_MS))
    assert fence in listed(world.bucket)
    world.hand.ms += 3 * SKEW_MS
    GarbageCollector(world.bucket, world.hand.runtime, options).collect()
    assert fence not in listed(world.bucket)
    world.check()


def test_a_listing_shows_which_sst_is_a_fence() -> None:
    for epoch in (1, 2**16, 2**48):
        assert len(encode(EMPTY, epoch, Runtime())) == FENCE_SIZE
    smallest = Rows.from_pairs([(b"k", None, 1)])
    assert len(encode(smallest, 1, Runtime())) == 210


def test_one_object_with_a_time_ahead_makes_no_other_old() -> None:
    world = World(1)
    for _ in range(3):
        world.put()
    world.compactor().compact_everything()
    world.let_go()
    world.hand.ms += 1000
    ahead = f"{WAL}/ahead"
    world.hand.ms += 24 * SKEW_MS
    world.bucket.put_if_absent(ahead, b"by a broken clock")
    world.hand.ms -= 24 * SKEW_MS
    collector = GarbageCollector(world.bucket, world.hand.runtime)
    assert not collector.plan().garbage  # all of it is seconds old
    world.db.snapshot(60_000)
    before = listed(world.bucket)
    world.db.snapshots.drop(*(kept.id for kept in world.db.snapshots.list()))
    assert not collector.collect().count
    assert before <= listed(world.bucket)
    world.hand.ms += 2 * MIN_AGE_MS
    assert "wal" in collector.collect().counts
    assert ahead in listed(world.bucket)
    world.hand.ms += 25 * SKEW_MS + GcOptions().other_age_ms
    assert collector.collect().counts["wal_other"] == 1


def test_a_manifest_with_a_time_ahead_makes_nothing_old() -> None:
    """The store's clock was far ahead for one write."""
    world = aged(World(1))
    world.hand.ms -= 2 * MIN_AGE_MS
    store_clock, world.memory._clock = world.memory._clock, lambda: world.hand.ms + 24 * SKEW_MS
    collector = GarbageCollector(
        world.bucket, world.hand.runtime, GcOptions(clock_skew_max_ms=MIN_AGE_MS // 2)
    )
    world.db.snapshot(60_000)
    assert not collector.collect().count
    world.memory._clock = store_clock
    world.check()


def test_a_writer_that_slept_through_a_collection_acknowledges_nothing() -> None:
    """The second guard: the fences are deleted, too."""
    world = World()
    sleeper, empty = slept(world, GcOptions(fence_age_ms=0))
    assert empty not in listed(world.bucket)
    with pytest.raises(FencedError):
        sleeper.put(b"key-01", b"lost").result()
    assert empty in listed(world.bucket)  # it won the slot, and did not believe it
    world.check()
    world.hand.ms += 2 * MIN_AGE_MS
    world.collect()
    assert empty not in listed(world.bucket)
    world.check()


def test_records_and_temporaries_of_two_phase_writes_go_too() -> None:
    hand, records = Hand(), SimRecords()
    objects = MemoryBucket(clock=lambda: hand.ms)
    world = World(1, TwoPhaseBucket(objects, records, new_id=hand.runtime.new_id), hand)
    orphan = f"{wal_name(3)}.{'0' * 32}.{'0' * 8}"
    objects.put_if_absent(orphan, b"left by a crash")
    aged(world)
    before = len(records.records)
    world.hand.ms += 25 * 3600_000
    report = world.collect()
    assert report.swept_count == 1
    assert orphan not in {info.name for info in objects.list("")}
    assert len(records.records) < before - report.count // 2
    with pytest.raises(FileExistsError):
        world.bucket.put_if_absent(wal_name(1), b"too late")
    world.check()


def test_expired_jobs_are_dropped_with_their_marks() -> None:
    world = World()
    world.load()
    BulkLoad(world.bucket, world.hand.runtime, TINY)
    assert len(world.manifest().jobs) == 2
    world.hand.ms += jobs.JOB_TTL_MS + SKEW_MS + 1
    assert world.collect().expired_jobs == 2
    assert not world.manifest().jobs
    assert latest(world.bucket, world.hand)[1].next_sst_base == 3 << 32


@pytest.mark.parametrize("step", ["plan", "collect"])
def test_a_collector_that_another_overtakes_reads_the_manifest_again(step: str) -> None:
    """A manifest that is missing because its snapshot was dropped meanwhile is not damage."""
    world = World()
    world.snapshot(ttl_ms=10_000)
    kept = manifest_name(next(iter(world.snapshots.values()))[0])
    world.put()
    world.hand.ms += 2 * MIN_AGE_MS
    honest = world.memory.get
    overtaken: list[str] = []

    def get(name: str) -> bytes:
        if name == kept and not overtaken:
            overtaken.append(name)
            world.db.snapshots.drop(*world.snapshots)
            assert GarbageCollector(world.bucket, world.hand.runtime).collect().count
        return honest(name)

    world.memory.get = get  # type: ignore[method-assign]
    getattr(GarbageCollector(world.bucket, world.hand.runtime), step)()
    assert overtaken
    assert kept not in listed(world.bucket)
    assert not missing(world.bucket, world.hand)
