"""A FileLog at the command line: fields, state, snapshots, pruning, repair."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileLog
from holdfast.runtime import Runtime

NOW_MS = 1_704_164_645_678
RUNTIME = Runtime(now_ns=lambda: NOW_MS * 10**6, hostname=lambda: "golden-host")


def opened(path: Path) -> FileLog:
    return FileLog(OsDisk(path), capacity=4, runtime=RUNTIME)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The directory of a server that does not run: ten entries in three files."""
    path = tmp_path / "raft"
    with opened(path) as log:
        log.append_checkpoint(1)
        log.append_config(b"\x65\x93\x4e\x65config-1", b"\xffpeers", term=2)
        for number in range(3, 11):
            request = b"\x65\x93\x4e\x65request%d" % (number % 10)
            log.append_request(request, b"set %d" % number, term=2)
        log.state.update({"currentTerm": 2, "votedFor": "id1", "peers": [["id1", "tcp://a:1"]]})
    return path


@pytest.fixture
def server(stopped: Path) -> Iterator[Path]:
    """... and of one that runs, and holds its lock."""
    with opened(stopped):
        yield stopped


def test_cat_and_tail_show_the_fields_beside_a_live_owner(server: Path, run: Run) -> None:
    lines = run("log", "cat", server).stdout.splitlines()
    assert lines[0] == f"1\tterm 1\tcheckpoint\t{bytes(12).hex()}\t\\xc0"
    assert lines[2] == "3\tterm 2\tstate\t65934e657265717565737433\tset 3"
    rows = [json.loads(line) for line in run("log", "cat", server, "--json").stdout.splitlines()]
    assert rows[1]["data_base64"] == "/3BlZXJz"
    assert rows[2] == {
        "index": 3,
        "term": 2,
        "type": "state",
        "request_id": "65934e657265717565737433",
        "data": "set 3",
    }
    assert run("log", "tail", "-n", "1", server, "--raw").stdout == "set 10\n"
    assert run("log", "cat", server, "--start", "4", "--stop", "5", "--hex").stdout == (
        f"4\t{b'set 4'.hex()}\n"
    )


def test_inspect_and_verify_beside_a_live_owner(server: Path, run: Run) -> None:
    text = run("log", "inspect", server).stdout
    assert "state currentTerm         2" in text
    assert "state peers               id1 at tcp://a:1" in text
    document = json.loads(run("log", "inspect", server, "--json").stdout)
    assert (document["format"], document["entries"]) == ("file-log", 10)
    assert document["facts"]["capacity"] == "4 entries per file"
    assert run("log", "verify", server).exit_code == 0
    assert "log/00000/00/00/00000000000008.rlog  active" in run("log", "ls", server).stdout


def test_a_snapshot_is_made_shown_and_what_it_covers_is_pruned(stopped: Path, run: Run) -> None:
    assert "no snapshot" in run("log", "snapshot", "show", stopped).stdout
    made = run("log", "snapshot", "create", stopped, "8", stdin="all of it")
    assert "all up to entry 8, term 2: 9 B" in made.stdout
    assert made.stdout.endswith("the log begins at 9\n")
    assert run("log", "snapshot", "show", stopped, "--data").stdout == "all of it"
    shown = json.loads(run("log", "snapshot", "show", stopped, "--json").stdout)
    assert (shown["index"], shown["term"], shown["size"], len(shown["kept"])) == (8, 2, 9, 1)
    plan = run("log", "trim", stopped, "--before", "9")
    assert "would remove 2 segments" in plan.stdout
    assert "removed 2 segments" in run("log", "trim", stopped, "--before", "9", "--apply").stdout
    assert run("log", "cat", stopped, "--raw").stdout == "set 9\nset 10\n"
    assert run("log", "verify", stopped).exit_code == 0


def test_a_snapshot_from_elsewhere(stopped: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"x" * 2_000_000)
    refused = run("log", "snapshot", "install", stopped, "8", "1", "--file", data)
    assert refused.exit_code == 1
    done = run(
        "log", "snapshot", "install", stopped, "20", "3", "--file", data, "--apply", "--json"
    )
    assert json.loads(done.stdout)["size"] == 2_000_000
    assert run("log", "append", stopped, "next").stdout == "appended 1 entry: 21..21\n"
    assert "\tterm 3\tstate\t" in run("log", "cat", stopped).stdout


def test_other_logs_have_none(path: Path, run: Run) -> None:
    for arguments in (("show", path), ("create", path, "1")):
        result = run("log", "snapshot", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")


def test_a_log_is_made_written_rotated_and_repaired(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "new"
    made = run("log", "create", path, "--format", "file-log", "--first-index", "7")
    assert "an empty file-log log whose first entry will be 7" in made.stdout
    assert run("log", "append", path, "a", "b").stdout == "appended 2 entries: 7..8\n"
    assert "00000000000009.rlog is the active segment" in run("log", "rotate", path).stdout
    assert run("log", "append", path, "c").exit_code == 0
    file = path / "log/00000/00/00/00000000000007.rlog"
    data = bytearray(file.read_bytes())
    data[data.index(b"ITMZ") + 8 + 21 + 12] = 77
    file.write_bytes(data)
    assert run("log", "verify", path).exit_code == 2
    plan = run("log", "repair", path)
    assert (plan.exit_code, "kept: 7..7\nlost: 8..9" in plan.stdout) == (2, True)
    assert run("log", "repair", path, "--apply").exit_code == 0
    assert run("log", "cat", path, "--raw").stdout == "a\n"
    assert run("log", "verify", path).exit_code == 0
