import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.disk import OsFile
from holdfast.testing.kills import KillRounds, Promises
from holdfast.testing.torture import Torture
from holdfast.testing.writer import random_payloads


def test_fifty_real_kills_lose_nothing(tmp_path: Path) -> None:
    rounds = KillRounds(tmp_path / "log", seed=3)
    try:
        while rounds.kills < 50:
            rounds.start()
            wait = rounds.kills % 5  # from inside start-up to well into its appends
            rounds.hear(until_lines=10 * wait)
            rounds.kill()
            rounds.check()
    finally:
        rounds.stop()
    assert rounds.promises.acknowledged > 1000


def test_a_short_torture_counts_what_it_did(tmp_path: Path) -> None:
    seen: list[int] = []
    report = Torture("shanghai", tmp_path, seed=1).run(4, lambda r: seen.append(r.images))
    assert report.held
    assert report.images > 1000
    assert report.kills >= 1
    assert report.faults["power cut"] > 1000
    assert seen == sorted(seen)


def test_a_broken_log_is_caught_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OsFile.write_at
    monkeypatch.setattr(
        OsFile, "write_at", lambda self, at, data, sync=False: honest(self, at, data)
    )
    report = Torture("shanghai", tmp_path, seed=1).run(3, lambda r: None)
    assert not report.held
    assert sum(report.broken_simulated.values()) == len(report.failures) > 0


def test_those_who_only_torture_need_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import holdfast.testing.torture"
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in holdfast.testing.__all__:
        assert getattr(holdfast.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        holdfast.testing.nonesuch  # noqa: B018


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are shanghai"):
        Torture("nonesuch", tmp_path, 0)


def test_promises_are_what_was_said_last() -> None:
    promises = Promises()
    for line in ("begin 1 3", "ack 3", "begin 4 9"):
        promises.hear(line)
    assert (promises.acknowledged, promises.in_flight) == (3, 9)


def test_payloads_depend_on_seed_and_index_alone() -> None:
    assert random_payloads(1)(5) == random_payloads(1)(5)
    assert random_payloads(1)(5) != random_payloads(2)(5)
