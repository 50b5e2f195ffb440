"""A real process, really frozen."""

from pathlib import Path

from holdfast.demo.clerk import clerk_key
from holdfast.demo.fencing import freeze_and_fence
from holdfast.kv import Db


def test_a_frozen_writer_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    Db.open(str(tmp_path), gc_min_age_ms=2_000, maintain=False).close()
    fencing = freeze_and_fence(tmp_path)
    assert (fencing.epoch, fencing.successor) == (2, 3)
    assert (fencing.lost, fencing.stray) == (0, 0)
    assert "writer 2 was fenced" in fencing.why
    assert fencing.acknowledged >= 25
    moments = (fencing.opened_at, fencing.frozen_at, fencing.taken_at, fencing.woken_at)
    assert sorted(moments) == list(moments)
    with Db.open(str(tmp_path), maintain=False) as db:
        assert db.get(clerk_key(2, fencing.acknowledged)) == b"%d" % fencing.acknowledged
        assert db.get(clerk_key(2, fencing.acknowledged + 2)) is None
