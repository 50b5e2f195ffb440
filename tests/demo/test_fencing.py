"""A real process, frozen by a real SIGSTOP."""

from pathlib import Path

import holdfast
from holdfast.demo.fencing import freeze_and_fence
from holdfast.demo.writer import number_key


def test_a_frozen_writer_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    holdfast.create_kv(tmp_path, maintain=False).close()
    figures, promises = freeze_and_fence(tmp_path)
    assert (figures["epoch"], figures["successor"]) == (2, 3)
    assert (figures["lost"], figures["invented"]) == (0, 0)
    assert "writer 2 was fenced" in figures["error"]
    acknowledged = figures["acknowledged"]
    assert acknowledged >= 25
    assert [promise.held for promise in promises] == [True] * 3
    assert "FENCED epoch 2 < 3: writer 2 was fenced" in promises[1].text
    with holdfast.open_kv(tmp_path, maintain=False) as kv:
        assert kv.get(number_key(2, acknowledged)) == b"%d" % acknowledged
        assert kv.get(number_key(2, acknowledged + 2)) is None
