"""The command, with Spark out of reach: tests/spark/test_demo.py has the rest."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from holdfast import spark
from holdfast.demo.ledger import Heard
from holdfast.disk import OsDisk
from holdfast.errors import MissingError
from holdfast.logs.verify import verify_log

Run = Callable[..., Result]
MISSING = "Spark is not installed.  Run: pip install 'holdfast[spark]'"
WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and no Spark."""

    def session(**options: object) -> object:
        raise MissingError(MISSING)

    monkeypatch.setitem(vars(spark), "session", session)  # setattr would look for the real one
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_without_spark_the_log_survives_and_the_rest_is_reported(run: Run, elsewhere: Path) -> None:
    result = run("demo", "--seconds", "1", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert "acknowledged 30,000, lost 0, invented 0" in result.stdout
    assert "Spark's acts are left out: Spark is not installed" in result.stdout
    assert "✓ log: clean" in result.stdout
    assert "KELP" in result.stdout
    assert "holdfast demo --seed 3 --seconds 1" in result.stdout
    assert "pip install" in result.stderr
    assert [path.name for path in elsewhere.iterdir()] == ["report.html"]
    assert "not in this run" in (elsewhere / "report.html").read_text()
    assert run("demo", "--seconds", "1").exit_code == 0  # over its own report


def test_stdout_has_only_json_and_keep_keeps_the_stores(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--seconds", "1", "--json", "--keep", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["held"]
    assert found["acknowledged"] == 30_000
    assert "streaming" not in found
    assert found["missing"] == MISSING
    assert found["facts"]["Python"] == sys.version.split()[0]
    assert found["facts"]["file system"] != "unknown"
    assert Path(found["report"]) == tmp_path / "kept" / "report.html"
    assert verify_log(OsDisk(tmp_path / "kept" / "log")).entries == 30_000
    assert run("demo", "--keep", tmp_path / "kept").exit_code == 1  # it is not empty any more


def test_a_loss_is_exit_code_2_and_the_log_is_kept(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Heard.hear

    def boastful(self: Heard, line: str) -> None:
        honest(self, line)
        if line.startswith("ack"):
            self.acknowledged = self.in_flight = self.acknowledged + 1

    monkeypatch.setattr(Heard, "hear", boastful)
    result = run("demo", "--seconds", "1", "--seed", "3")
    assert result.exit_code == 2
    assert "PROMISES WERE BROKEN" in result.stderr
    kept = re.search(r"is in (\S+)", result.stderr)
    assert kept
    assert (Path(kept[1]) / "log").is_dir()


def test_a_foreign_report_is_not_overwritten(run: Run, elsewhere: Path) -> None:
    (elsewhere / "report.html").write_text("my own work")
    result = run("demo", "--seconds", "1")
    assert result.exit_code == 1
    assert "is not a report of this command" in result.stderr
    assert (elsewhere / "report.html").read_text() == "my own work"
    assert len(list(elsewhere.iterdir())) == 1


def test_ctrl_c_leaves_nothing_behind(elsewhere: Path) -> None:
    code = (
        "import holdfast.spark, holdfast.errors\n"
        "def session(**options): raise holdfast.errors.MissingError('none')\n"
        "holdfast.spark.session = session\n"
        "from holdfast.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "demo", "--seconds", "30"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not list(elsewhere.glob("holdfast-demo-*/log/*.wal")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(demo.pid, signal.SIGINT)
        _, errors = demo.communicate(timeout=WAIT_SECONDS)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 130
    assert "Traceback" not in errors
    assert list(elsewhere.iterdir()) == []
