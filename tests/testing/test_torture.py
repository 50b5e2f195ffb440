import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.disk import OsFile
from holdfast.testing import torture
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds, Promises
from holdfast.testing.owners.rounds import OwnerRounds
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
    assert report.is_conclusive
    assert report.images > 100  # a loaded machine makes fewer than the thousands of a quiet one
    assert report.kills >= 1
    assert report.acknowledged >= report.kills
    assert sum(report.damages.values()) == 2 * report.kills
    assert sum(report.lives.values()) >= 1
    assert {"a_full_disk", "the_lock_is_removed"} <= {*report.lives, *report.impossible}
    assert report.faults["power cut"] > 100
    assert seen == sorted(seen)


def test_a_broken_log_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OsFile.write_at
    monkeypatch.setattr(
        OsFile, "write_at", lambda self, at, data, sync=False: honest(self, at, data)
    )
    report = Torture("shanghai", tmp_path, seed=1).run(3, lambda r: None)
    assert not report.held
    assert sum(report.broken_simulated.values()) == len(report.failures) > 0


class Quiet(KillRounds):
    """Its writers live, and acknowledge nothing."""

    def start(self, *command: str) -> None:
        super().start(sys.executable, "-c", "import time; time.sleep(600)")


def test_a_writer_that_acknowledges_nothing_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torture, "KillRounds", Quiet)
    monkeypatch.setattr(torture, "LIMIT_S", 0.5)
    report = Torture("shanghai", tmp_path, seed=1).run(1, lambda r: None)
    assert report.silent >= 1
    assert (report.kills, report.acknowledged) == (0, 0)
    assert report.images > 0
    assert report.held
    assert not report.is_conclusive


def test_a_writer_that_ends_by_itself_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(KillRounds):
        def start(self, *command: str) -> None:
            super().start(sys.executable, "-c", "pass")

    monkeypatch.setattr(torture, "KillRounds", Short)
    report = Torture("shanghai", tmp_path, seed=1).run(1, lambda r: None)
    assert "hidden: the writer ended by itself: 0" in report.failures


def test_an_acknowledgement_is_waited_for_and_not_a_time(tmp_path: Path) -> None:
    slow = "import time; time.sleep(1); print('ack 3', flush=True); time.sleep(60)"
    rounds = KillRounds(tmp_path / "log")
    rounds.start(sys.executable, "-c", slow)
    assert not rounds.acknowledges(0)
    assert rounds.acknowledges()
    rounds.kill()
    assert (rounds.acknowledged, rounds.promises.acknowledged) == (3, 3)
    with pytest.raises(RuntimeError, match="no writer was started"):
        rounds.kill()


def test_a_life_of_an_owner_that_fails_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # where another package has our name
    package = tmp_path / "holdfast" / "testing" / "owners"
    package.mkdir(parents=True)
    for directory in (package, package.parent, package.parent.parent):
        (directory / "__init__.py").touch()
    (package / "lives.py").write_text("raise SystemExit('the lock was stolen')")
    lives = OwnerRounds("bars", tmp_path)
    lives.start()
    with pytest.raises(BrokenPromiseError, match="refused: the lock was stolen"):
        lives.judge()
    assert (tmp_path / "life-0").exists()
    assert sum(lives.counts.values()) == 0


def test_torture_does_not_import_pytest() -> None:
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
