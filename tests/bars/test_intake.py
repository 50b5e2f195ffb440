"""What writers may bring, and what is refused rather than bent."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from holdfast.bars import BarStore

S = 1_609_545_600
FRAME = pd.DataFrame(
    {"Close": [1.5, 2.5]}, index=pd.to_datetime([S, S + 86_400], unit="s", utc=True)
)
TIMES = pa.array([S, S + 86_400]).cast(pa.timestamp("s"))


class Stream:
    """What polars and duckdb have in common: an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._table.__arrow_c_stream__(schema)


TABLES = {
    "arrow": pa.table({"time": TIMES, "Close": [1.5, 2.5]}),
    "stream": Stream(pa.table({"time": TIMES, "Close": [1.5, 2.5]})),
    "batch": pa.record_batch({"time": TIMES, "Close": pa.array([1.5, 2.5])}),
    "chunks": pa.concat_tables(
        [pa.table({"time": TIMES, "Close": [1.5, 2.5]}).slice(n, 1) for n in (0, 1)]
    ),
    "pandas index": FRAME,
    "pandas column": FRAME.rename_axis("time").reset_index(),
    "eastern": FRAME.tz_convert("America/New_York"),
    "naive": FRAME.tz_localize(None),
    "numpy": np.array([(S, 1.5), (S + 86_400, 2.5)], [("Epoch", "<i8"), ("Close", "<f8")]),
    "dictionary": {"time": np.array([S, S + 86_400]) * 10**9, "Close": np.array([1.5, 2.5])},
    "mixed up": pa.table({"Close": [2.5, 1.5], "time": TIMES[::-1]}),
    "narrower": pa.table({"time": TIMES, "Close": pa.array([1.5, 2.5], pa.float32())}),
}


@pytest.mark.parametrize("name", TABLES)
def test_all_kinds_of_tables_are_the_same(store: BarStore, name: str) -> None:
    store.write(TABLES["arrow"].slice(0, 0), "1D", "X", symbol="A")
    assert store.symbols() == []
    store.write(TABLES["numpy"], "1D", "X", symbol="B")
    wanted = store.query("B", "1D", "X").drop_columns("symbol")
    store.write(TABLES["numpy"], "1D", "X", symbol="A")
    store.write(TABLES[name], "1D", "X", symbol="A")
    assert store.query("A", "1D", "X").drop_columns("symbol") == wanted


