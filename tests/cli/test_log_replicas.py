import json
import signal
import time
from pathlib import Path

from tests.cli.conftest import WAIT_SECONDS, Run, start

import holdfast


def test_replicas_are_registered_acknowledged_listed_and_forgotten(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    assert run(*replicas, "register", "a", "--at", 3).stdout == "a has acknowledged all up to 3\n"
    assert run(*replicas, "acknowledge", "a", 6).exit_code == 0
    assert run(*replicas, "register", "b").exit_code == 0
    rows = run(*replicas, "list").stdout.splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [["a", "6", "4"], ["b", "0", "10"]]
    assert "no longer holds compaction back" in run(*replicas, "forget", "b").stdout
    (only,) = json.loads(run(*replicas, "list", "--json").stdout)
    assert (only["name"], only["acknowledged"], only["lag"]) == ("a", 6, 4)


def test_replicas_refuse_nonsense(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    assert "no replica 'x' is registered" in run(*replicas, "forget", "x").stderr
    assert "is no replica name" in run(*replicas, "register", "../x").stderr
    run(*replicas, "register", "a", "--at", 5)
    assert "has already acknowledged 5" in run(*replicas, "acknowledge", "a", 4).stderr


def test_a_replica_that_cannot_be_read_is_corruption(path: Path, run: Run) -> None:
    run("log", "replicas", path, "register", "a")
    (path / "replicas" / "a.json").write_text("{")
    assert run("log", "replicas", path, "list").exit_code == 2
    assert run("log", "inspect", path).exit_code == 2
    assert run("log", "verify", path).exit_code == 2


def test_replicate_copies_once_and_goes_on(path: Path, tmp_path: Path, run: Run) -> None:
    run("log", "compact", path, "--before", 5)
    copy = ["log", "replicate", path, tmp_path / "copy", "--name", "copy"]
    assert run(*copy).stdout == "copied 6 entries to copy, up to 10; 0 behind\n"
    run("log", "append", path, "more")
    assert json.loads(run(*copy, "--batch-size", "1b", "--json").stdout) == {
        "name": "copy", "copied": 1, "last_index": 11, "lag": 0,
    }  # fmt: skip
    copied = run("log", "cat", tmp_path / "copy").stdout
    assert copied == run("log", "cat", path).stdout
    assert copied.startswith("5\t")


def test_replicate_refuses_another_log_and_itself(path: Path, tmp_path: Path, run: Run) -> None:
    run("log", "create", tmp_path / "other")
    run("log", "append", tmp_path / "other", "something", "else")
    result = run("log", "replicate", path, tmp_path / "other", "--name", "other")
    assert result.exit_code == 1
    assert "diverged" in result.stderr
    result = run("log", "replicate", path, f"{path}/../log", "--name", "itself")
    assert "are the same log" in result.stderr
    with holdfast.open_log(tmp_path / "other"):
        result = run("log", "replicate", path, tmp_path / "other", "--name", "other")
        assert "is owned by process" in result.stderr


def test_replicate_copies_what_is_sound_and_then_fails(
    damaged: Path, tmp_path: Path, run: Run
) -> None:
    result = run("log", "replicate", damaged, tmp_path / "copy", "--name", "copy")
    assert result.exit_code == 2
    assert "up to 5; 5 behind" in result.stdout
    assert run("log", "verify", tmp_path / "copy").exit_code == 0


def test_replicate_follows_a_live_owner(path: Path, tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "copy"
    arguments = ["log", "replicate", path, copy, "--name", "c", "-f", "--interval", "10ms"]
    with holdfast.open_log(path) as log, start(*arguments) as process:
        assert process.stdout is not None
        last = log.append([b"more"])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            rows = json.loads(run("log", "replicas", path, "list", "--json").stdout)
            if rows and rows[0]["acknowledged"] == last:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 130
        assert process.stdout.read() == b"copied 11 entries to c, up to 11; 0 behind\n"
    assert run("log", "tail", copy, "-n", 1, "--raw").stdout == "more\n"
