import logging
from typing import Any

import pytest
from tests.kv.stores import Hand
from tests.kv.upkeep import MIN_AGE_MS, TINY, World, latest, listed

from holdfast.bucket.bucket import Buffer, ObjectInfo
from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import UnavailableError
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GcOptions
from holdfast.kv.maintenance import MANIFESTS_MAX, MaintenanceOptions
from holdfast.kv.manifests import create_store
from holdfast.kv.names import LEVELS, MANIFESTS, WAL
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.tasks import StoppedError

OPTIONS = MaintenanceOptions(TINY, gc_interval_ms=10 * MIN_AGE_MS)


class KeptWorld(World):
    """A store whose writer maintains it."""

    def open(self) -> Kv:
        return open_kv(
            self.bucket,
            create=True,
            flush_ms=None,
            watch_ms=None,
            gc_min_age_ms=MIN_AGE_MS,
            runtime=self.hand.runtime,
            maintain=OPTIONS,
        )


def test_while_nothing_has_gathered_nothing_is_written() -> None:
    world = KeptWorld()
    before = listed(world.bucket)
    world.db.maintain()
    assert listed(world.bucket) == before
    assert world.manifest().compactor_epoch == 0


def test_the_writer_compacts_its_wal_and_its_levels_and_forgets_what_it_had_in_memory() -> None:
    world = KeptWorld()
    for _ in range(20):
        world.put()
        world.db.maintain()
        assert world.db.wal_count < TINY.wal_count
    assert world.db.manifest.l0_count + len(world.db.manifest.runs) < 2 * TINY.unit_count
    assert world.manifest().compactor_epoch == 1
    world.check()


def test_garbage_is_collected_now_and_then() -> None:
    world = KeptWorld()
    for _ in range(8):
        world.put()
        world.db.maintain()
    many = len(listed(world.bucket))
    world.hand.ms += OPTIONS.gc_interval_ms
    world.db.refresh()
    world.db.maintain()
    assert len(listed(world.bucket)) < many
    # A fence, the last compacted one, and one that is not yet.
    assert len(world.bucket.list(WAL)) == 3
    world.check()


def test_a_fenced_compactor_does_not_fence_the_other() -> None:
    world = KeptWorld()
    world.put()
    world.put()
    world.db.maintain()
    other = world.compactor()
    for _ in range(4):
        world.put()
        world.db.maintain()
    assert world.manifest().compactor_epoch == other.epoch
    assert world.db.wal_count == 4
    assert other.run_until_quiet()
    world.check()


def test_closing_stops_a_compaction_between_two_tasks() -> None:
    world = KeptWorld()
    for _ in range(3):
        world.put()
    assert world.db._maintenance is not None
    world.db._maintenance.stop()
    world.db.maintain()
    assert not world.bucket.list(LEVELS)
    world.check()


def test_a_failure_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = KeptWorld()
    for _ in range(3):
        world.put()
    (name, *_) = [info.name for info in world.bucket.list(WAL) if info.size > 200]
    data = world.bucket.get(name)
    world.bucket.delete(name)
    world.bucket.put_if_absent(name, data[:-1])
    with caplog.at_level(logging.WARNING, "holdfast"):
        world.db.maintain()
    assert name in caplog.text
    world.bucket.delete(name)
    world.bucket.put_if_absent(name, data)
    before = latest(world.bucket, world.hand)[0]
    world.db.maintain()
    assert latest(world.bucket, world.hand)[0] > before
    world.check()


def test_a_plan_takes_a_limited_part_of_a_long_wal() -> None:
    world = World()
    for _ in range(10):
        world.put()
    plans = []
    compactor = Compactor(
        world.bucket, world.hand.runtime, CompactionOptions(wal_count=2, wal_count_max=4)
    )
    while (plan := compactor.step()) is not None:
        plans.append(len(plan.sources))
    assert plans == [4, 4, 3]
    world.check()


def test_garbage_is_collected_between_the_compactions_of_a_long_wal() -> None:
    """While more is written than can be compacted, nothing else must wait for the end of it."""
    world = KeptWorld()
    for _ in range(20):
        world.put()
    done: list[str] = []
    assert world.db._maintenance is not None
    collector = world.db._maintenance._collector
    honest = collector.collect

    def collect(*what: Any) -> Any:
        done.append("collected")
        return honest(*what)

    collector.collect = collect  # type: ignore[method-assign, assignment]
    world.hand.ms += OPTIONS.gc_interval_ms
    refresh = world.db.refresh

    def keep_writing() -> None:
        refresh()
        done.append("compacted")
        if len(done) < 30:
            world.put()
            world.put()
            world.hand.ms += OPTIONS.gc_interval_ms // 8

    world.db.refresh = keep_writing  # type: ignore[method-assign]
    world.db.maintain()
    assert done[0] == "collected"
    assert 2 < done.count("collected") < done.count("compacted")
    world.check()


