import json
import signal
import time
from pathlib import Path
from typing import IO

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start

import holdfast
from holdfast.logs.shanghai import Retention, ShanghaiLog


def test_cat_prints_index_and_payload(path: Path, run: Run) -> None:
    assert run("log", "cat", path).stdout == "".join(f"{i}\tentry {i}\n" for i in range(1, 11))


@pytest.mark.parametrize(
    ("options", "indexes"),
    [
        (["--start", "9"], [9, 10]),
        (["--stop", "3"], [1, 2]),
        (["--stop", "99", "--start", "10"], [10]),
        (["--start", "4", "--limit", "3"], [4, 5, 6]),
        (["--limit", "0"], []),
        (["--start", "11"], []),
    ],
)
def test_cat_takes_a_range(options: list[str], indexes: list[int], path: Path, run: Run) -> None:
    result = run("log", "cat", path, *options)
    assert result.exit_code == 0
    assert [int(line.split("\t")[0]) for line in result.stdout.splitlines()] == indexes


def test_cat_refuses_missing_entries(path: Path, run: Run) -> None:
    assert "holds 1..10" in run("log", "cat", path, "--start", "12").stderr
    assert "holds 1..10" in run("log", "cat", path, "--start", "0").stderr
    assert "is after --stop" in run("log", "cat", path, "--start", "3", "--stop", "2").stderr
    assert "exclude each other" in run("log", "cat", path, "--raw", "--json").stderr


def test_payloads_of_any_bytes_are_shown(path: Path, run: Run) -> None:
    with holdfast.open_log(path) as log:
        log.append([b"\xff\n", "é".encode()])
    last = ["log", "cat", path, "--start", 11]
    assert run(*last).stdout == "11\t\\xff\\n\n12\té\n"
    assert run(*last, "--hex").stdout == "11\tff0a\n12\tc3a9\n"
    assert run(*last, "--raw").stdout_bytes == b"\xff\n\n\xc3\xa9\n"
    assert [json.loads(line) for line in run(*last, "--json").stdout.splitlines()] == [
        {"index": 11, "payload_base64": "/wo="},
        {"index": 12, "payload": "é"},
    ]


def test_a_damaged_log_is_printed_up_to_the_damage(damaged: Path, run: Run) -> None:
    result = run("log", "cat", damaged)
    assert result.exit_code == 2
    assert result.stdout.splitlines()[-1] == "5\tentry 5"
    assert "segment_00002.wal at byte 79: entry 6: checksum mismatch" in result.stderr
    assert run("log", "cat", damaged, "--start", 7, "--stop", 9).stdout.count("\n") == 2


def test_damage_that_hides_entries_is_reported_at_the_end(path: Path, run: Run) -> None:
    file = path / "segment_00003.wal"
    file.write_bytes(file.read_bytes()[:-1])  # entry 10, which the mark says was there
    result = run("log", "cat", path)
    assert result.exit_code == 2
    assert result.stdout.splitlines()[-1] == "9\tentry 9"
    assert run("log", "cat", path, "--stop", 10).exit_code == 0
    assert run("log", "cat", path, "--stop", 11).exit_code == 2


def test_a_reader_ignores_a_torn_tail(torn: Path, run: Run) -> None:
    result = run("log", "cat", torn)
    assert (result.exit_code, result.stdout.count("\n")) == (0, 10)


def test_tail_prints_the_last_entries(path: Path, run: Run) -> None:
    assert run("log", "tail", path, "-n", 2).stdout == "9\tentry 9\n10\tentry 10\n"
    assert run("log", "tail", path, "-n", 0).stdout == ""
    assert run("log", "tail", path, "-n", 99, "--json").stdout.count("\n") == 10
    assert "not a duration" in run("log", "tail", path, "--interval", "1").stderr


def test_an_empty_log_has_no_tail(tmp_path: Path, run: Run) -> None:
    holdfast.create_log(tmp_path / "log").close()
    assert run("log", "tail", tmp_path / "log").stdout == ""
    assert run("log", "cat", tmp_path / "log").stdout == ""


def test_tail_follows_a_live_owner_through_rotation_and_compaction(path: Path) -> None:
    follower = ["log", "tail", path, "-n", "1", "-f", "--interval", "10ms", "--raw"]
    with holdfast.open_log(path) as log, start(*follower) as process:
        assert isinstance(log, ShanghaiLog)
        assert process.stdout is not None
        assert process.stderr is not None
        lines: IO[bytes] = process.stdout
        assert lines.readline() == b"entry 10\n"
        for i in range(5):
            log.append([b"a%d" % i, b"b%d" % i])
            assert lines.readline() == b"a%d\n" % i
            assert lines.readline() == b"b%d\n" % i
            log.rotate()
            log.trim(Retention(before=log.last_index + 1))
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 130
        assert (lines.read(), process.stderr.read()) == (b"", b"")
