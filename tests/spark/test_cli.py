"""The commands that use Spark, on the shared session."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.samples import SEGMENTS, contents, make_log, rot
from typer.testing import CliRunner, Result

from holdfast.cli.app import app
from holdfast.errors import CorruptError
from holdfast.spark.failures import error_in


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_log(tmp_path / "log")


def test_scrub_says_what_verify_says(spark: SparkSession, path: Path) -> None:
    rot(path, SEGMENTS[1], 4)
    scrubbed, verified = run("log", "scrub", path), run("log", "verify", path)
    assert scrubbed.exit_code == verified.exit_code == 2
    assert scrubbed.stdout == verified.stdout
    report = json.loads(run("log", "scrub", path, "--json").stdout)
    assert (report["verdict"], report["logs"][0]["entries"]) == ("corrupt", 40)
    assert "no such directory" in run("log", "scrub", path / "nowhere").stderr


def test_convert_there_and_back(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    lines, back = tmp_path / "lines", tmp_path / "back"
    made = run("log", "convert", path, lines, "--to", "jsonl", "--text")
    assert f"{lines}: 40 entries (1..40) in 4 files" in made.stdout, made.stderr
    made = run("log", "convert", lines, back, "--from", "jsonl", "--text", "--json")
    assert json.loads(made.stdout)["entries"] == 40
    assert contents(back) == contents(path)
    taken = run("log", "convert", path, back)
    assert taken.exit_code == 1
    assert f"{back} exists: convert into a new directory, or remove it first" in taken.stderr
    rot(path, SEGMENTS[1], 4)
    damaged = run("log", "convert", path, tmp_path / "no")
    assert damaged.exit_code == 2
    assert "entry 15: checksum mismatch" in damaged.stderr


def test_replay_continues_after_its_last_batch(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    args = ["log", "replay", path, "--to", "json", "--checkpoint", tmp_path / "c"]
    args += ["--option", f"path={tmp_path / 'out'}", "--start", 11]
    done = run(*args)
    assert done.stdout == "30 entries (11..40) sent to json in 1 micro-batch\n", done.stderr
    assert run(*args).stdout == "nothing new\n"
    assert json.loads(run(*args, "--json").stdout)["entries"] == 0
    assert run(*args, "--option", "wrong").exit_code == 1
    failed = run(
        "log", "replay", path, "--to", "json", "--checkpoint", tmp_path / "d", "--start", 99
    )
    assert failed.exit_code == 1
    assert len(failed.stderr.splitlines()) == 1, failed.stderr
    unknown = run("log", "replay", path, "--to", "nosuch", "--checkpoint", tmp_path / "e")
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("holdfast: [DATA_SOURCE_NOT_FOUND] Failed to find")
    assert len(unknown.stderr.splitlines()) == 1, unknown.stderr


def test_stats_are_drawn(spark: SparkSession, path: Path) -> None:
    drawn = run("log", "stats", path).stdout
    assert "40 entries, 200 B of payload; from 5 to 5 bytes, 5 on average" in drawn
    assert f"4 B to 7 B  {'█' * 40}  40" in drawn
    assert json.loads(run("log", "stats", path, "--json").stdout)["largest"] == 5
    (path / SEGMENTS[1]).unlink()
    lost = run("log", "stats", path)
    assert lost.exit_code == 2
    assert "damaged: segment_00002.wal" in lost.stderr


def test_info_names_java_and_spark(class_cache: Path) -> None:
    facts = json.loads(run("spark", "info", "--json").stdout)
    assert facts["class_cache"] == str(class_cache)
    assert facts["pyspark"].startswith("4.")
    assert facts["java"] in run("spark", "info").stdout


def test_warm_makes_the_class_cache(class_cache: Path) -> None:
    assert str(class_cache) in run("spark", "warm").stdout
    assert json.loads(run("spark", "warm", "--json").stdout)["size"] > 0


def test_an_error_in_a_worker_is_reported_in_a_line() -> None:
    stack = (
        "[X] Failed:\nTraceback\nholdfast.errors.CorruptError: /a/b.wal at byte 7: LSN 3: bad\n at"
    )
    error = error_in(stack)
    assert isinstance(error, CorruptError)
    assert (error.where, error.offset, error.why) == ("/a/b.wal", 7, "LSN 3: bad")
    assert str(error_in("ValueError: set mode\n SQLSTATE: 3")) == "set mode"
    plain = {
        "[TABLE_OR_VIEW_NOT_FOUND] no such. SQLSTATE: 42P01; line 1\nmore": (
            "[TABLE_OR_VIEW_NOT_FOUND] no such."
        ),
        "An error occurred while calling o6.start.\n: java.io.IOException: mkdir failed\n\tat x": (
            "mkdir failed"
        ),
        "x\nNotADirectoryError: [Errno 20] Not a directory: '/a/b'\n at": "/a/b: Not a directory",
        "no stack": "no stack",
    }
    for text, line in plain.items():
        assert str(error_in(text)) == line


def test_kv_stores_are_loaded_compacted_and_verified(spark: SparkSession, tmp_path: Path) -> None:
    url, night, day = tmp_path / "kv", tmp_path / "night.parquet", tmp_path / "day.csv"
    rows = spark.range(100).selectExpr("concat('k', id) AS id", "id AS n")
    rows.selectExpr("id", "cast(n AS STRING) AS n").write.parquet(str(night))
    day.write_text("id,n\nk7,\nk100,new\n")
    words = ["--spark", "--create", "--key", "id", "--value", "n", "--transaction", "nightly:1"]
    loaded = run("kv", "load", url, night, day, *words, "--json")
    assert json.loads(loaded.stdout)["rows_read"] == 102, loaded.stderr
    assert run("kv", "load", url, night, day, *words).stdout.startswith("nothing to load")
    assert run("kv", "get", url, "k99").stdout == "99"
    assert run("kv", "get", url, "k7").stdout == ""
    compacted = run("kv", "compact", url, "--everything", "--spark")
    assert compacted.exit_code == 0, compacted.stderr
    assert "101 rows" in run("kv", "verify", url, "--spark").stdout
    shown = json.loads(run("kv", "manifest", url, "show", "--ssts", "--json").stdout)
    rot = url / "levels" / f"{shown['levels'][0]['ssts'][0]['id']:020}.sst"
    rot.write_bytes(rot.read_bytes().replace(b"new", b"neq"))
    scrubbed, verified = run("kv", "verify", url, "--spark"), run("kv", "verify", url)
    assert scrubbed.exit_code == verified.exit_code == 2
    assert scrubbed.stdout == verified.stdout
