"""Foreign tables come in whole and valid, or with an error that names them."""

import gzip
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc
from pyarrow import parquet as pq

from holdfast.errors import HoldfastError
from holdfast.tabular import Dialect, cast_column, format_of, json_rows, read_table, write_table

TABLE = pa.table(
    {
        "key": [f"key {i}" for i in range(300)],
        "value": [b"\xff%d" % i if i % 7 else None for i in range(300)],
        "price": [i / 4 for i in range(300)],
        "size": pa.array(range(300), pa.int32()),
        "venue": pa.array(["X", "Y", "Z"] * 100).dictionary_encode(),
        "at": pa.array(range(300), pa.timestamp("ms", "UTC")),
    }
)
MUTANTS = 400  # of each format


def arrow_file(path: Path, compression: str | None = None) -> None:
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_file(path, TABLE.schema, options=options) as sink:
        sink.write_table(TABLE, max_chunksize=64)


def arrow_stream(path: Path) -> None:
    with ipc.new_stream(path, TABLE.schema) as sink:
        sink.write_table(TABLE, max_chunksize=64)


def parquet(path: Path) -> None:
    pq.write_table(TABLE, path, row_group_size=100, write_page_checksum=True)


WRITERS: dict[str, Callable[[Path], None]] = {
    "arrow": arrow_file,
    "packed arrow": lambda path: arrow_file(path, "lz4"),
    "stream": arrow_stream,
    "parquet": parquet,
}


def table_of(source: Any, **options: Any) -> pa.Table:
    with read_table(source, **options) as reader:
        return pa.Table.from_batches(list(reader))


@pytest.mark.parametrize("kind", WRITERS)
def test_every_binary_format_comes_in_as_it_is(kind: str, tmp_path: Path) -> None:
    WRITERS[kind](tmp_path / "x")  # its first bytes name the format
    with read_table(tmp_path / "x") as reader:
        assert reader.names == TABLE.column_names
        found = pa.Table.from_batches(list(reader))
        assert reader.done == 1.0
    assert found.num_rows == 300
    assert found.cast(TABLE.schema).equals(TABLE)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "arrow"])
def test_tables_are_written_and_read_again(format: str, tmp_path: Path) -> None:
    plain = TABLE.drop_columns(["value"])
    path = tmp_path / f"x.{format}"
    assert write_table(plain, path) == 300
    assert list(tmp_path.iterdir()) == [path]
    types = {"at": pa.timestamp("ms", "UTC"), "size": pa.int32()}
    with read_table(path) as reader:
        found = pa.Table.from_batches(list(reader.batches(types=types)))
        assert reader.format == format
    assert found.to_pylist() == plain.to_pylist()
    sink = io.BytesIO()
    assert write_table(plain.to_batches(), sink, format) == 300
    sink.seek(0)
    again = read_table(sink, format).batches(types=types)
    assert pa.Table.from_batches(list(again)).to_pylist() == plain.to_pylist()


def test_every_arrow_stream_is_a_table() -> None:
    class Foreign:
        def __arrow_c_stream__(self, requested: object = None) -> object:
            return TABLE.__arrow_c_stream__(requested)

    assert table_of(Foreign()).equals(TABLE)
    assert table_of(TABLE.to_reader()).equals(TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_changed_or_truncated_file_gives_valid_rows_or_an_error(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    WRITERS[kind](path)
    data = path.read_bytes()
    dice, refused = random.Random(14), 0
    for number in range(MUTANTS):
        changed = bytearray(data)
        if number % 4:
            changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        else:
            del changed[dice.randrange(len(data)) :]
        path.write_bytes(changed)
        try:
            found = table_of(path, format=kind.split()[-1].replace("stream", "arrow"))
        except (HoldfastError, ValueError) as error:
            assert str(path) in str(error)
            refused += 1
            continue
        found.validate(full=True)
        assert found.nbytes <= 4 * TABLE.nbytes  # nothing of this process's memory
        if kind == "parquet" and found.schema.names == TABLE.schema.names:
            assert found.num_rows % 100 == 0  # a page has a checksum
    assert refused > MUTANTS // 5


def test_changed_offsets_never_show_the_memory_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    with ipc.new_file(path, pa.schema([("value", pa.binary())])) as sink:
        sink.write_batch(pa.record_batch({"value": [b"aaa", b"bbbbb"]}))
    data = path.read_bytes()
    offsets = b"\0\0\0\0\3\0\0\0\x08\0\0\0"
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, b"\0\0\0\0\3\0\0\0\x60\xea\0\0"))
    with pytest.raises(ValueError, match=r"rows\.arrow as arrow"):
        table_of(path)


