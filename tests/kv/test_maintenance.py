import logging

import pytest
from tests.kv.upkeep import MIN_AGE_MS, TINY, World, latest, listed

from holdfast.kv import Db, Options
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.names import LEVELS, WAL

OPTIONS = MaintenanceOptions(TINY, gc_interval_ms=10 * MIN_AGE_MS)


class KeptWorld(World):
    """A store whose writer looks after it."""

    def open(self) -> Db:
        return Db.open(
            self.bucket,
            Options(flush_ms=None, watch_ms=None, gc_min_age_ms=MIN_AGE_MS),
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
    assert len(world.bucket.list(WAL)) == 2  # the last compacted one, and one that is not yet
    world.check()


def test_who_is_fenced_by_another_compactor_leaves_it_alone() -> None:
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


def test_what_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
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
