"""A raft-wal directory at the command line: fields decoded, stable keys shown, sums checked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.disk import OsDisk
from holdfast.formats.raft_entry import (
    CONFIGURATION,
    RaftEntry,
    Time,
    encode_checkpoint,
    encode_time,
)
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """The directory of a server that runs, and holds its locks."""
    path = tmp_path / "raft"
    with RaftWal(OsDisk(path), codec=RAFT_CODEC, segment_size_max=400) as wal:
        wal.store_logs([RaftEntry(1, 1, CONFIGURATION, b"\xffpeers")])
        at = encode_time(Time(1_700_000_000_123_456_789))
        for index in range(2, 9):
            wal.store_logs([RaftEntry(index, 2, 0, b"set %d" % index, appended_at=at)])
        wal.store_logs([RaftEntry(9, 2, 200, b"", b"ext")])
        wal.set_uint64(b"CurrentTerm", 2)
        wal.set(b"LastVoteCand", b"server-1:8300")
        yield path


def test_cat_shows_the_fields(server: Path, run: Run) -> None:
    lines = run("log", "cat", server).stdout.splitlines()
    assert lines[0] == "1\tterm 1\tconfiguration\t\\xffpeers"
    assert lines[1] == "2\tterm 2\tcommand\tset 2"
    assert lines[-1] == "9\tterm 2\ttype-200\t\t+ext"
    rows = [json.loads(line) for line in run("log", "cat", server, "--json").stdout.splitlines()]
    assert rows[0]["data_base64"] == "/3BlZXJz"
    assert rows[0]["appended_at"] is None
    assert rows[1] == {
        "index": 2,
        "term": 2,
        "type": "command",
        "data": "set 2",
        "extensions": "",
        "appended_at": "2023-11-14T22:13:20.123456789Z",
    }


def test_tail_shows_the_fields_too(server: Path, run: Run) -> None:
    assert run("log", "tail", "-n", "1", server).stdout == "9\tterm 2\ttype-200\t\t+ext\n"


def test_inspect_shows_codec_and_stable_keys(server: Path, run: Run) -> None:
    text = run("log", "inspect", server).stdout
    assert "stable CurrentTerm   0200000000000000 (2)" in text
    assert "stable LastVoteCand  server-1:8300" in text
    document = json.loads(run("log", "inspect", server, "--json").stdout)
    assert document["facts"]["codec"] == "1 (Raft entries)"
    assert (document["format"], document["entries"]) == ("raft-wal", 9)


def test_inspect_speaks_prometheus(server: Path, run: Run) -> None:
    text = run("log", "inspect", server, "--prometheus").stdout
    labels = f'{{path="{server}",format="raft-wal"}}'
    assert f"# TYPE holdfast_log_last_index gauge\nholdfast_log_last_index{labels} 9\n" in text
    assert f"holdfast_log_last_segment_age_seconds{labels} " in text


def test_verify_holds_checkpoints_to_their_sums(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "raft"
    with RaftWal(OsDisk(path), codec=RAFT_CODEC) as wal:
        wal.store_logs([RaftEntry(1, 1, 0, b"x"), RaftEntry(2, 1, 0, b"", encode_checkpoint(1, 7))])
    result = run("log", "verify", path)
    assert result.exit_code == 2
    assert "checkpoint 2 says 0000000000000007" in result.stdout


def test_a_log_is_made_and_verified(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "new"
    made = run("log", "create", path, "--format", "raft-wal", "--first-index", "7")
    assert "an empty raft-wal log whose first entry will be 7" in made.stdout
    assert run("log", "verify", path).exit_code == 0
    assert run("log", "rotate", path).exit_code == 0


def test_a_lost_meta_store_is_repaired(server: Path, run: Run) -> None:
    copy = server.parent / "copy"
    copy.mkdir()
    for file in server.glob("*.wal"):
        (copy / file.name).write_bytes(file.read_bytes())
    assert run("log", "inspect", copy).exit_code != 0
    assert run("log", "repair", copy).exit_code == 2
    assert run("log", "repair", copy, "--apply").exit_code == 0
    assert run("log", "cat", copy).stdout == run("log", "cat", server).stdout


def test_create_takes_the_codec(tmp_path: Path, run: Run) -> None:
    assert run("log", "create", tmp_path / "raft", "--codec", "1").exit_code == 0
    document = json.loads(run("log", "inspect", tmp_path / "raft", "--json").stdout)
    assert document["facts"]["codec"] == "1 (Raft entries)"
    for words in (["--codec", "1", "--format", "shanghai"], ["--codec", "7"], ["--codec", "zip"]):
        result = run("log", "create", tmp_path / "other", *words)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.stderr
        assert "codec" in result.stderr
    assert not (tmp_path / "other").exists()
