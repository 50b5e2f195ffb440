from pathlib import Path

import pytest

from holdfast.doors import open_kv
from holdfast.kv.names import wal_name
from holdfast.testing.actors import SimulationReport
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kv_simulation import Simulation
from holdfast.testing.kv_torture import KvKillRounds
from holdfast.testing.kv_writer import COUNTER, round_key, round_value
from holdfast.testing.torture import Torture


def left_by_a_writer(path: Path, last: int) -> KvKillRounds:
    with open_kv(str(path), create=True, flush_ms=None, watch_ms=None, maintain=False) as db:
        for number in range(1, last + 1):
            rows = {round_key(number): round_value(number), COUNTER: b"%d" % number}
            db.write(rows).result()
    return KvKillRounds(path)


def test_a_store_is_compared_with_what_its_writer_acknowledged(tmp_path: Path) -> None:
    rounds = left_by_a_writer(tmp_path, 9)
    for line in ("open 1 0", "begin 8", "ack 8", "begin 9", "begin 10"):
        rounds.promises.hear(line)
    rounds.check()
    assert rounds.promises.acknowledged == rounds.promises.in_flight == 9
    rounds.promises.acknowledged = 10
    with pytest.raises(BrokenPromiseError, match="lost: 9 of 10 acknowledged"):
        rounds.check()


def test_invented_and_changed_rounds_are_reported(tmp_path: Path) -> None:
    rounds = left_by_a_writer(tmp_path, 3)
    with pytest.raises(BrokenPromiseError, match="invented: 3, but no round after 0"):
        rounds.check()
    rounds.promises.in_flight = 3
    with open_kv(str(tmp_path), flush_ms=None, watch_ms=None, maintain=False) as db:
        db.put(round_key(2), b"of somebody else").result()
    with pytest.raises(BrokenPromiseError, match="lost: round 1 to round 3"):
        rounds.check()
    (tmp_path / wal_name(2)).write_bytes(b"rubbish")
    with pytest.raises(BrokenPromiseError, match="hidden: CorruptError"):
        rounds.check()


def test_simulations_kills_and_failures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, seeds = Simulation.run, []

    def run(self: Simulation) -> SimulationReport:
        seeds.append((self.seed, self.mode))
        if len(seeds) == 2:
            raise BrokenPromiseError("broken", "for once")
        return honest(self)

    monkeypatch.setattr(Simulation, "run", run)
    report = Torture("kv", tmp_path, seed=3).run(4, lambda report: None)
    assert seeds[:3] == [(3_000_000, "native"), (3_000_000, "two-phase"), (3_000_001, "native")]
    assert report.failures == ["broken: for once"]
    assert report.broken_simulated["broken"] == 1
    assert sum(report.broken_killed.values()) == 0
    assert report.kills >= 1
    assert report.steps > 500
    assert report.simulated_acknowledged > 0
    assert report.faults["slow"] > 0
