"""Polars, DuckDB, pandas and Arrow itself read and fill every store without glue."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import holdfast

PAYLOADS = [b"one", b"two", b"", b"four" * 1000]
ROWS = {b"AAPL": b"231.4", b"MSFT": b"508.2", b"NVDA": b"720.1"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[holdfast.Log]:
    with holdfast.create_log(tmp_path / "log") as log:
        log.append(PAYLOADS)
        yield log


@pytest.fixture
def kv(tmp_path: Path) -> Iterator[holdfast.Kv]:
    with holdfast.create_kv(tmp_path / "kv") as kv:
        kv.write(ROWS).result()
        yield kv


@pytest.fixture
def bars(tmp_path: Path) -> Iterator[holdfast.BarStore]:
    with holdfast.create_bars(tmp_path / "bars") as bars:
        yield bars


def fetch(relation: Any) -> Any:
    return relation.fetchall()


def payloads_of(frame: Any) -> list[bytes]:
    return [bytes(value) for value in frame]


def test_polars_reads_a_log_and_a_scan(log: holdfast.Log) -> None:
    frame = pl.DataFrame(log)
    assert frame["index"].to_list() == [1, 2, 3, 4]
    assert payloads_of(frame["payload"]) == PAYLOADS
    assert payloads_of(pl.DataFrame(log.scan(2, 4))["payload"]) == PAYLOADS[1:3]


def test_polars_reads_beside_the_owner(log: holdfast.Log, tmp_path: Path) -> None:
    with holdfast.read_log(tmp_path / "log") as reader:
        assert payloads_of(pl.DataFrame(reader)["payload"]) == PAYLOADS


def test_duckdb_reads_a_log_a_scan_and_a_kv_store(log: holdfast.Log, kv: holdfast.Kv) -> None:
    entries, prices = log.scan(), kv.scan()  # noqa: F841  # found by name
    assert fetch(duckdb.sql("select count(*), max(index) from entries")) == [(4, 4)]
    assert fetch(duckdb.sql("select key, value from prices order by key")) == list(ROWS.items())
    assert fetch(duckdb.sql("select min(index) from log")) == [(1,)]


def test_pandas_and_arrow_read_a_log_and_a_kv_store(log: holdfast.Log, kv: holdfast.Kv) -> None:
    table = pa.table(log)
    assert table["index"].to_pylist() == [1, 2, 3, 4]
    frame = pa.table(kv.scan(b"B")).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["key"]) == [b"MSFT", b"NVDA"]
    assert (
        list(pd.DataFrame.from_arrow(kv)["value"]) == list(ROWS.values())
        if hasattr(pd.DataFrame, "from_arrow")
        else list(pa.table(kv).to_pandas()["value"]) == list(ROWS.values())
    )


def test_polars_reads_a_kv_store(kv: holdfast.Kv, tmp_path: Path) -> None:
    assert pl.DataFrame(kv)["key"].to_list() == list(ROWS)
    with holdfast.read_kv(tmp_path / "kv") as reader:
        assert pl.DataFrame(reader)["value"].to_list() == list(ROWS.values())
        assert pl.DataFrame(reader.scan(stop=b"MSFT"))["key"].to_list() == [b"AAPL"]


MAKERS: list[Callable[[dict[str, list[Any]]], Any]] = [
    pl.DataFrame,
    pa.table,
    lambda columns: pa.RecordBatchReader.from_batches(
        pa.table(columns).schema, pa.table(columns).to_batches()
    ),
    lambda columns: duckdb.sql("select * from rows", connection=_with(columns)),
]


def _with(columns: dict[str, list[Any]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("rows", pa.table(columns))
    return connection


@pytest.mark.parametrize("make", MAKERS, ids=["polars", "arrow", "reader", "duckdb"])
def test_rows_of_any_library_go_in(
    make: Callable[[dict[str, list[Any]]], Any],
    log: holdfast.Log,
    kv: holdfast.Kv,
    bars: holdfast.BarStore,
) -> None:
    assert log.append(make({"payload": [b"five", b"six"]})) == 6
    assert log.submit(make({"payload": [b"seven"]})).result(timeout=30) == 7
    assert [log.read(index) for index in (5, 6, 7)] == [b"five", b"six", b"seven"]
    kv.write(make({"key": [b"GOOG", b"AAPL"], "value": [b"177.0", None]})).result()
    assert (kv.get(b"GOOG"), kv.get(b"AAPL")) == (b"177.0", None)
    times = [1_700_000_040, 1_700_000_100]
    bars.write(make({"Epoch": times, "Close": [1.5, 2.5]}), "1Min", "CLOSE", symbol="AAPL")
    found = bars.query("AAPL", "1Min", "CLOSE")
    assert pl.DataFrame(found)["Close"].to_list() == [1.5, 2.5]
    assert fetch(duckdb.sql("select sum(Close) from found")) == [(4.0,)]
    assert found.to_pandas()["Close"].tolist() == [1.5, 2.5]


def test_a_wrong_column_is_named(log: holdfast.Log, kv: holdfast.Kv) -> None:
    with pytest.raises((TypeError, ValueError), match="payload"):
        log.append(pl.DataFrame({"a": [b"x"], "b": [b"y"]}))
    with pytest.raises((TypeError, ValueError), match="value"):
        kv.write(pl.DataFrame({"key": [b"x"]}))
    assert log.last_index == 4