REFUSED = {
    "no times": {"Close": [1.5]},
    "no columns": {"time": [S]},
    "two lengths": {"time": np.array([S, S]), "Close": np.array([1.5])},
    "a null": pa.table({"time": TIMES, "Close": [1.5, None]}),
    "before 1970": {"time": np.array([-1]), "Close": np.array([1.5])},
    "text for numbers": {"time": np.array([S]), "Close": np.array(["x"])},
    "two symbols": {"symbol": ["A"], "time": np.array([S]), "Close": np.array([1.5])},
    "floating times": {"time": np.array([1.5]), "Close": np.array([1.5])},
    "another column": {"time": np.array([S]), "Open": np.array([1.5])},
    "no table": [1, 2, 3],
    "nameless": np.zeros((2, 2)),
    "a reserved name": {"time": np.array([S]), "Epoch": np.array([S]), "Close": np.array([1.5])},
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_bars_are_refused(store: BarStore, name: str) -> None:
    store.write(TABLES["numpy"], "1D", "X", symbol="A")
    with pytest.raises(ValueError, match=r".+"):
        store.write(REFUSED[name], "1D", "X", symbol="A")
    assert len(store.query("A", "1D", "X")) == 2


def test_values_are_cast_without_loss(store: BarStore) -> None:
    columns = [("Epoch", "<i8"), ("I", "<i2"), ("U", "<U16")]
    store.write(np.array([(S, 5, "abc")], columns), "1D", "X", symbol="A")
    good = {"time": np.array([S * 10**9]), "U": np.array(["0123456789abcdef"]), "I": np.array([-7])}
    store.write(good, "1D", "X", symbol="A")
    for name, value in (
        ("I", np.array([40_000])),
        ("U", np.array(["x" * 17])),
        ("I", np.array([1.5])),
    ):
        with pytest.raises(ValueError, match="column"):
            store.write({**good, name: value}, "1D", "X", symbol="A")
    store.flush()
    assert store.query("A", "1D", "X").drop_columns(["symbol", "time"]).to_pylist() == [
        {"I": -7, "U": "0123456789abcdef"}
    ]


def _frame(**columns: Any) -> Any:
    return pd.DataFrame({"time": pd.to_datetime(["2024-01-02", "2024-01-03"]), **columns})


@pytest.mark.parametrize(
    "values",
    [
        ["a", None],
        ["a", float("nan")],
        [Decimal("1.5"), Decimal("2.5")],
        [True, None],
        pd.array(["a", None], "string"),
        pd.array([True, None], "boolean"),
        pd.array([2**60 + 1, None], "Int64"),
        pd.array([1.5, None], "Float64"),
        pd.Series([1.5, None], dtype=object),
        pd.Series([True, float("nan")], dtype=object),
        pd.Series(["a", pd.NA], dtype=object),
        np.array(["a", None], object),
    ],
    ids=str,
)
def test_a_missing_value_is_refused_with_its_row(store: BarStore, values: Any) -> None:
    with pytest.raises(ValueError, match=r"column V: row 2 |is of decimal|of one type"):
        store.write(_frame(V=values), "1D", "X", symbol="A")
    plain = {"time": _frame()["time"], "V": values}
    with pytest.raises(ValueError, match="column V"):
        store.write(plain, "1D", "X", symbol="A")
    assert store.symbols() == []


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("kind", [object, "string", "category"])
def test_a_missing_symbol_is_refused(store: BarStore, missing: Any, kind: Any) -> None:
    named = pd.Series(["A", missing], dtype=object).astype(kind)
    with pytest.raises(ValueError, match="column symbol: row 2 has no value"):
        store.write(_frame(symbol=named, V=[1.0, 2.0]), "1D", "X")
    with pytest.raises(ValueError, match="symbol"):
        store.write(_frame(symbol=[1, 2], V=[1.0, 2.0]), "1D", "X")
    assert store.symbols() == []


def test_extension_columns_without_missing_values_are_exact(store: BarStore) -> None:
    frame = _frame(
        I=pd.array([2**60 + 1, 3], "Int64"),
        B=pd.array([True, False], "boolean"),
        S=pd.array(["a", "b"], "string"),
        F=[float("nan"), 1.0],
        O=pd.Series(["x", "nan"], dtype=object),
    )
    store.write(frame, "1D", "X", symbol="A")
    found = store.query("A", "1D", "X")
    assert found["I"].to_pylist() == [2**60 + 1, 3]
    assert found["B"].to_pylist() == [True, False]
    assert found["S"].to_pylist() == ["a", "b"]
    assert found["O"].to_pylist() == ["x", "nan"]
    assert np.isnan(found["F"][0].as_py())


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us"])
def test_far_dates_do_not_wrap(store: BarStore, unit: str) -> None:
    far = np.array(["2024-01-02", "2562-01-02"], f"M8[{unit}]")
    with pytest.raises(ValueError, match="1970 to 2261; that of row 2"):
        store.write({"time": far, "V": [1, 2]}, "1D", "X", symbol="A")
    with pytest.raises(ValueError, match="1970 to 2261"):
        store.write({"time": pa.array(far.astype("M8[s]")), "V": [1, 2]}, "1D", "X", symbol="A")
    with pytest.raises(ValueError, match="1970 to 2261"):
        store.write({"time": [datetime(2562, 1, 1)], "V": [1]}, "1D", "X", symbol="A")
    near = np.array(["2024-01-02", "NaT"], f"M8[{unit}]")
    with pytest.raises(ValueError, match="row 2 has no value"):
        store.write({"time": near, "V": [1, 2]}, "1D", "X", symbol="A")


@pytest.mark.parametrize("epoch", [1.5, -1, 2**63, float("nan"), float("inf")])
def test_an_epoch_is_a_whole_number(store: BarStore, epoch: float) -> None:
    with pytest.raises(ValueError, match="column Epoch: row 1"):
        store.write({"Epoch": np.array([epoch]), "V": [1]}, "1D", "X", symbol="A")
    with pytest.raises(ValueError, match="column Nanoseconds: row 1"):
        store.write({"Epoch": [1], "Nanoseconds": [0.5], "V": [1]}, "1D", "X", symbol="A")
    store.write({"Epoch": np.array([86400.0]), "V": [1]}, "1D", "X", symbol="A")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("f4", 1e300),
        ("f4", 1e-300),
        ("f8", 2**60 + 1),
        ("f4", 2**24 + 1),
        ("f8", 2**63 + 1),
    ],
)
def test_a_cast_is_exact_or_refused(store: BarStore, kind: str, value: Any) -> None:
    store.write({"Epoch": [86400], "V": np.array([1], kind)}, "1D", "X", symbol="A")
    with pytest.raises(ValueError, match="column V"):
        store.write({"Epoch": [86400], "V": np.array([value])}, "1D", "X", symbol="A")
    store.write({"Epoch": [86400], "V": np.array([0.1])}, "1D", "X", symbol="A")
    store.write({"Epoch": [86400], "V": np.array([np.inf])}, "1D", "X", symbol="A")
    assert store.query("A", "1D", "X")["V"].to_pylist() == [np.inf]


def test_everyday_frames_are_taken(store: BarStore) -> None:
    aware = datetime(2024, 1, 2, 12, tzinfo=timezone(timedelta(hours=2)))
    times = [aware, datetime(2024, 1, 2, 11), pd.Timestamp("2024-01-02T12:00:00.000000001")]
    store.write({"time": times, "V": [1, 2, 3]}, "1H", "X", symbol="A", is_variable=True)
    found = store.query("A", "1H", "X", columns="V")
    assert found["V"].to_pylist() == [1, 2, 3]
    assert found.column_names == ["symbol", "time", "V"]
    frame = pl.DataFrame({"symbol": ["B", "C"], "time": times[:1] * 2, "V": [1, 2]})
    store.write(frame, "1H", "X", is_variable=True)
    assert store.symbols() == ["A", "B", "C"]
    columns = {name: frame[name] for name in frame.columns}  # polars' own columns
    store.write(columns, "1H", "X", is_variable=True)
    assert len(store.query("B", "1H", "X")) == 2
    with pytest.raises(ValueError, match="row 2 has no value"):
        store.write(frame.with_columns(V=pl.Series([1, None])), "1H", "X", is_variable=True)
