"""The demo with a real Spark, one of whose Python workers dies."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.demo.pipeline import BATCHES


def test_the_whole_demo(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo", "--seconds", "2", "--seed", "4", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["held"]
    assert (found["lost"], found["invented"], found["doubled"]) == (0, 0, 0)
    assert found["killing"]["kills"] >= 2
    streaming, fencing = found["streaming"], found["fencing"]
    assert streaming["rows"] == found["acknowledged"] == 60_000
    assert streaming["killed_worker"] > 0
    assert streaming["batches"] == BATCHES
    assert found["maintenance"]["rolled"] == {"5Min": 6 * 78, "1H": 6 * 7, "1D": 6}
    assert found["maintenance"]["deleted"] > 0
    assert fencing["successor"] > fencing["epoch"]
    assert "fenced" in fencing["error"]
    assert found["verified"] == dict.fromkeys(("log", "prices", "bars"), "clean")
    assert found["facts"]["Spark"].startswith("4.")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    report = (tmp_path / "report.html").read_text()
    assert f"worker {streaming['killed_worker']} killed with -9" in report
