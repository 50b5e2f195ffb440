from dataclasses import replace
from itertools import count

import pytest
from tests.kv.upkeep import MIN_AGE_MS, TINY, Failing, World, copied, latest, listed, needed, read

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError, FencedError, LeaseLostError, UnavailableError
from holdfast.formats.manifest import JobKind
from holdfast.kv import jobs
from holdfast.kv.compaction import Compaction, Compactor
from holdfast.kv.gc import GarbageCollector
from holdfast.kv.names import LEVELS, WAL, level_name
from holdfast.kv.tasks import Merged, merge_task


def merge_planned(world: World, compactor: Compactor) -> tuple[Compaction, list[Merged]]:
    """All of what is planned next, but for the commit."""
    plan = compactor.plan()
    assert plan is not None
    begun = compactor.begin(plan)
    tasks = compactor.tasks(begun)
    return begun, [merge_task(world.bucket, task, world.hand.runtime) for task in tasks]


@pytest.mark.parametrize("seed", range(8))
def test_compaction_at_any_moment_changes_nothing_that_is_read(seed: int) -> None:
    world = World(seed)
    compactor = world.compactor()
    for _ in range(60):
        drawn = world.random.randrange(12)
        if drawn < 5:
            world.put()
        elif drawn < 8:
            compactor.step()
        elif drawn == 8:
            compactor.compact_everything()
        elif drawn == 9:
            world.load()
        elif drawn == 10:
            compactor = world.compactor()
        else:
            world.db.close()
            world.db = world.open()
        if world.random.random() < 0.3:
            world.check()
    world.check()
    compactor.run_until_quiet()
    compactor.compact_everything()
    manifest = world.manifest()
    assert (manifest.l0_count, len(manifest.runs)) == (0, 1)
    world.check()


def test_a_run_is_cut_into_ssts_and_loses_its_tombstones_at_the_bottom() -> None:
    world = World()
    for _ in range(12):
        world.put(8)
    compactor = world.compactor()
    compactor.compact_everything()
    (run,) = world.manifest().runs
    assert len(run) > 2
    assert sum(sst.row_count for sst in run) == len(world.model)
    assert all(sst.size < 4 * TINY.sst_size for sst in run)
    world.check()


def test_tombstones_stay_while_anything_older_lies_below() -> None:
    world = World()
    world.db.put(b"key", b"old").result()
    compactor = world.compactor()
    compactor.compact_everything()
    for _ in range(4):
        world.db.delete(b"key").result()
        world.db.put(b"other", b"x").result()
        compactor.step()
    compactor.run_until_quiet()
    world.model = {b"other": b"x"}
    world.check()
    compactor.compact_everything()
    world.check()
    assert sum(sst.row_count for sst in world.manifest().runs[0]) == 1


def test_everything_deleted_leaves_no_run_at_all() -> None:
    world = World()
    world.db.put(b"key", b"value").result()
    compactor = world.compactor()
    compactor.compact_everything()
    world.db.delete(b"key").result()
    compactor.compact_everything()
    assert not len(world.manifest().sst_ids)
    assert world.manifest().last_seq == 2  # a writer must not use the numbers again
    world.check()


def test_a_wal_of_fences_becomes_nothing() -> None:
    world = World()
    world.db.close()
    world.db = world.open()
    fences = len(world.bucket.list(WAL))
    assert fences >= 2
    plan = world.compactor().step()
    assert plan is not None
    assert plan.is_wal
    manifest = world.manifest()
    assert (manifest.wal_id_last_compacted, len(manifest.sst_ids)) == (fences, 0)


def test_the_older_of_two_compactors_is_fenced_at_its_commit() -> None:
    world = World()
    for _ in range(4):
        world.put()
    older = world.compactor()
    begun, merged = merge_planned(world, older)
    newer = world.compactor()
    assert newer.epoch == older.epoch + 1
    with pytest.raises(FencedError, match="compactor 1 was fenced: compactor 2"):
        older.commit(begun, merged)
    with pytest.raises(FencedError):
        older.step()
    assert newer.run_until_quiet()
    world.check()


def test_a_commit_that_is_repeated_changes_nothing() -> None:
    world = World()
    for _ in range(4):
        world.put()
    compactor = world.compactor()
    begun, merged = merge_planned(world, compactor)
    compactor.commit(begun, merged)
    before = latest(world.bucket, world.hand)[0]
    compactor.commit(begun, merged)
    world.compactor()  # even when another has taken over since
    compactor.commit(begun, merged)
    assert latest(world.bucket, world.hand)[0] == before + 1
    world.check()


def test_a_lost_job_raises_and_its_work_is_garbage() -> None:
    world = World()
    for _ in range(4):
        world.put()
    compactor = world.compactor()
    begun, merged = merge_planned(world, compactor)
    world.hand.ms += jobs.JOB_TTL_MS + 7200_000
    assert world.collect().expired_jobs == 1
    with pytest.raises(LeaseLostError, match="start it again"):
        compactor.commit(begun, merged)
    assert compactor.run_until_quiet()
    world.check()


