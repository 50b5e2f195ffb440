from pathlib import Path
from types import SimpleNamespace

import pytest

import holdfast
from holdfast.demo.ledger import Ledger, Line
from holdfast.errors import HoldfastError


def test_a_day_survives_writers_that_are_all_killed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "log", seed=3, count=20_000, seconds=2)
    shown: list[Line] = []
    ledger.run(shown.append)
    assert shown == ledger.lines
    assert [line.kill for line in shown] == list(range(1, len(shown) + 1))
    assert len(shown) >= 2
    assert not any(line.lost or line.invented for line in shown)
    assert shown[-1].acknowledged == shown[-1].found == 20_000
    assert ledger.heard.latencies_us
    assert all(latency_us > 0 for latency_us in ledger.heard.latencies_us)
    with holdfast.read_log(tmp_path / "log") as log:
        assert log.read(20_000) == ledger.ticks[-1].tobytes()


def test_lost_altered_and_invented_entries_are_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "log", seed=3, count=100, seconds=1)
    with holdfast.create_log(ledger.path) as log:
        log.append([tick.tobytes() for tick in ledger.ticks[:10]])
    ledger.heard.hear("begin 1 12")
    ledger.heard.hear("ack 12 400")
    line = ledger.compare()
    assert (line.acknowledged, line.found, line.lost, line.invented) == (12, 10, 2, 0)
    with holdfast.open_log(ledger.path) as log:
        log.append([b"\0" * 24] * 3)
    line = ledger.compare()
    assert (line.lost, line.invented) == (3, 3)  # altered, and nobody appended them
    ledger.heard.hear("begin 14 15")
    line = ledger.compare()
    assert (line.in_flight, line.lost, line.invented) == (2, 0, 0)


def test_a_writer_that_fails_by_itself_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "log", seed=3, count=100, seconds=1)
    nothing = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(holdfast, "create_log", lambda path, **options: nothing)
    with pytest.raises(HoldfastError, match="the writer ended by itself: 1, see above"):
        ledger.run()
    assert "NotFoundError" in capfd.readouterr().err