def test_a_compressed_csv_and_one_without_a_header_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a;b\n1;x\n2;\n"))
    found = table_of(tmp_path / "x.csv.gz", dialect=Dialect(";"))
    assert found.to_pydict() == {"a": [1, 2], "b": ["x", None]}
    with read_table(io.BytesIO(b"1,007\n"), "csv", dialect=Dialect(header=("n", "id"))) as reader:
        (batch,) = reader.batches(["id"], {"id": pa.binary()}, nulls=False)
    assert batch.to_pydict() == {"id": [b"007"]}


def test_json_lines_keep_numbers_exact() -> None:
    lines = b'{"a": 9007199254740993}\n\n{"a": 1, "b": "x"}\n'
    assert table_of(io.BytesIO(lines)).to_pydict() == {
        "a": [9007199254740993, 1],
        "b": [None, "x"],
    }
    for wrong, why in {
        b'{"a": 1}\n{"a"': "line 2 is not JSON",
        b"[1]\n": "line 1 is not a JSON object",
        b'{"a": 9007199254740993}\n{"a": 0.5}\n': "column a",
        b'{"a": 123456789012345678901}\n': "column a",
        b'{"a": 1}\n{"a": "x"}\n': "column a",
    }.items():
        with pytest.raises(ValueError, match=why):
            table_of(io.BytesIO(wrong), format="jsonl", name="rows")


@pytest.mark.parametrize(
    ("values", "wanted", "value"),
    [
        (pa.array([1, 300]), pa.int8(), "300"),
        (pa.array([1.0, 2.5]), pa.int64(), "2.5"),
        (pa.array([0.1, 1e300]), pa.float32(), "1e\\+300"),
        (pa.array([1, 2**60 + 1]), pa.float64(), str(2**60 + 1)),
        (pa.array(["1", "x"]), pa.int64(), "'x'"),
        (pa.array([1, 2], pa.timestamp("ns")), pa.timestamp("us"), "00:00:00.000000001"),
        (pa.array(["7", "no"]).dictionary_encode(), pa.int8(), "'no'"),
    ],
)
def test_a_lossy_cast_names_the_column_and_the_value(
    values: Any, wanted: pa.DataType, value: str
) -> None:
    with pytest.raises(ValueError, match=f"column size: .*{value}.* does not fit"):
        cast_column(values, wanted, "size")
    assert cast_column(pa.array([0.1]), pa.float32(), "size").type == pa.float32()


def test_unknown_formats_and_missing_columns_are_refused(tmp_path: Path) -> None:
    assert format_of("x.ndjson") == "jsonl"
    assert format_of("-", "csv") == "csv"
    for name, format in (("x", None), ("x.csv", "xml")):
        with pytest.raises(ValueError, match="csv, jsonl, parquet, arrow"):
            format_of(name, format)
    with pytest.raises(ValueError, match="x has no column z; it has a"):
        list(read_table(io.BytesIO(b"a\n1\n"), name="x").batches(["z"]))
    (tmp_path / "none").write_bytes(b"")
    with pytest.raises(ValueError, match="none: the input is empty"):
        read_table(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "missing")
    read, write = os.pipe()
    os.write(write, b"ARROW1\0\0")
    os.close(write)
    with os.fdopen(read, "rb") as pipe, pytest.raises(ValueError, match="name the file"):
        read_table(pipe)


def test_rows_become_json_that_every_reader_knows() -> None:
    rows = pa.record_batch(
        {"at": pa.array([0], pa.timestamp("ns", "UTC")), "x": [float("nan")], "b": [b"\xff"]}
    )
    assert json.dumps(list(json_rows(rows))) == (
        '[{"at": "1970-01-01 00:00:00Z", "x": null, "b_base64": "/w=="}]'
    )


def test_rows_that_fail_leave_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield TABLE.to_batches()[0]
        raise RuntimeError("planted")

    (tmp_path / "rows.parquet").write_bytes(b"mine")
    with pytest.raises(RuntimeError, match="planted"):
        write_table(failing(), tmp_path / "rows.parquet")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]
