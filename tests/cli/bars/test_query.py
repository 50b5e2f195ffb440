"""Rows out: as text, JSON and files; charts; what is not there, and what is damaged."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc
from pyarrow import parquet as pq
from tests.cli.conftest import Run, flip, log_of

from holdfast.doors import open_bars


def test_rows_as_text(root: Path, run: Run) -> None:
    result = run("bars", "query", root, "A,B,Z/1Min/OHLCV", "--first", 1)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "symbol  time                  Open  High  Low  Close  Volume",
        "A       2024-01-02 14:30:00Z   100   102   98    101       1",
        "B       2024-01-02 14:30:00Z    50    52   48     51       1",
    ]


def test_rows_as_json_and_csv(root: Path, run: Run) -> None:
    line = run("bars", "latest", root, "A/1Min/OHLCV", "--json").stdout
    assert json.loads(line) == {
        **{"symbol": "A", "time": "2024-01-02 14:39:00Z", "Open": 109.0, "High": 111.0},
        **{"Low": 107.0, "Close": 110.0, "Volume": 10},
    }
    text = run("bars", "latest", root, "*/1Min/OHLCV", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["symbol"], row["Close"]) for row in rows] == [("A", "110"), ("B", "53")]


def test_ticks_show_their_nanoseconds(root: Path, run: Run) -> None:
    run("bars", "write", root, "A/1Min/TICK", "2024-01-02T14:30:00.25,9")
    lines = run("bars", "query", root, "A/1Min/TICK").stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == [
        *("14:30:00.000000000Z", "14:30:00.250000000Z", "14:30:15.000000000Z")
    ]


@pytest.mark.parametrize(
    ("words", "closes"),
    [
        (["--start", "2024-01-02T14:38"], [109, 110]),
        (["--start", "2024-01-02T14:38:30", "--stop", "2024-01-03"], [110]),
        (["--stop", "2024-01-02T14:32"], [101, 102]),
        (["--stop", "2024-01-02"], []),
        (["--start", "2024-01-02T16:36+02:00", "--last", "2"], [109, 110]),
        (["--start", "2025-01-01"], []),
        (["--day", "2024-01-02", "--last", "1"], [110]),
        (["--day", "2024-01-01"], []),
        (["--first", "0"], []),
        (["--every", "5Min"], [105, 110]),
        (["--every", "5Min", "--first", "1"], [105]),
    ],
)
def test_which_rows(root: Path, run: Run, words: list[str], closes: list[float]) -> None:
    result = run("bars", "query", root, "A/1Min/OHLCV", "--columns", "Close", *words, "--json")
    assert result.exit_code == 0
    assert [json.loads(line)["Close"] for line in result.stdout.splitlines()] == closes


def test_files_appear_whole(root: Path, tmp_path: Path, run: Run) -> None:
    for name in ("x.parquet", "x.arrow", "x.csv", "x.jsonl"):
        result = run("bars", "export", root, "*/1Min/OHLCV", tmp_path / name)
        assert result.stdout == f"wrote 13 rows to {tmp_path / name}\n", result.stderr
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 13
    with ipc.open_file(tmp_path / "x.arrow") as file:
        assert file.read_all()["time"].type == pa.timestamp("ns", "UTC")
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 13
    assert not list(tmp_path.glob("*.half"))


def test_a_rule_for_other_columns(root: Path, run: Run) -> None:
    run("bars", "write", root, "A/1Min/V", "60,1", "120,3", "--column", "Vwap")
    without = run("bars", "query", root, "A/1Min/V", "--every", "5Min")
    assert (without.exit_code, "Vwap" in without.stderr) == (1, True)
    result = run(
        "bars", "query", root, "A/1Min/V", "--every", "5Min", "--rule", "Vwap=mean", "--json"
    )
    assert json.loads(result.stdout)["Vwap"] == 2.0


def test_candles(root: Path, run: Run) -> None:
    result = run("bars", "query", root, "*/1Min/OHLCV", "--chart")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "A  2024-01-02 14:30:00Z .. 2024-01-02 14:39:00Z"
    assert lines[14].startswith("B  ")
    assert set("".join(lines)) & set("┃│╽╿")
    assert run("bars", "query", root, "A/1Min/TICK", "--chart").exit_code == 1
    nothing = run("bars", "query", root, "A/1Min/OHLCV", "--start", "2030-01-01", "--chart")
    assert (nothing.exit_code, nothing.stdout) == (0, "")


def test_symbols_and_buckets(killed: Path, run: Run) -> None:
    assert run("bars", "symbols", killed).stdout == "A\nB\nC\n"  # C is only in the log
    ticks = run("bars", "symbols", killed, "--group", "TICK", "--json").stdout
    assert json.loads(ticks) == {"symbol": "A"}
    assert run(
        "bars", "symbols", killed, "--buckets", "--timeframe", "1Min"
    ).stdout.splitlines() == [*("A/1Min/OHLCV", "A/1Min/TICK", "B/1Min/OHLCV", "C/1Min/OHLCV")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["query", "none", "A/1Min/OHLCV"], "no such directory"),
        (["query", "ROOT", "Z/1Min/OHLCV"], "no bars of Z"),
        (["query", "ROOT", "A/1Min/OHLCV", "--columns", "Vwap"], "no column 'Vwap'"),
        (["query", "ROOT", "A/1Min/OHLCV", "--start", "noon"], "cannot parse 'noon' as a time"),
        (
            ["query", "ROOT", "A/1Min/OHLCV", "--stop", "2026-13-01"],
            "cannot parse '2026-13-01' as a timestamp; expected YYYY-MM-DD",
        ),
        (["query", "ROOT", "A/1Min/OHLCV", "--start", "2026"], "cannot parse '2026'"),
        (["delete", "ROOT", "A/1Min/OHLCV", "--day", "2024-01-02T12:00"], "is not a date"),
        (
            ["export", "ROOT", "A/1Min/OHLCV", "x.csv", "--day", "2024-01-02", "--stop", "9"],
            "--day excludes --start and --stop",
        ),
        (["query", "ROOT", "A/1Min/OHLCV", "--every", "90Sec"], "cannot resample"),
        (["query", "ROOT", "A/1Min/OHLCV", "--first", "1", "--last", "1"], "exclude"),
        (["query", "ROOT", "A/1Min/OHLCV", "--chart", "--json"], "exclude"),
        (["export", "ROOT", "A/1Min/OHLCV", "x.docx"], "names no format"),
        (["query", "ROOT", "../1Min/OHLCV"], "invalid symbol"),
        (["latest", "ROOT", "A"], "SYMBOL/TIMEFRAME/GROUP"),
    ],
)
def test_invalid_queries_are_refused(root: Path, run: Run, words: list[str], why: str) -> None:
    result = run("bars", *(str(root) if word == "ROOT" else word for word in words))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert why in result.stderr


def state(path: Path) -> dict[Path, tuple[int, int, int]]:
    stats = {file: file.stat() for file in path.rglob("*")}
    return {file: (stat.st_size, stat.st_blocks, stat.st_mtime_ns) for file, stat in stats.items()}


def test_a_guest_changes_nothing(killed: Path, run: Run) -> None:
    before = state(killed)
    for words in (
        *(["query", killed, "A/1Min/OHLCV"], ["latest", killed, "*/1Min/OHLCV"]),
        *(["symbols", killed], ["inspect", killed], ["verify", killed], ["replay", killed]),
        ["delete", killed, "A/1Min/OHLCV"],
    ):
        assert run("bars", *words).exit_code == 0
    assert state(killed) == before


def test_damage_is_reported_after_the_rows_that_can_be_read(killed: Path, run: Run) -> None:
    log = log_of(killed)
    flip(log, log.read_bytes().index(b"A/1Min/OHLCV/2024.bin"))
    result = run("bars", "query", killed, "A/1Min/OHLCV", "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (2, 10)
    assert "checksum" in json.loads(result.stderr)["note"]


def test_a_damaged_year_file_is_refused(root: Path, run: Run) -> None:
    with open_bars(root, create=True) as store:
        header_size = 37024
        assert store.symbols() == ["A", "B"]
    first = (14 * 60 + 30 + 1440) * 48 + header_size
    flip(root / "A/1Min/OHLCV/2024.bin", first)
    result = run("bars", "query", root, "A/1Min/OHLCV", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error"]) == (2, "corrupt")
    assert "holdfast bars verify" in result.stderr


def test_delete_prints_its_plan_until_it_is_applied(root: Path, run: Run) -> None:
    words = ("bars", "delete", root, "A,B/1Min/OHLCV", "--start", "2024-01-02T14:32")
    plan = run(*words)
    assert plan.stdout.splitlines() == [
        "SYMBOL  ROWS  FIRST                 LAST",
        "A          8  2024-01-02 14:32:00Z  2024-01-02 14:39:00Z",
        "B          1  2024-01-02 14:32:00Z  2024-01-02 14:32:00Z",
        "would delete 9 rows",
        "nothing was changed; --apply carries it out",
    ]
    assert json.loads(run(*words, "--json").stdout)["symbols"] == {"A": 8, "B": 1}
    assert run(*words, "--apply").stdout == "deleted 9 rows\n"
    assert json.loads(run(*words, "--apply", "--json").stdout) == {"applied": True, "rows": 0}
    assert len(run("bars", "query", root, "*/1Min/OHLCV").stdout.splitlines()) == 5


def test_bars_are_made_of_ticks(root: Path, run: Run) -> None:
    run("bars", "write", root, "A/1Min/TICK", "2024-01-02T14:31:10,9", "2024-01-02T14:31:20,4")
    words = ("bars", "query", root, "A/1Min/TICK", "--price", "Price")
    lines = run(*words, "--every", "1Min", "--size", "Price", "--json").stdout.splitlines()
    rows = [tuple(json.loads(line).values())[1:] for line in lines]
    assert rows == [
        ("2024-01-02 14:30:00Z", 1.5, 2.5, 1.5, 2.5, 4.0),
        ("2024-01-02 14:31:00Z", 9.0, 9.0, 4.0, 4.0, 13.0),
    ]
    none = run(*words, "--every", "1H", "--start", "2030-01-01", "--json")
    assert (none.exit_code, none.stdout) == (0, "")
    for wrong in ([], ["--every", "7Min"], ["--every", "1Min", "--size", "Size"]):
        assert run(*words, *wrong).exit_code == 1
