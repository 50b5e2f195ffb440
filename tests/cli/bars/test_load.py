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

from holdfast.cli.bars.shape import TYPES, parse_columns
from holdfast.cli.bars.times import TimeForm, parse_span
from holdfast.doors import read_bars


def rows(path: Path, symbols: str = "*", group: str = "OHLCV") -> pa.Table:
    with read_bars(path) as guest:
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
    report = json.loads(result.stdout)
    assert (report["rows"], report["groups"], report["lacking"]) == (1000, 4, 0)
    found = rows(tmp_path / "m")
    assert found["Close"].to_pylist() == both()["Close"].to_pylist()
    assert found["symbol"].to_pylist() == both()["symbol"].to_pylist()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_what_goes_out_comes_in_again(root: Path, tmp_path: Path, run: Run, kind: str) -> None:
    for group, more in (("OHLCV", ()), ("TICK", ("--ticks",))):
        file = tmp_path / f"{group}.{kind}"
        assert run("bars", "export", root, f"*/1Min/{group}", file).exit_code == 0
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


def test_after_a_failure_the_answer_names_where_to_continue(tmp_path: Path, run: Run) -> None:
    file, words = tmp_path / "x.csv", ("--timeframe", "1Min", "--group-rows", 10, "--json")
    csv.write_csv(minute_bars("A", 35), file)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:25], "A,2024-01-02 14:54:00,1,2,0,,4", *lines[26:]]))
    result = run("bars", "import", tmp_path / "m", file, *words)
    assert (result.exit_code, json.loads(result.stdout)["done"]) == (1, 20)
    assert "row 25 has no Close" in result.stderr
    assert rows(tmp_path / "m").num_rows == 20
    again = run("bars", "import", tmp_path / "m", file, *words[:-1])
    assert again.stdout == "imported 20 rows in 2 groups; continue with --skip-rows 20\n"
    rest = run("bars", "import", tmp_path / "m", file, *words, "--skip-rows", 20, "--skip-missing")
    report = json.loads(rest.stdout)
    assert (report["rows"], report["lacking"], report["done"]) == (14, 1, 35)
    assert rows(tmp_path / "m").num_rows == 34


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "garbage": (bytes(range(256)) * 9, "unknown format"),
    "cut parquet": (b"PAR1" + bytes(90), "cannot read"),
    "cut arrow": (b"ARROW1\0\0" + bytes(90), "x as table:"),
    "cut stream": (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "x as table:"),
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
    if (tmp_path / "m").exists():
        with read_bars(tmp_path / "m") as guest:
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
    assert str(np.datetime64(parse_span(None, text, None)["stop"], "ns")) == iso


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([2**62]), pa.array(["tomorrow"])])
def test_times_are_never_guessed(column: Any) -> None:
    with pytest.raises(ValueError, match="times"):
        TimeForm().parse(column)


def test_columns_are_described_in_words() -> None:
    (one, two) = parse_columns(["Open=o:f4,Close"])
    assert (one.name, one.source, one.type) == ("Open", "o", TYPES["f4"])
    assert (two.name, two.source, two.type) == ("Close", "Close", None)
    for bad in ("=x", "a:f3", "", "a:"):
        with pytest.raises(ValueError, match="NAME=SOURCE:TYPE"):
            parse_columns([bad])


@pytest.mark.parametrize("text", [None, "symbol,price\nA,1\n", ""])
def test_an_import_that_cannot_begin_leaves_no_store(
    run: Run, tmp_path: Path, text: str | None
) -> None:
    file, root = tmp_path / "rows.csv", tmp_path / "market"
    if text is not None:
        file.write_text(text)
    result = run("bars", "import", root, file, "--timeframe", "1Min")
    assert result.exit_code == 1
    assert "imported" not in result.output
    assert not root.exists()


def test_an_empty_field_in_quotes_is_missing(run: Run, tmp_path: Path) -> None:
    file, root = tmp_path / "rows.csv", tmp_path / "market"
    file.write_text(
        'symbol,time,Close\n"A","2024-01-02T00:00Z","1.5"\n"A","2024-01-02T00:01Z",""\n'
    )
    result = run("bars", "import", root, file, "--timeframe", "1Min", "--skip-missing")
    assert result.exit_code == 0, result.output
    assert "imported 1 row in 1 group, skipped 1 row" in result.output
