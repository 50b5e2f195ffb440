import json
import signal
import time
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start

import holdfast
from holdfast.disk import OsDisk
from holdfast.doors.logs import FORMATS, log_replicas
from holdfast.formats.raft_entry import RaftEntry
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal


def test_replicas_are_registered_acknowledged_listed_and_forgotten(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    assert run(*replicas, "register", "a", "--at", 3).stdout == "a has acknowledged all up to 3\n"
    assert run(*replicas, "acknowledge", "a", 6).exit_code == 0
    assert run(*replicas, "register", "b").exit_code == 0
    rows = run(*replicas, "list").stdout.splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [["a", "6", "4"], ["b", "0", "10"]]
    assert "no longer waits for it" in run(*replicas, "forget", "b").stdout
    only = json.loads(run(*replicas, "list", "--json").stdout)
    assert (only["name"], only["acknowledged"], only["lag"]) == ("a", 6, 4)


def test_replicas_refuse_nonsense(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    assert "no replica 'x' is registered" in run(*replicas, "forget", "x").stderr
    assert "is not a valid replica name" in run(*replicas, "register", "../x").stderr
    run(*replicas, "register", "a", "--at", 5)
    assert "has already acknowledged 5" in run(*replicas, "acknowledge", "a", 4).stderr


def test_a_replica_that_cannot_be_read_is_corruption(path: Path, run: Run) -> None:
    run("log", "replicas", path, "register", "a")
    (path / "replicas" / "a.json").write_text("{")
    assert run("log", "replicas", path, "list").exit_code == 2
    assert run("log", "inspect", path).exit_code == 2
    assert run("log", "verify", path).exit_code == 2


def test_a_position_beyond_the_log_is_refused(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    result = run(*replicas, "register", "r1", "--at", 99999999)
    assert result.exit_code == 1
    assert "r1 cannot have acknowledged 99999999: the log ends at 10" in result.stderr
    assert run(*replicas, "list", "--json").stdout == ""
    run(*replicas, "register", "r1", "--at", 10)
    assert "the log ends at 10" in run(*replicas, "acknowledge", "r1", 11).stderr
    assert json.loads(run(*replicas, "list", "--json").stdout)["acknowledged"] == 10


def test_an_edited_position_is_reported_and_removes_nothing(path: Path, run: Run) -> None:
    replicas = ["log", "replicas", path]
    run(*replicas, "register", "r1", "--at", 2)
    run(*replicas, "register", "r2", "--at", 8)
    file = path / "replicas" / "r1.json"
    file.write_text(file.read_text().replace('"acknowledged": 2', '"acknowledged": 9'))
    for verb in ("verify", "inspect"):
        result = run("log", verb, path)
        assert result.exit_code == 2
        assert "replicas/r1.json" in result.stdout
    result = run(*replicas, "list")
    assert (result.exit_code, "r2" in result.stdout) == (2, True)
    assert "register it again, or forget it" in result.stderr
    removals = (["trim", path, "--acknowledged"], ["trim", path, "--before", 9])
    for removal in (*removals, ["truncate", path, "--before", 5]):
        result = run("log", *removal, "--apply")
        assert result.exit_code == 2
        assert "replicas/r1.json" in result.stderr
    assert len(run("log", "cat", path).stdout.splitlines()) == 10
    assert run("log", "append", path, "more").exit_code == 0
    assert run(*replicas, "register", "r1", "--at", 4).exit_code == 0
    assert run("log", "verify", path).exit_code == 0
    assert "begins at 5" in run("log", "trim", path, "--acknowledged", "--apply").stdout
    file.write_text("")
    assert run(*replicas, "forget", "r1").exit_code == 0
    assert run("log", "verify", path).exit_code == 0


def test_replicate_copies_once_and_continues(path: Path, tmp_path: Path, run: Run) -> None:
    run("log", "trim", path, "--before", 5, "--apply")
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
    assert result.exit_code == 4
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
            listed = run("log", "replicas", path, "list", "--json").stdout
            rows = [json.loads(line) for line in listed.splitlines()]
            if rows and rows[0]["acknowledged"] == last:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 130
        assert process.stdout.read() == b"copied 11 entries to c, up to 11; 0 behind\n"
    assert run("log", "tail", copy, "-n", 1, "--raw").stdout == "more\n"


@pytest.mark.parametrize("format", FORMATS)
def test_segments_of_a_copy_have_limits_in_every_run(tmp_path: Path, run: Run, format: str) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    run("log", "create", source, "--format", format)
    words = ["log", "replicate", source, copy, "--name", "c", "--segment-size", "1MB"]
    for number in range(3):
        run("log", "append", source, f"entry {number}")
        result = run(*words)
        assert (result.exit_code, result.stdout) == (
            0,
            f"copied 1 entry to c, up to {number + 1}; 0 behind\n",
        )
    aged = run("log", "replicate", source, copy, "--name", "c", "--segment-age", "1h")
    new = run("log", "replicate", source, tmp_path / "new", "--name", "n", "--segment-age", "1h")
    if format == "file-log":
        for result in (aged, new, run("log", "append", source, "x", "--segment-age", "1h")):
            assert result.exit_code == 1
            assert "file-log logs have no option --segment-age" in result.stderr
    else:
        assert (aged.exit_code, new.exit_code) == (0, 0)


def test_a_running_follower_exits_with_4_when_its_source_was_rolled_back(
    tmp_path: Path, run: Run
) -> None:
    source = tmp_path / "source"
    arguments = ["log", "replicate", source, tmp_path / "copy", "--name", "c", "-f"]
    with holdfast.create_log(source) as log:
        assert isinstance(log, RaftWal)
        log.append([b"%d" % number for number in range(1, 11)])
        with start(*arguments, "--interval", "10ms") as process:
            replicas = log_replicas(source)
            deadline = time.monotonic() + WAIT_SECONDS
            while "c" not in replicas.names() or replicas.get("c").acknowledged < 10:
                assert time.monotonic() < deadline, "nothing was copied"
                time.sleep(0.01)
            log.delete_range(6, 10)  # as a Raft server does; truncate_tail waits for the replica
            log.append([b"%d" % number for number in range(106, 116)])
            _, error = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 4
        assert b"diverged: " in error
    assert run("log", "cat", tmp_path / "copy", "--raw").stdout.split() == [
        str(number) for number in range(1, 11)
    ]


def test_every_verb_waits_for_a_replica_or_says_so(tmp_path: Path, run: Run) -> None:
    for format, verb in (
        ("raft-wal", ["truncate", "--before", 9]),
        ("raft-wal", ["truncate", "--after", 2]),
        ("file-log", ["truncate", "--after", 2]),
        ("file-log", ["snapshot", "create", 8]),
        ("file-log", ["snapshot", "install", 8, 1, "--apply"]),
    ):
        path = tmp_path / f"{format}-{'-'.join(map(str, verb))}"
        run("log", "create", path, "--format", format)
        run("log", "append", path, *map(str, range(10)))
        run("log", "replicas", path, "register", "r", "--at", 5)
        name, *rest = verb
        words = ["log", name, path, *rest] if name == "truncate" else ["log", name, rest[0], path]
        words += [] if name == "truncate" else rest[1:]
        wanted = ["--apply"] if name == "truncate" else []
        result = run(*words, *wanted)
        assert result.exit_code == 1
        assert "replica r has acknowledged 5 and could not follow" in result.stderr
        assert "forget" in result.stderr
        assert len(run("log", "cat", path).stdout.splitlines()) == 10
        run("log", "replicas", path, "forget", "r")
        assert run(*words, *wanted).exit_code == 0


def test_a_copy_of_raft_entries_is_a_log_of_raft_entries(tmp_path: Path, run: Run) -> None:
    with RaftWal(OsDisk(tmp_path / "log"), codec=RAFT_CODEC) as log:
        log.store_logs([RaftEntry(index, term=1, data=b"x") for index in range(5, 9)])
    result = run("log", "replicate", tmp_path / "log", tmp_path / "copy", "--name", "a")
    assert result.exit_code == 0, result.stderr
    with RaftWal(OsDisk(tmp_path / "copy")) as copy:
        assert (copy.codec, copy.first_index, copy.last_index) == (RAFT_CODEC, 5, 8)
        assert copy.get_log(8).data == b"x"