def test_many_manifests_are_collected_before_the_interval_is_over() -> None:
    world = KeptWorld()
    for _ in range(MANIFESTS_MAX + 2):
        world.db.snapshots.drop(world.db.snapshot(1000).id)
    world.db.refresh()
    world.hand.ms += OPTIONS.gc_interval_ms // 2
    world.put()
    world.db._lease.move(lambda draft, manifest: None)
    world.db.refresh()
    before = len(world.bucket.list(MANIFESTS))
    world.compactor()
    world.put()
    world.put()
    world.db.maintain()
    assert before > MANIFESTS_MAX
    assert len(world.bucket.list(MANIFESTS)) < 20
    world.check()


def test_a_merge_stops_soon() -> None:
    world = World()
    for _ in range(8):
        world.put()
    asked: list[int] = []

    def go_on() -> bool:
        asked.append(1)
        return len(asked) < 3

    compactor = Compactor(world.bucket, world.hand.runtime, TINY, go_on=go_on)
    with pytest.raises(StoppedError):
        compactor.step()
    assert len(asked) == 3  # of eight sources
    assert not world.bucket.list(LEVELS)
    world.check()


class Counted(MemoryBucket):
    """Counts calls."""

    calls = 0

    def get(self, name: str) -> bytes:
        self.calls += 1
        return super().get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        self.calls += 1
        return super().get_range(name, start, stop)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        self.calls += 1
        return super().list(prefix, after)

    def put_if_absent(self, name: str, data: Buffer, **metadata: Any) -> None:
        self.calls += 1
        super().put_if_absent(name, data, **metadata)


@pytest.mark.parametrize("on_close", [True, False])
def test_short_lived_writers_leave_a_bounded_store(on_close: bool) -> None:
    hand = Hand()
    bucket = Counted(clock=lambda: hand.ms)
    create_store(bucket, hand.runtime, gc_min_age_ms=0)
    costs: list[int] = []
    for number in range(120):
        bucket.calls = 0
        kv = open_kv(
            bucket,
            flush_ms=None,
            watch_ms=None,
            runtime=hand.runtime,
            maintain=MaintenanceOptions(gc=GcOptions(fence_age_ms=0), on_close=on_close),
        )
        costs.append(bucket.calls)
        kv.put(b"key-%d" % number, b"value").result()
        kv.close()
        hand.ms += 1000
    wal, manifests = len(bucket.list(WAL)), len(bucket.list(MANIFESTS))
    levels = len(bucket.list(LEVELS))
    if not on_close:
        assert (wal, manifests) == (240, 241)  # as it was
        return
    assert max(costs) <= 1.5 * costs[0]
    assert wal < 100  # of 240: garbage goes when there are so many manifests
    assert manifests < 2 * MANIFESTS_MAX
    assert levels < 40
    assert sum(map(len, read_kv(bucket, lazy=True, runtime=hand.runtime).scan())) == 120


def test_closing_compacts_unless_it_is_told_not_to() -> None:
    world = KeptWorld()
    for number in range(2):
        for _ in range(5):
            world.put()
        compacted = world.manifest().wal_id_last_compacted
        world.db.close(maintain=bool(number))
        assert (world.manifest().wal_id_last_compacted > compacted) is bool(number)
        assert not [job for job in world.manifest().jobs if not job.done]
        world.db = world.open()
    world.check()


def test_closing_does_not_fence_a_compactor_at_work() -> None:
    world = KeptWorld()
    for _ in range(5):
        world.put()
    other = world.compactor()
    world.db.close()
    assert world.manifest().compactor_epoch == other.epoch
    assert other.run_until_quiet()
    world.db = world.open()
    for _ in range(5):
        world.put()
    world.hand.ms += 700_000  # by then it does not seem to work any more
    world.db.refresh()
    world.db.close()
    assert world.manifest().compactor_epoch == other.epoch + 1
    world.db = world.open()
    world.check()


def test_a_failure_while_closing_is_logged_and_the_lease_is_given_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = KeptWorld()
    for _ in range(5):
        world.put()

    def fail(*what: Any) -> Any:
        raise UnavailableError("no answer")

    monkeypatch.setattr(Compactor, "step", fail)
    with caplog.at_level(logging.WARNING, "holdfast"):
        world.db.close()
    assert "no answer" in caplog.text
    assert not world.manifest().snapshots
    world.db = world.open()
    world.check()
