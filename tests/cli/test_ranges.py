"""--start and --stop on every noun: empty ranges, reversed ones, and those beyond the end."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.kv.stores import make_store


def test_a_start_beyond_the_end_of_a_log_is_one_line(tmp_path: Path, run: Run) -> None:
    run("log", "create", tmp_path / "log")
    result = run("log", "cat", tmp_path / "log", "--start", 59)
    assert result.exit_code == 1
    assert result.stderr.startswith("holdfast: no entry 59: the log is empty; ")
    run("log", "append", tmp_path / "log", "a", "b")
    result = run("log", "cat", tmp_path / "log", "--start", 59)
    assert result.stderr.startswith("holdfast: no entry 59: the log holds 1..2; ")
    result = run("log", "cat", tmp_path / "log", "--start", 0)
    assert result.stderr.startswith("holdfast: no entries 0..2: the log holds 1..2; ")


def test_an_empty_range_prints_nothing(tmp_path: Path, path: Path, root: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    for words in (
        ["log", "cat", path, "--start", 3, "--stop", 3],
        ["log", "cat", path, "--start", 11],
        ["log", "cat", path, "--stop", 0],
        ["kv", "scan", url, "--start", "vat", "--stop", "vat"],
        ["kv", "scan", url, "--start", "zzz"],
    ):
        result = run(*words)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    result = run(
        "bars", "query", root, "A/1Min/OHLCV", "--start", "2024-01-02", "--stop", "2024-01-02"
    )
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)  # the titles


@pytest.mark.parametrize(
    "words",
    [
        ["log", "cat", "PATH", "--start", "5", "--stop", "3"],
        ["kv", "scan", "KV", "--start", "b", "--stop", "a"],
        ["bars", "query", "ROOT", "A/1Min/OHLCV", "--start", "2025-01-01", "--stop", "2024-01-01"],
        [
            "bars",
            "export",
            "ROOT",
            "A/1Min/OHLCV",
            "F.csv",
            "--start",
            "2025-01-01",
            "--stop",
            "2024-01-01",
        ],
        ["bars", "delete", "ROOT", "A/1Min/OHLCV", "--start", "2025-01-01", "--stop", "2024-01-01"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_reversed_range_is_refused(
    words: list[str], tmp_path: Path, path: Path, root: Path, run: Run
) -> None:
    places = {"PATH": path, "ROOT": root, "KV": make_store(tmp_path / "kv")}
    start, stop = words[words.index("--start") + 1], words[-1]
    result = run(*(places.get(word, word) for word in words))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"holdfast: --start {start} is after --stop {stop}\n"
