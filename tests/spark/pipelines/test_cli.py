"""`holdfast pipeline`, on the shared session."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.samples import write
from typer.testing import CliRunner, Result

from holdfast.cli.app import app
from holdfast.cli.errors import report
from holdfast.cli.pipeline_progress import _table, line
from holdfast.errors import FencedError
from holdfast.spark.pipelines import Batch


def cli(*args: object) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, args)])


def test_from_init_to_status(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "next: holdfast pipeline run pipeline.toml" in cli("init").stdout
    assert cli("init").exit_code == 1
    sound = cli("validate", "pipeline.toml")
    assert sound.stdout == "pipeline.toml is sound\n", sound.stderr
    assert "not running; 0 dead letters" in cli("status", "pipeline.toml").stdout
    ran = cli("run", "pipeline.toml", "--once")
    assert ran.exit_code == 0, ran.stderr
    assert "1 bad row kept in" in ran.stdout
    assert "archive: batch 0, 3 rows, " in ran.stderr
    lines = cli("run", "pipeline.toml", "--json").stdout.splitlines()
    assert [json.loads(text)["batches"] for text in lines] == [{}]
    found = json.loads(cli("status", "pipeline.toml", "--json").stdout)
    assert (found["dead_letters"], found["running"]) == (1, None)
    assert {sink["name"]: sink["rows"] for sink in found["sinks"]} == {
        "warm_rooms": None,
        "archive": 2,
        "dead-letters": 1,
    }


def test_problems_are_told_whatever_the_verb(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "p.toml", 'name = "p"\n')
    for verb in ("run", "validate", "status"):
        told = cli(verb, file)
        assert told.exit_code == 1
        assert f"{file}: checkpoint: add checkpoint" in told.stdout
        assert len(told.stdout.splitlines()) == 3
        found = json.loads(cli(verb, file, "--json").stdout)["problems"]
        assert [problem["key"] for problem in found] == ["checkpoint", "source", "sink"]
    assert "choose one of" in cli("run", file, "--once", "--continuous").stderr
    assert cli("status", tmp_path / "none.toml").exit_code == 1


def test_a_fenced_sink_ends_with_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(FencedError("sink.prices: epoch 3"), as_json=False, noun="pipeline") == 4
    assert "another writer has taken the sink over" in capsys.readouterr().err


def test_a_batch_is_shown() -> None:
    batch = Batch("bars", 3, 1000, 2500.4, {"ticks": 12, "kv": 0, "rate": None}, 0)
    assert line(batch) == "bars: batch 3, 1,000 rows, 2,500 rows/s, behind ticks 12"
    made = _table({"bars": batch})
    cells = [next(iter(column.cells)) for column in made.columns]
    assert cells == ["bars", "3", "1,000", "2,500", "behind ticks 12", "1970-01-01 00:00:00Z"]
