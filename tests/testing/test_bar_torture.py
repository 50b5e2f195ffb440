"""Real writers of bars, really killed, on a real directory."""

from pathlib import Path

import pytest

from holdfast.doors import open_bars
from holdfast.testing.bar_torture import BarKillRounds
from holdfast.testing.bar_writer import write_rounds
from holdfast.testing.explorer import BrokenPromiseError


def test_real_kills_lose_and_invent_nothing(tmp_path: Path) -> None:
    rounds = BarKillRounds(tmp_path / "bars")
    try:
        for life in range(3):
            rounds.start()
            assert rounds.hear(30 + 20 * life)
            rounds.kill()
            rounds.check()
    finally:
        rounds.stop()
    assert rounds.kills == 3
    assert rounds.promises.acknowledged > 60


def test_lost_and_invented_rows_are_reported(tmp_path: Path) -> None:
    rounds = BarKillRounds(tmp_path)
    with open_bars(tmp_path, create=True) as store:
        write_rounds(store, 1, 3)
    rounds.promises.hear("ack 4")
    with pytest.raises(BrokenPromiseError, match="3 of 4"):
        rounds.check()
    rounds.promises.hear("ack 2")
    with pytest.raises(BrokenPromiseError, match="no round after 2"):
        rounds.check()
    rounds.promises.hear("begin 3 3")
    rounds.check()
    with open_bars(tmp_path, create=True) as store:
        store.delete("B", "1Min", "BAR")
    with pytest.raises(BrokenPromiseError, match="not what was written"):
        rounds.check()
