import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.disk import OsFile


def test_the_ledger_is_printed_and_nothing_is_left_behind(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["torture", str(tmp_path), "--seconds", "2", "--seed", "5"])
    assert result.exit_code == 0
    assert "shanghai, seed 5" in result.stdout
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
    assert "is in" in result.stderr
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