def test_a_commit_needs_every_task_and_every_row() -> None:
    world = World()
    for _ in range(8):
        world.put(8)
    compactor = world.compactor()
    plan = compactor.plan()
    while plan is not None and plan.is_wal:
        compactor.step()
        plan = compactor.plan()
    begun, merged = merge_planned(world, compactor)
    assert len(merged) > 2
    with pytest.raises(ValueError, match="each is needed"):
        compactor.commit(begun, merged[1:])
    with pytest.raises(ValueError, match="each is needed"):
        compactor.commit(begun, [*merged, merged[0]])
    with pytest.raises(ValueError, match=f"rows of {begun.plan.row_count}"):
        compactor.commit(begun, [replace(merged[0], row_count=0), *merged[1:]])
    compactor.commit(begun, merged[::-1])
    world.check()


def test_a_load_between_plan_and_commit_sends_the_compactor_back_to_plan() -> None:
    world = World()
    for _ in range(4):
        world.put()
    compactor = world.compactor()
    begun, merged = merge_planned(world, compactor)
    assert begun.plan.is_wal
    world.load()
    with pytest.raises(LeaseLostError, match="plan again"):
        compactor.commit(begun, merged)
    world.put()
    world.put()
    assert compactor.run_until_quiet()
    world.check()


def test_runs_are_merged_in_their_place_below_what_came_meanwhile() -> None:
    world = World()
    compactor = world.compactor()
    for _ in range(6):
        world.put()
        world.put()
        compactor.step()
    begun, merged = merge_planned(world, compactor)
    assert not begun.plan.is_wal
    world.put()
    world.load()
    world.put()
    world.put()
    second, done = merge_planned(world, compactor)  # several may be under way
    assert second.plan.is_wal
    compactor.commit(second, done)
    compactor.commit(begun, merged)
    world.check()
    assert len([job for job in world.manifest().jobs if not job.done]) == 1  # for the next one


def test_a_damaged_sst_stops_the_merge_and_commits_nothing() -> None:
    world = World()
    for _ in range(4):
        world.put()
    compactor = world.compactor()
    compactor.run_until_quiet()
    name = level_name(int(world.manifest().sst_ids[0]))
    data = bytearray(world.bucket.get(name))
    data[40] ^= 1
    world.bucket.delete(name)
    world.bucket.put_if_absent(name, bytes(data))
    before = latest(world.bucket, world.hand)[0]
    with pytest.raises(CorruptError, match=name):
        compactor.compact_everything()
    world.bucket.delete(name)
    with pytest.raises(CorruptError, match="missing"):
        compactor.compact_everything()
    assert latest(world.bucket, world.hand)[0] == before


def test_an_sst_that_is_not_the_one_the_manifest_names_is_damage() -> None:
    world = World()
    for _ in range(12):
        world.put(8)
    compactor = world.compactor()
    compactor.compact_everything()
    first, second = (level_name(int(id)) for id in world.manifest().sst_ids[:2])
    other = world.bucket.get(second)
    world.bucket.delete(first)
    world.bucket.put_if_absent(first, other)
    world.put()
    with pytest.raises(CorruptError):
        compactor.compact_everything()


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "lost_answer"])
def test_a_compaction_that_dies_anywhere_leaves_nothing_but_garbage(after: bool) -> None:
    world = World(3)
    for _ in range(3):
        world.put()
    world.load()
    world.put()
    world.put()
    origin, hand = world.memory, world.hand
    world.db.close()
    for number in count(1):
        bucket = copied(origin, hand)
        failing = Failing(bucket, number, after=after)
        try:
            compactor = Compactor(failing, hand.runtime, TINY)
            compactor.run_until_quiet()
            compactor.compact_everything()
        except UnavailableError:
            assert read(bucket, hand) == world.model
        else:
            break
        again = Compactor(bucket, hand.runtime, TINY)
        again.compact_everything()
        assert read(bucket, hand) == world.model
        hand.ms += 2 * MIN_AGE_MS
        collect_all(world, bucket)
        assert read(bucket, hand) == world.model
    assert number > 30


def collect_all(world: World, bucket: MemoryBucket) -> None:
    GarbageCollector(bucket, world.hand.runtime).collect()
    levels = {name for name in listed(bucket) if name.startswith(LEVELS)}
    assert levels == {name for name in needed(bucket, world.hand) if name.startswith(LEVELS)}


def test_a_compactor_that_is_fenced_right_after_its_commit_notices_at_the_next() -> None:
    world = World()
    compactor = world.compactor()
    world.put()
    world.put()
    assert compactor.step() is not None
    world.compactor()
    world.put()
    world.put()
    with pytest.raises(FencedError):
        compactor.run_until_quiet()


def test_marks_of_done_jobs_are_few() -> None:
    world = World()
    manifest = world.manifest()
    for number in range(100):
        draft = manifest.edit()
        id = world.hand.runtime.new_id().bytes
        jobs.begin(draft, id, JobKind.BULK_LOAD, world.hand.runtime)
        jobs.finish(draft, jobs.Job(id, 0, 0))
        manifest = draft.freeze()
        assert len(manifest.jobs) == min(number + 1, 64)
        assert manifest.jobs[-1].id == id
        assert manifest.jobs[-1].done


def test_a_step_costs_one_manifest() -> None:
    world = World()
    compactor = world.compactor()
    before = latest(world.bucket, world.hand)[0]
    for _ in range(4):
        world.put()
        world.put()
        assert compactor.step() is not None
    assert latest(world.bucket, world.hand)[0] - before == 4
