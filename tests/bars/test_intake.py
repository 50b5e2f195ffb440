"""What writers may bring, and what is refused rather than bent."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.bars import BarStore

S = 1_609_545_600
FRAME = pd.DataFrame(
    {"Close": [1.5, 2.5]}, index=pd.to_datetime([S, S + 86_400], unit="s", utc=True)
)
TIMES = pa.array([S, S + 86_400]).cast(pa.timestamp("s"))
TABLES = {
    "arrow": pa.table({"time": TIMES, "Close": [1.5, 2.5]}),
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
def test_what_is_no_bar_is_refused(store: BarStore, name: str) -> None:
    store.write(TABLES["numpy"], "1D", "X", symbol="A")
    with pytest.raises(ValueError, match=r".+"):
        store.write(REFUSED[name], "1D", "X", symbol="A")
    assert len(store.query("A", "1D", "X")) == 2


def test_values_are_not_bent(store: BarStore) -> None:
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
    store.write_back()
    assert store.query("A", "1D", "X").drop_columns(["symbol", "time"]).to_pylist() == [
        {"I": -7, "U": "0123456789abcdef"}
    ]
