"""Arrow in and out: other libraries read a log and append to it without glue."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import ClosedError

FORMATS = ["raft-wal", "shanghai", "file-log"]


@pytest.fixture(params=FORMATS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with holdfast.create_log(tmp_path / "log", format=request.param) as log:
        yield log


def test_a_log_and_a_scan_are_arrow_streams(log: holdfast.Log, tmp_path: Path) -> None:
    log.append([b"one", b"two", b"three"])
    with holdfast.read_log(tmp_path / "log") as reader:
        for handle in (log, reader):
            table = pa.table(handle)
            assert table.column_names == ["index", "payload"]
            assert table["payload"].to_pylist() == [b"one", b"two", b"three"]
            scanned = pa.table(handle.scan(2, 4))
            assert scanned.column_names == ["index", "payload", "offset"]
            assert scanned["index"].to_pylist() == [2, 3]
    with pytest.raises(ClosedError):
        pa.table(reader)


def test_polars_duckdb_and_pandas_read_a_log(log: holdfast.Log) -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    log.append([b"one", b"two", b"three"])
    assert polars.DataFrame(log)["payload"].to_list() == [b"one", b"two", b"three"]
    assert duckdb.sql("select max(index), count(payload) from log").fetchall() == [(3, 3)]
    frame = pa.table(log).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["index"].tolist() == [1, 2, 3]


def test_polars_and_tables_are_appended(log: holdfast.Log) -> None:
    polars = pytest.importorskip("polars")
    log.append(polars.DataFrame({"payload": [b"one", b"two"], "other": [1, 2]}))
    log.append(polars.Series("any", ["three"]))
    log.append(pa.table({"only": pa.chunked_array([[b"four"], [b"five"]])}))
    assert pa.table(log)["payload"].to_pylist() == [b"one", b"two", b"three", b"four", b"five"]


def test_rows_that_do_not_fit_are_refused_by_column(log: holdfast.Log) -> None:
    with pytest.raises(TypeError, match="no column 'payload' among a, b"):
        log.append(pa.table({"a": [b"x"], "b": [b"y"]}))
    with pytest.raises(TypeError, match="column 'payload' has type int64; expected binary"):
        log.append(pa.table({"payload": [1]}))
    with pytest.raises(ValueError, match="column 'payload': 1 values are null"):
        log.append(pa.table({"payload": [b"x", None]}))
    assert log.last_index == 0


def test_submitted_batches_become_durable_in_order(log: holdfast.Log) -> None:
    tickets = [log.submit([b"%d" % number]) for number in range(50)]
    assert [ticket.result(timeout=10) for ticket in tickets] == list(range(1, 51))
    assert all(ticket.done() for ticket in tickets)


def test_close_waits_for_what_was_submitted(log: holdfast.Log, tmp_path: Path) -> None:
    for number in range(20):
        log.submit([b"%d" % number])
    log.close()
    with holdfast.read_log(tmp_path / "log") as reader:
        assert reader.last_index == 20


def test_asyncio_awaits_appends(log: holdfast.Log) -> None:
    import asyncio

    async def serve() -> list[int]:
        return list(await asyncio.gather(*(ask(number) for number in range(10))))

    async def ask(number: int) -> int:
        return await log.submit([b"%d" % number])

    assert asyncio.run(serve()) == list(range(1, 11))
