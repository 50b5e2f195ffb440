"""Files in: every format, mapped and checked; what is reported is durable."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, ipc
from pyarrow import parquet as pq
from tests.cli.conftest import Run, minute_bars, start

from holdfast.bars import open_bars
from holdfast.cli.bars_shape import TYPES, parse_columns
from holdfast.cli.bars_times import TimeForm, parse_time


def rows(path: Path, symbols: str = "*", group: str = "OHLCV") -> pa.Table:
    with open_bars(path, read_only=True) as guest:
        return guest.query(symbols, "1Min", group)


def both() -> pa.Table:
    return pa.concat_tables([minute_bars("A", 700), minute_bars("B", 300, 9)])


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=90)
    elif path.suffix == ".arrow":
        with ipc.new_file(path, table.schema) as sink:
            sink.write_table(table, max_chunksize=70)
    elif path.suffix == ".stream":
        with ipc.new_stream(path, table.schema) as sink:
            sink.write_table(table, max_chunksize=70)
    else:
        csv.write_csv(table, path.with_suffix(""))
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.stream", "x.csv.gz"])
def test_every_format_in_groups(tmp_path: Path, run: Run, name: str) -> None:
    write(both(), tmp_path / name)
    words = ("--timeframe", "1Min", "--group-rows", 300, "--json")
    result = run("bars", "import", tmp_path / "m", tmp_path / name, *words)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["rows"], told["groups"], told["lacking"]) == (1000, 4, 0)
    found = rows(tmp_path / "m")
    assert found["Close"].to_pylist() == both()["Close"].to_pylist()
    assert found["symbol"].to_pylist() == both()["symbol"].to_pylist()


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_what_goes_out_comes_in_again(root: Path, tmp_path: Path, run: Run, kind: str) -> None:
    for group, more in (("OHLCV", ()), ("TICK", ("--ticks",))):
        file = tmp_path / f"{group}.{kind}"
        assert run("bars", "query", root, f"*/1Min/{group}", "-o", file).exit_code == 0
        words = ("--timeframe", "1Min", "--group", group, *more)
        assert run("bars", "import", tmp_path / "again", file, *words).exit_code == 0
        assert rows(tmp_path / "again", group=group).equals(rows(root, group=group))


def test_stdin_and_names_of_files_and_delimiters(tmp_path: Path, run: Run) -> None:
    line = b"2024-01-02 09:30;1.5;7\n"
    words = ("--timeframe", "1Min", "--group", "X", "--delimiter", ";")
    header = ("--header", "when,p,v", "--time-column", "when", "--time-zone", "America/New_York")
    with start("bars", "import", tmp_path / "m", "-", "--symbol", "A", *words, *header) as process:
        out, error = process.communicate(line)
    assert (out.startswith(b"imported 1 row in 1 group\n"), error) == (True, b"")
    (tmp_path / "B.csv").write_bytes(b"when;p;v\n" + line)
    more = ("--symbol-from-name", "--time-column", "when", "--column", "p,v:i4")
    assert run("bars", "import", tmp_path / "m", tmp_path / "B.csv", *words, *more).exit_code == 0
    assert [str(t) for t in rows(tmp_path / "m", "A", "X")["time"].to_pylist()] == [
        "2024-01-02 14:30:00+00:00"
    ]
    assert rows(tmp_path / "m", "B", "X")["v"].type == pa.int32()


def test_after_a_failure_the_answer_says_where_to_go_on(tmp_path: Path, run: Run) -> None:
    file, words = tmp_path / "x.csv", ("--timeframe", "1Min", "--group-rows", 10, "--json")
    csv.write_csv(minute_bars("A", 35), file)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:25], "A,2024-01-02 14:54:00,1,2,0,,4", *lines[26:]]))
    result = run("bars", "import", tmp_path / "m", file, *words)
    assert (result.exit_code, json.loads(result.stdout)["done"]) == (1, 20)
    assert "row 25 has no Close" in result.stderr
    assert rows(tmp_path / "m").num_rows == 20
    again = run("bars", "import", tmp_path / "m", file, *words[:-1])
    assert again.stdout == "imported 20 rows in 2 groups; go on with --skip-rows 20\n"
    rest = run("bars", "import", tmp_path / "m", file, *words, "--skip-rows", 20, "--skip-missing")
    told = json.loads(rest.stdout)
    assert (told["rows"], told["lacking"], told["done"]) == (14, 1, 35)
    assert rows(tmp_path / "m").num_rows == 34


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "garbage": (bytes(range(256)) * 9, "neither CSV"),
    "cut parquet": (b"PAR1" + bytes(90), "Parquet"),
    "cut arrow": (b"ARROW1\0\0" + bytes(90), "x:"),
    "cut stream": (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "x:"),
    "no times": (b"symbol,Close\nA,1\n", "--time-column"),
    "no symbols": (b"time,Close\n60,1\n", "--symbol-column"),
    "ragged": (b"symbol,time,Close\nA,60\n", "Expected 3 columns"),
    "two of one name": (b"symbol,time,Close,Close\nA,60,1,2\n", "Close"),
    "a way up": (b"symbol,time,Close\n../../x,60,1\n", "no name"),
    "a long text": (b"symbol,time,Note\nA,60,abcdefghijklmnopqrstuvwxyz\n", "type"),
    "zoned and not": (b"symbol,time,Close\nA,2024-01-01 00:00Z,1\nA,2024-01-01 00:01,1\n", "zone"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, run: Run, case: str) -> None:
    data, why = HOSTILE[case]
    (tmp_path / "x").write_bytes(data)
    words = ("--timeframe", "1Min", "--group", "X")
    result = run("bars", "import", tmp_path / "m", tmp_path / "x", *words)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert why in result.stderr
    with open_bars(tmp_path / "m", read_only=True) as guest:
        assert guest.symbols() == []


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-01-02", "2024-01-02T00:00:00.000000000"),
        ("2024-01-02T14:30+02:00", "2024-01-02T12:30:00.000000000"),
        ("2024-01-02 14:30:00.123456789Z", "2024-01-02T14:30:00.123456789"),
        ("1704205800", "2024-01-02T14:30:00.000000000"),
    ],
)
def test_times_as_people_write_them(text: str, iso: str) -> None:
    assert str(np.datetime64(parse_time(text), "ns")) == iso


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([2**62]), pa.array(["tomorrow"])])
def test_times_are_never_guessed(column: Any) -> None:
    with pytest.raises(ValueError, match="times"):
        TimeForm().parse(column)


def test_columns_are_told_in_words() -> None:
    (one, two) = parse_columns(["Open=o:f4,Close"])
    assert (one.name, one.source, one.type) == ("Open", "o", TYPES["f4"])
    assert (two.name, two.source, two.type) == ("Close", "Close", None)
    for bad in ("=x", "a:f3", "", "a:"):
        with pytest.raises(ValueError, match="NAME=SOURCE:TYPE"):
            parse_columns([bad])
