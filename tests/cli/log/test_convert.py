"""What Spark does of it is tried in tests/spark/test_cli.py."""

import json
from pathlib import Path

from tests.cli.conftest import Run

from holdfast.disk import OsDisk
from holdfast.doors.logs import FORMATS
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal
from holdfast.logs.shanghai import ShanghaiLog


def test_between_formats_and_back(path: Path, tmp_path: Path, run: Run) -> None:
    raft, back = tmp_path / "raft", tmp_path / "back"
    result = run("log", "convert", path, raft, "--to", "raft-wal", "--segment-size", "4KB")
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{raft}: 10 entries (1..10) in 1 file, 216 B")
    assert lines[1] == f"equal: every entry was compared with {path}"
    document = json.loads(run("log", "convert", raft, back, "--to", "shanghai", "--json").stdout)
    assert (document["verdict"], document["entries"], document["shift"]) == ("equal", 10, 0)
    assert run("log", "cat", back).stdout == run("log", "cat", path).stdout
    again = run("log", "convert", raft, back, "--to", "shanghai")
    assert "10 entries of them by a previous run" in again.stdout


def test_a_raft_log_gets_other_segments_without_spark(tmp_path: Path, run: Run) -> None:
    with RaftWal(OsDisk(tmp_path / "a"), codec=OPAQUE_CODEC) as wal:
        wal.append([b"x" * 1000] * 9)
    result = run(
        "log", "convert", tmp_path / "a", tmp_path / "b", "--segment-size", "2KB", "--json"
    )
    assert json.loads(result.stdout)["target_format"] == "raft-wal"
    assert json.loads(result.stdout)["files"] > 4


def test_a_shift_is_reported(tmp_path: Path, run: Run) -> None:
    with ShanghaiLog(OsDisk(tmp_path / "a")) as log:
        log.append([encode_entry(RaftEntry(501, 1))])
    to = ("--to", "raft-wal", "--codec", "1")
    result = run("log", "convert", tmp_path / "a", tmp_path / "b", *to).stdout
    assert f"indexes are shifted: entry 1 of {tmp_path / 'a'} is entry 501 here" in result


def test_refusals(damaged: Path, tmp_path: Path, run: Run) -> None:
    new = tmp_path / "new"
    assert run("log", "convert", damaged, new, "--to", "raft-wal").exit_code == 2
    for words, why in (
        (
            ["--to", "csv"],
            "--to must be one of raft-wal, shanghai, file-log, log, parquet, jsonl, not 'csv'",
        ),
        (["--to", "raft-wal", "--text"], "--text and --master do not apply"),
        (["--to", "shanghai", "--codec", "1"], "--codec is for a raft-wal TARGET"),
        (["--to", "raft-wal", "--from", "jsonl"], "convert it with --to log first"),
    ):
        refused = run("log", "convert", damaged, new, *words)
        assert refused.exit_code == 1
        assert why in refused.stderr
    assert "no such directory" in run("log", "convert", new, damaged).stderr


def test_the_help_names_all_formats(run: Run) -> None:
    text = "".join(run("log", "convert", "--help").stdout.split())
    for format in FORMATS:
        assert format in text
