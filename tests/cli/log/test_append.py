import json
import os
import time
from base64 import b64encode
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start

import holdfast


def payloads(path: Path, start: int = 11) -> list[bytes]:
    log = holdfast.read_log(path)
    try:
        return [log.read(index) for index in range(start, log.last_index + 1)]
    finally:
        log.close()


def test_arguments_become_entries(path: Path, run: Run) -> None:
    result = run("log", "append", path, "one", "two", "--", "--three")
    assert result.stdout == "appended 3 entries: 11..13\n"
    assert payloads(path) == [b"one", b"two", b"--three"]


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ([], b"a\nb\r\n c", [b"a", b"b\r", b" c"]),
        (["--skip-empty"], b"\n\na\n\n", [b"a"]),
        (["--null"], b"a\nb\0c\0", [b"a\nb", b"c"]),
        (["--whole"], b"a\n\0\xff", [b"a\n\0\xff"]),
        (["--base64"], b64encode(b"\0\xff") + b"\nYQ==", [b"\0\xff", b"a"]),
    ],
)
def test_a_file_is_cut_as_asked(
    options: list[str], data: bytes, expected: list[bytes], path: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "input").write_bytes(data)
    result = run("log", "append", path, "--file", tmp_path / "input", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert payloads(path) == expected


def test_each_batch_is_acknowledged_on_a_line(path: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "input").write_bytes(b"".join(b"%d\n" % i for i in range(5)))
    result = run("log", "append", path, "--file", tmp_path / "input", "--batch", 2, "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"first_index": 11, "last_index": 12, "count": 2},
        {"first_index": 13, "last_index": 14, "count": 2},
        {"first_index": 15, "last_index": 15, "count": 1},
    ]


def test_an_entry_longer_than_a_read_stays_whole(path: Path, tmp_path: Path, run: Run) -> None:
    entries = [b"x" * 3_000_000, b"y", b"z" * 1_048_576]
    (tmp_path / "input").write_bytes(b"\n".join(entries))
    assert run("log", "append", path, "--file", tmp_path / "input").exit_code == 0
    assert payloads(path) == entries


def test_an_empty_line_is_refused_before_anything_is_written(
    path: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "input").write_bytes(b"a\nb\n\nc\n")
    result = run("log", "append", path, "--file", tmp_path / "input", "--batch", 2)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "input entry 3 is empty" in result.stderr
    assert "--skip-empty" in result.stderr
    result = run("log", "append", path, "a", "b", "", "--batch", 1)
    assert (result.exit_code, "input entry 3 is empty" in result.stderr) == (1, True)
    (tmp_path / "input").write_bytes(b"YQ==\nYQ==\n*\n")
    result = run("log", "append", path, "--file", tmp_path / "input", "--batch", 1, "--base64")
    assert (result.exit_code, "input entry 3 is not base64" in result.stderr) == (1, True)
    assert payloads(path) == []


def test_standard_input_that_is_a_file_is_read_twice(path: Path, tmp_path: Path) -> None:
    for data, code, expected in (
        (b"skipped\na\nb\n\nc\n", 1, []),
        (b"skipped\na\nb\nc\n", 0, [b"a", b"b", b"c"]),
    ):
        (tmp_path / "input").write_bytes(data)
        with (tmp_path / "input").open("rb", buffering=0) as file:
            file.seek(8)
            process = start("log", "append", path, "--batch", 1, stdin=file)
            process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == code
        assert payloads(path) == expected


def test_of_a_pipe_the_batches_before_an_empty_line_are_written(path: Path) -> None:
    process = start("log", "append", path, "--batch", 2)
    out, err = process.communicate(b"a\nb\nc\n\n", timeout=WAIT_SECONDS)
    assert process.returncode == 1
    assert out == b"appended 2 entries: 11..12\n"
    assert b"input entry 4 is empty" in err
    assert payloads(path) == [b"a", b"b"]


@pytest.mark.parametrize("format", ["raft-wal", "file-log"])
def test_an_empty_line_is_an_empty_entry_where_the_format_has_them(
    tmp_path: Path, run: Run, format: str
) -> None:
    run("log", "create", tmp_path / "log", "--format", format)
    (tmp_path / "input").write_bytes(b"a\n\nb\n")
    result = run("log", "append", tmp_path / "log", "--file", tmp_path / "input")
    assert result.stdout == "appended 3 entries: 1..3\n"
    assert payloads(tmp_path / "log", 1) == [b"a", b"", b"b"]


def test_bad_input_is_refused(path: Path, tmp_path: Path, run: Run) -> None:
    assert "input entry 1 is not base64" in run("log", "append", path, "a", "--base64").stderr
    assert "exclude each other" in run("log", "append", path, "a", "--whole").stderr
    assert "exclude each other" in run("log", "append", path, "--whole", "--null").stderr
    assert "No such file" in run("log", "append", path, "--file", tmp_path / "none").stderr
    assert payloads(path) == []


def test_segments_rotate_at_the_size_asked_for(path: Path, run: Run) -> None:
    for _ in range(2):
        run("log", "append", path, "x" * 100, "--segment-size", "80")
    assert len(list(path.glob("segment_*.wal"))) == 5


def test_a_damaged_log_takes_nothing(path: Path, run: Run) -> None:
    (path / "segment_00002.wal").unlink()
    result = run("log", "append", path, "x")
    assert (result.exit_code, result.stdout) == (2, "appended 0 entries\n")
    assert "holdfast log repair" in result.stderr


def test_a_torn_tail_is_recovered_and_reported(torn: Path, run: Run) -> None:
    result = run("log", "append", torn, "x", "--json")
    assert result.exit_code == 0
    assert "torn write of 11 bytes" in json.loads(result.stderr)["note"]
    assert payloads(torn) == [b"x"]


def test_a_pipe_is_not_kept_waiting_for_a_full_batch(path: Path) -> None:
    with start("log", "append", path, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for index in (11, 12):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["last_index"] == index
        process.stdin.write(b"without an end")
        process.stdin.close()
        assert json.loads(process.stdout.readline())["last_index"] == 13
        assert process.wait(WAIT_SECONDS) == 0
    assert payloads(path) == [b"line", b"line", b"without an end"]


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    with start("log", "append", path, "--json", "--batch", 3) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        process.stdin.raw.write(b"abc\n" * 2000)  # type: ignore[attr-defined]
        acknowledged = json.loads(process.stdout.readline())["last_index"]
        time.sleep(0.01)
        process.kill()
    with holdfast.open_log(path) as log:
        assert log.last_index >= acknowledged
        assert all(log.read(index) == b"abc" for index in range(11, log.last_index + 1))
