from pathlib import Path

import pytest

import holdfast
from holdfast.demo import rounds
from holdfast.demo.rounds import FeedRounds
from holdfast.errors import HoldfastError


def test_a_day_is_written_by_feeds_that_are_all_killed(tmp_path: Path) -> None:
    feed = FeedRounds(tmp_path / "log", seed=3, count=20_000, seconds=2)
    told: list[rounds.Reckoning] = []
    feed.run(told.append)
    assert told == feed.ledger
    assert len(told) >= 2
    assert all(line.held for line in told)
    assert [line.kill for line in told] == list(range(1, len(told) + 1))
    assert told[-1].acknowledged == told[-1].found == 20_000
    acks = feed.heard.acks
    assert acks[-1].last == 20_000
    assert all(ack.latency_us > 0 for ack in acks)
    assert sorted(acks, key=lambda ack: ack.at_seconds) == acks
    with holdfast.open_log(tmp_path / "log", read_only=True) as log:
        assert log.read(20_000) == feed.market[-1:].tobytes()
    assert feed.arrived()[-1] == (2.0, 20_000)


class Tampered(FeedRounds):
    """Someone is at the log before the books are compared."""

    def append(self, count: int, payload: bytes) -> None:
        with holdfast.open_log(self.path) as log:
            log.append([payload] * count)


def test_what_is_lost_altered_or_invented_is_counted(tmp_path: Path) -> None:
    feed = Tampered(tmp_path / "log", seed=3, count=100, seconds=1)
    market = feed.market
    with holdfast.create_log(feed.path) as log:
        log.append([market[i : i + 1].tobytes() for i in range(10)])
    feed.heard.acknowledged = feed.heard.in_flight = 12
    line = feed._reckon()
    assert (line.lost, line.invented, line.held) == (2, 0, False)
    feed.append(3, b"\0" * 32)
    line = feed._reckon()
    assert (line.lost, line.invented) == (3, 3)  # they are not the ticks that they should be


def test_a_feed_that_fails_by_itself_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("no directory")
    with pytest.raises(HoldfastError, match="the feed failed"):
        FeedRounds(tmp_path / "log", seed=3, count=100, seconds=1).run()
    assert "NotADirectoryError" in capfd.readouterr().err
