import pickle
from itertools import pairwise

import pytest
from tests.kv.stores import Hand
from tests.kv.upkeep import TINY, World

from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import LeaseLostError
from holdfast.formats.sst import Rows
from holdfast.formats.sst.block import Compression
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.cas.two_phase import TwoPhaseBucket
from holdfast.kv.names import LEVELS, level_name
from holdfast.kv.plans import CompactionOptions, Plan
from holdfast.kv.tasks import Merged, Task, cut, cuts, merge_task
from holdfast.testing.sim_records import SimRecords


def ready() -> tuple[World, Plan]:
    """A store whose next compaction is one of levels."""
    world = World(2)
    compactor = world.compactor()
    for _ in range(8):
        world.put(8)
        world.put(8)
        plan = compactor.plan()
        assert plan is not None
        assert plan.is_wal
        compactor.step()
    plan = compactor.plan()
    assert plan is not None
    return world, plan


def test_cuts_lie_so_many_bytes_apart() -> None:
    anchors = [(b"%03d" % i, 10) for i in range(100)]
    found = cuts(anchors, 100)
    assert found == [b"%03d" % i for i in range(10, 100, 10)]
    assert cuts(anchors, 10_000) == []
    assert cuts([], 10) == []
    assert cuts([(b"a", 50), (b"a", 50), (b"a", 50), (b"b", 1)], 60) == [b"a", b"b"]


def test_tasks_share_the_keys_among_them_and_each_reads_only_what_it_needs() -> None:
    world, plan = ready()
    compactor = world.compactor()
    tasks = compactor.tasks(compactor.begin(plan))
    assert len(tasks) > 3
    assert (tasks[0].start, tasks[-1].stop) == (None, None)
    assert all(a.stop == b.start for a, b in pairwise(tasks))
    assert sum(len(run) for task in tasks for run in task.sources) >= len(plan.sst_ids)
    shipped: list[Task] = pickle.loads(pickle.dumps(tasks))
    assert shipped == tasks
    merged = [merge_task(world.bucket, task) for task in shipped]
    assert pickle.loads(pickle.dumps(merged)) == merged
    assert sum(task.row_count for task in merged) == plan.row_count
    infos = [sst.info for task in merged for sst in task.ssts]
    assert all(a.last_key < b.first_key for a, b in pairwise(infos))


def test_a_task_may_run_twice_and_either_result_will_do() -> None:
    world, plan = ready()
    compactor = world.compactor()
    begun = compactor.begin(plan)
    tasks = compactor.tasks(begun)
    twins = [(merge_task(world.bucket, task), merge_task(world.bucket, task)) for task in tasks]
    assert not {sst.id for a, _ in twins for sst in a.ssts} & {
        sst.id for _, b in twins for sst in b.ssts
    }
    chosen = [world.random.choice(pair) for pair in twins]
    compactor.commit(begun, chosen)
    world.check()


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_one_task_or_many_give_the_same_rows(compression: Compression) -> None:
    world, plan = ready()
    compactor = world.compactor()
    job = compactor.begin(plan).job
    whole = CompactionOptions(task_size=1 << 30, compression=compression)
    (task,) = cut(job, plan, whole, world.bucket, world.hand.runtime)
    one = merge_task(world.bucket, task)
    many = [
        merge_task(world.bucket, task)
        for task in cut(job, plan, TINY, world.bucket, world.hand.runtime)
    ]
    assert row_count([one]) == row_count(many)
    assert one.ssts[0].info.compression == compression


def row_count(merged: list[Merged]) -> int:
    return sum(sst.info.row_count for task in merged for sst in task.ssts)


def test_a_task_whose_job_was_ended_and_retired_ends_too() -> None:
    """Records of two-phase writes refuse all ids of such a job: trying on would never end."""
    hand = Hand()
    bucket = TwoPhaseBucket(MemoryBucket(), SimRecords(), new_id=hand.runtime.new_id)
    world = World(1, bucket, hand)
    load = BulkLoad(bucket, hand.runtime, TINY)
    bucket.retire(LEVELS, level_name(load.job.job.base + 2**32 - 1))
    with pytest.raises(LeaseLostError, match="refused"):
        write_sorted(bucket, load.job, [Rows.from_pairs([(b"a", b"1", 0)])], hand.runtime)
    world.check()
