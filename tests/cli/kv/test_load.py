import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from tests.cli.conftest import Run
from tests.cli.kv.stores import PAIRS, make_store, names, open_db, rows

TABLE = pa.table({"key": [b"b", b"a", b"b"], "value": [b"1", None, b"\xff"]})


def write(path: Path) -> Path:
    """The table in the format that the name asks for."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(TABLE, path, row_group_size=2)
    elif path.suffix == ".feather":
        pa.feather.write_feather(TABLE, str(path))
    elif path.suffix == ".arrow":
        with pa.ipc.new_stream(str(path), TABLE.schema) as stream:
            stream.write_table(TABLE)
    else:
        lines = [{"key": "b", "value": "1"}, {"key": "a", "value": None}]
        lines.append({"key": "b", "value_hex": "ff"})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "jsonl"])
def test_files_are_loaded_in_any_order_and_the_last_row_counts(
    suffix: str, tmp_path: Path, run: Run
) -> None:
    url, file = tmp_path / "kv", write(tmp_path / f"rows.{suffix}")
    with open_db(url) as db:
        db.write({b"a": b"old", b"c": b"kept"}).result()
        done = json.loads(run("kv", "load", url, file, "--json").stdout)
        db.put(b"c", b"newer").result()  # the writer was not disturbed
    assert (done["loaded"], done["rows_read"], done["rows"], done["runs"]) == (True, 3, 2, 1)
    assert rows(url) == {b"b": b"\xff", b"c": b"newer"}


def test_csv_stays_as_it_is_written(tmp_path: Path, run: Run) -> None:
    url, file = tmp_path / "kv", tmp_path / "rows.csv"
    file.write_bytes(b'n,id,name\n1,007,\n2,"a\nb","x, y"\n3,\xff,true\n')
    done = run("kv", "load", url, file, "--create", "--key", "id", "--value", "name", "--zstd")
    assert done.stdout.startswith("loaded 3 rows"), done.stderr
    assert rows(url) == {b"007": b"", b"a\nb": b"x, y", b"\xff": b"true"}
    file.write_text("key,value\n00ff,80\n")
    assert run("kv", "load", url, file, "--hex").exit_code == 0
    assert rows(url)[b"\0\xff"] == b"\x80"


def test_stdin_and_several_files_are_one_load(tmp_path: Path, run: Run) -> None:
    url, file = tmp_path / "kv", write(tmp_path / "rows.parquet")
    line = '{"key": "a", "value": "x"}\n{"key": "d", "value": "y"}\n'
    assert run("kv", "load", url, "-", "--format", "jsonl", "--create", stdin=line).exit_code == 0
    assert rows(url) == {b"a": b"x", b"d": b"y"}
    other = tmp_path / "more.csv"
    other.write_text("key,value\nb,2\n")
    assert run("kv", "load", url, file, other).exit_code == 0
    assert rows(url) == {b"b": b"2", b"d": b"y"}


def test_sorted_input_is_loaded_as_it_comes_or_refused(tmp_path: Path, run: Run) -> None:
    url, file = make_store(tmp_path / "kv"), tmp_path / "rows.csv"
    file.write_text("key,value\n" + "".join(f"k{i:05},v{i}\n" for i in range(20_000)))
    assert "loaded 20,000 rows" in run("kv", "load", url, file, "--sorted").stdout
    assert len(rows(url)) == len(PAIRS) + 20_000
    before = rows(url)
    result = run("kv", "load", url, write(tmp_path / "x.parquet"), "--sorted")
    assert (result.exit_code, "without --sorted" in result.stderr) == (1, True), result.stderr
    assert rows(url) == before
    assert json.loads(run("kv", "inspect", url, "--json").stdout)["jobs"] == 0


def test_a_transaction_is_loaded_once(tmp_path: Path, run: Run) -> None:
    url, file = tmp_path / "kv", write(tmp_path / "rows.parquet")
    words = ["kv", "load", url, file, "--create", "--transaction", "daily:7"]
    assert run(*words).stdout.startswith("loaded 2 rows")
    assert run("kv", "delete", url, "b").exit_code == 0
    assert "already" in run(*words).stdout
    assert rows(url) == {}
    shown = json.loads(run("kv", "manifest", url, "show", "--json").stdout)
    assert shown["transactions"] == {"daily": 7}


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.csv", b"id,value\n1,2\n", "--key and --value"),
        ("a.csv", b"", "a.csv: the input is empty"),
        ("a.csv", b"key,value\n1\n", "cannot read"),
        ("a.csv", b"key,value\n,empty\n", "key"),
        ("a.parquet", b"PAR1 not", "a.parquet as parquet"),
        ("a.arrow", b"ARROW1\0\0" + b"\xff" * 40, "a.arrow as arrow"),
        ("a.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f", "a.arrow as arrow"),
        ("a.jsonl", b'{"key": "a", "value": "1"}\n{"key": "b"}\n', "a.jsonl line 2 has no value"),
        ("a.dat", b"", "names no format"),
    ],
)
def test_hostile_files_change_nothing(
    name: str, data: bytes, why: str, tmp_path: Path, run: Run
) -> None:
    url, file = make_store(tmp_path / "kv"), tmp_path / name
    file.write_bytes(data)
    result = run("kv", "load", url, file)
    assert result.exit_code == 1
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert rows(url) == PAIRS
    assert json.loads(run("kv", "inspect", url, "--json").stdout)["jobs"] == 0


def test_columns_of_other_types_are_refused_or_become_text(tmp_path: Path, run: Run) -> None:
    url, file = make_store(tmp_path / "kv"), tmp_path / "rows.parquet"
    for keys, why in [([[1], [2]], "list"), ([None, b"a"], "key is null in 1 rows")]:
        pa.parquet.write_table(pa.table({"key": keys, "value": ["a", "b"]}), file)
        result = run("kv", "load", url, file)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    numbers = pa.array([1, 20]).dictionary_encode()
    pa.parquet.write_table(pa.table({"key": numbers, "value": [True, False]}), file)
    assert run("kv", "load", url, file).exit_code == 0
    assert rows(url) == {**PAIRS, b"1": b"true", b"20": b"false"}


def test_wrong_usage_is_refused(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    before = names(url)
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "none.csv"], "no such file"),
        (["-"], "names no format"),
        (["-", "--format", "parquet"], "the input is empty"),
        ([__file__, "--format", "xml"], "no format 'xml'"),
        ([__file__, "--format", "csv", "--transaction", "x"], "NAME:N"),
        ([__file__, "--format", "jsonl", "--spark"], "csv and parquet"),
    ]
    for words, why in cases:
        result = run("kv", "load", url, *words)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    assert [name for name in names(url) if "manifest" not in name] == [
        name for name in before if "manifest" not in name
    ]


def test_two_phase_stores_are_loaded_with_their_records(tmp_path: Path, run: Run) -> None:
    url, records = tmp_path / "kv", f"sqlite:{tmp_path / 'records.db'}"
    file = write(tmp_path / "rows.jsonl")
    assert run("kv", "load", url, file, "--create", "--cas", records).exit_code == 0
    refused = run("kv", "put", url, "a", "b")
    assert (refused.exit_code, "two-phase writes" in refused.stderr) == (1, True)
    assert run("kv", "get", url, "b").stdout_bytes == b"\xff"  # who reads needs no records
    assert run("kv", "repair", url).exit_code == 1
    assert run("kv", "repair", url, "--cas", records).stdout == "no write was unfinished\n"
    with sqlite3.connect(tmp_path / "records.db") as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    db.close()
