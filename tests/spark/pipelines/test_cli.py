"""`holdfast pipeline`, on the shared session."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from tests.spark.pipelines.samples import write, write_ticks
from typer.testing import CliRunner, Result

from holdfast.cli.app import app
from holdfast.cli.pipeline_progress import line, shown, table
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
    assert sound.stdout == "pipeline.toml is valid\n", sound.stderr
    assert "not running; 0 dead letters" in cli("status", "pipeline.toml").stdout
    ran = cli("run", "pipeline.toml", "--once")
    assert ran.exit_code == 0, ran.stderr
    assert "1 bad row kept in" in ran.stdout
    assert "archive: batch 0, 3 rows, " in ran.stderr
    lines = cli("run", "pipeline.toml", "--json").stdout.splitlines()
    assert [json.loads(text)["batches"] for text in lines] == [{}]
    found = json.loads(cli("status", "pipeline.toml", "--json").stdout)
    assert (found["dead_letters"], found["running"]) == (1, None)
    assert {sink["name"]: (sink["rows_read"], sink["rows"]) for sink in found["sinks"]} == {
        "warm_rooms": (3, None),
        "archive": (3, 2),
        "dead-letters": (3, 1),
    }
    assert all(sink["committed_ms"] for sink in found["sinks"])
    assert all(sink["lags"][0]["source"] == "readings" for sink in found["sinks"])


def test_every_verb_reports_problems(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "p.toml", 'name = "p"\n')
    for verb in ("run", "validate", "status"):
        result = cli(verb, file)
        assert result.exit_code == 1
        assert f"{file}: checkpoint: add checkpoint" in result.stdout
        assert len(result.stdout.splitlines()) == 3
        found = json.loads(cli(verb, file, "--json").stdout)["problems"]
        assert [problem["key"] for problem in found] == ["checkpoint", "source", "sink"]
    assert "choose one of" in cli("run", file, "--once", "--continuous").stderr
    result = cli("run", tmp_path / "none.toml")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"`holdfast pipeline init {tmp_path}/none.toml` writes one\n")


def test_a_sink_that_cannot_be_created_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert cli("init", tmp_path / "p.toml").exit_code == 0
    text = (tmp_path / "p.toml").read_text().replace('path = "archive"', 'path = "p.toml/archive"')
    result = cli("run", write(tmp_path / "p.toml", text))
    assert result.exit_code == 1
    assert "holdfast: sink.archive: Parent path is not a directory" in result.stderr
    assert "\tat " not in result.stderr


FENCED = """
from pyspark.sql.functions import udf
from holdfast.doors import open_kv
from holdfast.spark.pipelines import Pipeline

pipeline = Pipeline("noting", checkpoint="state")
pipeline.source("ticks", format="holdfast-log", path="ticks-log")

@udf("string")
def noted(payload):
    first = open_kv("{notes}", create=True, maintain=False)
    with first as db, open_kv("{notes}", maintain=False):
        db.put(b"last", bytes(payload)).result()
    return "noted"

@pipeline.step
def notes(ticks):
    return ticks.select(noted("payload").alias("payload"))

pipeline.sink("copy", view="notes", format="holdfast-log", path="copy")
"""


def test_a_writer_fenced_in_a_worker_sets_the_exit_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_ticks(tmp_path / "ticks-log", 1, 1)
    file = write(tmp_path / "noting.py", FENCED.replace("{notes}", str(tmp_path / "notes")))
    ended = cli("run", file)
    assert ended.exit_code == 4, ended.output
    (result,) = ended.stderr.splitlines()
    assert re.match(r"holdfast: sink\.copy: writer \d+ was fenced by writer \d+", result)
    assert "another writer has taken over: stop it, then run again" in result
    assert json.loads(cli("run", file, "--json").stderr)["error"] == "fenced"


def test_a_batch_is_shown() -> None:
    batch = Batch("bars", 3, 1000, 2500.4, {"ticks": 12, "kv": 0, "rate": None}, 0)
    assert line(batch) == "bars: batch 3, 1,000 rows, 2,500 rows/s, behind ticks 12"
    assert line(replace(batch, lag={"ticks": 0})).endswith("caught up")
    out = StringIO()
    Console(file=out, width=80).print(table({"bars": batch, "last_prices_by_symbol": None}))
    assert [text.rstrip() for text in out.getvalue().splitlines()] == [
        "sink                   batch   rows  rows/s  last commit  behind",
        "bars                       3  1,000   2,500  00:00:00Z    ticks 12",
        "last_prices_by_symbol      -      -       -  none yet     starting",
    ]


def test_a_terminal_of_80_columns_shows_a_line_for_each_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with os.fdopen(leader, "rb", 0) as screen:
        with os.fdopen(follower, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            with shown(["lines", "prices"], as_json=False) as on_batch:
                on_batch(Batch("dead-letters", 0, 50, 10.0, {"ticks": 0}, 0))
                on_batch(Batch("prices", 12, 50_000, 1234.5, {"ticks": 98_765}, 0))
        written = bytearray()
        with suppress(OSError):  # which is how a terminal says that all have closed it
            while piece := screen.read(4096):  # it comes in pieces, each in its time
                written += piece
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    lines = [text.rstrip() for text in seen.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[-4:] == [
        "sink          batch    rows  rows/s  last commit  behind",
        "lines             -       -       -  none yet     starting",
        "prices           12  50,000   1,234  00:00:00Z    ticks 98,765",
        "dead-letters      0      50      10  00:00:00Z    caught up",
    ]
