"""What `bars write` reports is on disk; what it refuses leaves nothing behind."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start

from holdfast.doors import open_bars, read_bars

ROW = "2024-01-02T15:00,1,2,0.5,1.5,10"


def closes(path: Path, symbol: str = "A", group: str = "OHLCV") -> list[float]:
    with read_bars(path) as guest:
        found: list[float] = guest.query(symbol, "1Min", group)["Close"].to_pylist()
        return found


def test_a_store_and_a_bucket_are_made_by_the_first_row(tmp_path: Path, run: Run) -> None:
    result = run("bars", "write", tmp_path / "new", "A/1Min/OHLCV", ROW)
    assert (result.exit_code, result.stdout) == (0, "wrote 1 row in 1 group\n")
    with read_bars(tmp_path / "new") as guest:
        rows = guest.query("A", "1Min", "OHLCV").to_pylist()
    assert [(row["Open"], row["Volume"]) for row in rows] == [(1.0, 10)]


def test_rows_are_lines_and_every_group_is_reported(root: Path, run: Run, tmp_path: Path) -> None:
    lines = "".join(f"2024-01-02T16:{minute:02},1,2,0,{minute},1\n" for minute in range(5))
    file = tmp_path / "lines"
    file.write_text(f"\n{lines}\n")
    result = run("bars", "write", root, "B/1Min/OHLCV", "--file", file, "--batch", 2, "--json")
    groups = [json.loads(line) for line in result.stdout.splitlines()]
    assert [group["rows"] for group in groups] == [2, 2, 1]
    assert groups[0]["tgid"] < groups[1]["tgid"]
    assert closes(root, "B")[3:] == [0, 1, 2, 3, 4]


def test_columns_and_types_are_given_or_known(root: Path, run: Run) -> None:
    new = run("bars", "write", root, "A/1Min/X", "--column", "Close:f4,Name:U16", "60,1.5,abc")
    assert new.exit_code == 0
    assert run("bars", "write", root, "A/1Min/X", "120,2.5,def").exit_code == 0
    swapped = run("bars", "write", root, "A/1Min/X", "180,ghi,3.5", "--column", "Name,Close")
    assert swapped.exit_code == 0
    assert closes(root, "A", "X") == [1.5, 2.5, 3.5]
    unknown = run("bars", "write", root, "A/1Min/SPREAD", "1,2")
    assert (unknown.exit_code, "--column" in unknown.stderr) == (1, True)


def test_ticks_are_added_without_ticks_option_the_second_time(root: Path, run: Run) -> None:
    assert run("bars", "write", root, "A/1Min/TICK", "2024-01-02T14:30:00.5,9").exit_code == 0
    with read_bars(root) as guest:
        assert guest.query("A", "1Min", "TICK")["Price"].to_pylist() == [1.5, 9.0, 2.5]


@pytest.mark.parametrize(
    ("bucket", "row", "why"),
    [
        ("A/1Min/OHLCV", "2024-01-02T15:00,1,2", "Expected 6 columns"),
        ("A/1Min/OHLCV", "yesterday,1,2,0,1,1", "yesterday"),
        ("A/1Min/OHLCV", "2024-01-02T15:00,1,2,0,x,1", "invalid value 'x'"),
        ("A/1Min/OHLCV", "2024-01-02T15:00,1,2,0,1,1.5", "invalid value '1.5'"),
        ("A/1Min/OHLCV", "2024-01-02T15:00,1,2,0,,1", "no Close"),
        ("A/1Min/OHLCV", "1899-01-02T15:00,1,2,0,1,1", "1970"),
        ("A/1Min/OHLCV", "99999999999999999,1,2,0,1,1", "overflow"),
        ("A/7Min/OHLCV", ROW, "divide a day"),
        ("A/1Fortnight/OHLCV", ROW, "1Min"),
        ("A/1Min", ROW, "SYMBOL/TIMEFRAME/GROUP"),
        ("../1Min/OHLCV", ROW, "no name"),
        ("LOCK/1Min/OHLCV", ROW, "no name"),
        ("A\x1b[2J/1Min/OHLCV", ROW, "no name"),
    ],
)
def test_bad_rows_and_names_are_refused(
    root: Path, run: Run, bucket: str, row: str, why: str
) -> None:
    before = closes(root)
    result = run("bars", "write", root, bucket, row)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert why in result.stderr
    assert "\x1b" not in result.stderr
    assert closes(root) == before
    assert not (root / "..").joinpath("1Min").exists()


def test_a_directory_of_something_else_is_left_alone(path: Path, run: Run) -> None:
    before = sorted(file.name for file in path.iterdir())
    result = run("bars", "write", path, "A/1Min/OHLCV", ROW)
    assert (result.exit_code, "not a bar store" in result.stderr) == (1, True)
    assert sorted(file.name for file in path.iterdir()) == before


def test_a_second_owner_is_refused(root: Path, run: Run) -> None:
    with open_bars(root, create=True):
        result = run("bars", "write", root, "A/1Min/OHLCV", ROW, "--json")
    assert (result.exit_code, json.loads(result.stderr)["error"]) == (1, "locked")


def test_what_was_acknowledged_survives_a_kill(root: Path, run: Run) -> None:
    with start("bars", "write", root, "A/1Min/OHLCV", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for minute in (0, 1):  # a group ends when no more input is waiting
            process.stdin.write(f"2024-01-02T18:0{minute},1,2,0,{minute + 70},1\n".encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["rows"] == 1
        process.kill()
        process.wait(WAIT_SECONDS)
    assert closes(root)[-2:] == [70, 71]  # a guest's, from the log
    assert run("bars", "flush", root).stdout == "wrote 2 groups to the year files\n"
    assert not list(root.glob("WALFile.*"))
    assert closes(root)[-2:] == [70, 71]


def test_a_backup_is_a_store(root: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "copy"
    result = run("bars", "backup", root, target, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["path"], report["groups"]) == (str(target), 0)
    for bucket in ("A,B/1Min/OHLCV", "A/1Min/TICK"):
        texts = [run("bars", "query", path, bucket).stdout for path in (root, target)]
        assert texts[0] == texts[1] != ""
    again = run("bars", "backup", root, target)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "exists; name a new directory" in again.stderr
    text = run("bars", "backup", root, tmp_path / "two").stdout
    assert text.startswith(f"copied {root} to {tmp_path / 'two'}: ")


def test_a_live_owner_must_make_the_backup(root: Path, tmp_path: Path, run: Run) -> None:
    with open_bars(root):
        result = run("bars", "backup", root, tmp_path / "copy")
    assert result.exit_code != 0
    assert "its owner must make the backup, with BarStore.backup(path)" in result.stderr
    assert not (tmp_path / "copy").exists()
