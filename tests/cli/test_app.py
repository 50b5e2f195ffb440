"""What only a process of its own can show: exit codes, pipes, signals, imports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start

import holdfast


def test_wrong_usage_exits_with_one(run: Run) -> None:
    for words in (["log", "nonsense"], ["log", "cat"], ["--nonsense"], ["log", "cat", "a", "b"]):
        result = run(*words)
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert "--help`" in result.stderr
    assert json.loads(run("log", "cat", "--json").stderr)["error"] == "usage"
    assert "Did you mean 'verify'" in run("log", "verfy").stderr


def test_a_noun_alone_shows_its_help(run: Run) -> None:
    for words in ([], ["log"]):
        result = run(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith("Usage: holdfast")
    assert run("--help").exit_code == 0


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.startswith("holdfast 0.")


def test_a_traceback_is_shown_only_on_request(
    path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    result = run("log", "cat", path, "--start", 99)
    assert isinstance(result.exception, IndexError)


def test_exit_codes_reach_the_shell(damaged: Path) -> None:
    with start("log", "verify", damaged) as process:
        assert process.wait(WAIT_SECONDS) == 2
    with start("log", "cat", damaged.with_name("none")) as process:
        assert process.wait(WAIT_SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read().count(b"\n") == 1


def test_a_closed_pipe_is_not_an_error(path: Path) -> None:
    with holdfast.open_log(path) as log:
        log.append([b"x" * 1000] * 5000)
    with start("log", "cat", path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_SECONDS) == 141


def test_control_c_is_quiet_and_takes_nothing_back(path: Path) -> None:
    with start("log", "append", path, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["last_index"] == 11
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 130
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    with holdfast.open_log(path) as log:
        assert log.read(11) == b"one"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, holdfast.cli; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ}
    )
    loaded = set(result.stdout.decode().split())
    assert loaded.isdisjoint({"numpy", "pyarrow", "rich", "holdfast.logs.opening", "isal"})
