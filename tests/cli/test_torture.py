import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.torture import describe
from holdfast.disk import OsFile
from holdfast.testing.torture import Torture, TortureReport


def test_the_ledger_is_printed_and_nothing_is_left_behind(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--seconds", "2", "--seed", "5"])
    assert result.exit_code == 0
    assert "raft-wal, seed 5" in result.stdout
    assert "every promise held" in result.stdout
    assert "crash images explored" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_and_a_broken_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OsFile.write_at
    monkeypatch.setattr(
        OsFile, "write_at", lambda self, at, data, sync=False: honest(self, at, data)
    )
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--seconds", "2", "--json"])
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert not report["held"]
    assert report["broken_simulated"]["lost"] + report["broken_simulated"]["hidden"] > 0
    assert "the files of the killed writers are in" in result.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_an_unknown_format_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--log", "nonesuch"])
    assert result.exit_code == 1
    assert "there are shanghai" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("store", "count"), [("kv", "steps simulated"), ("bars", "images explored")]
)
def test_a_store_is_tortured_too(tmp_path: Path, store: str, count: str) -> None:
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--store", store, "--seconds", "1"])
    assert result.exit_code == 0
    assert f"{store}, seed 0" in result.stdout
    assert count in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "report",
    [
        TortureReport("raft-wal", 0, 1.0),
        TortureReport(
            "raft-wal", 0, 1.0, images=9, kills=3
        ),  # of writers that had promised nothing
        TortureReport("raft-wal", 0, 1.0, kills=3, acknowledged=7),  # nothing was simulated
        TortureReport("kv", 0, 1.0, judged=7, silent=2),
    ],
)
def test_a_run_that_proves_nothing_exits_with_5(
    report: TortureReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Torture, "run", lambda self, seconds, on_progress: report)
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--seconds", "1"])
    assert result.exit_code == 5
    assert f"{report.format}, seed 0, 1.0 s: inconclusive" in result.stdout
    assert "every promise held" not in result.stdout
    assert ("silent writers         2" in result.stdout) is bool(report.silent)
    assert "pass more --seconds" in result.stderr
    document = CliRunner().invoke(app, ["torture", str(tmp_path), "--seconds", "1", "--json"])
    assert json.loads(document.stdout)["conclusive"] is False
    assert list(tmp_path.iterdir()) == []


def test_what_this_machine_does_not_permit_is_listed() -> None:
    report = TortureReport("bars", 0, 1.0, impossible=("a_full_disk",), lives={"the_lock": 2})
    assert "not possible here      a full disk" in describe(report)
    assert "owners' lives          the lock 2" in describe(report)
