"""Moments as people write them, and bars put together."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from holdfast.bars import BarStore
from holdfast.bars.query import Rows
from holdfast.bars.tables import as_ns, resampled, span_of

NOON = 1_609_502_400 * 10**9  # 1 January 2021


@pytest.mark.parametrize(
    "moment",
    [
        *(NOON, "2021-01-01T12:00", "2021-01-01 12:00:00Z", np.datetime64(NOON, "ns")),
        *(datetime(2021, 1, 1, 12), datetime(2021, 1, 1, 12, tzinfo=UTC), pd.Timestamp(NOON)),
        datetime(2021, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        pd.Timestamp("2021-01-01 07:00", tz="America/New_York"),
    ],
    ids=repr,
)
def test_a_moment_is_a_moment(moment: object) -> None:
    assert as_ns(moment, 0) == NOON


def test_what_is_no_moment_is_refused() -> None:
    for moment in ("yesterday", "NaT"):
        with pytest.raises(ValueError, match=r"moment|Error parsing"):
            as_ns(moment, 0)
    with pytest.raises(ValueError, match="first or the last"):
        span_of(None, None, 1, "middle")  # type: ignore[arg-type]


def test_bars_are_put_together() -> None:
    step = 60 * 10**9
    times = NOON + np.array([0, 1, 4, 5, 12]) * step
    price, volume = np.array([3.0, 9.0, 1.0, 5.0, 6.0]), np.array([1, 2, 3, 4, 5], np.int32)
    names = ("Open", "High", "Low", "Close", "Volume", "Vwap")
    rows = {"A": Rows(times, [price, price, price, price, volume, price])}
    found = resampled(rows, names, step, 5 * step, {"Vwap": "mean"}, None, "last")["A"]
    assert (found.times_ns - NOON).tolist() == [0, 5 * step, 10 * step]
    assert [column.tolist() for column in found.columns] == [
        *([3.0, 5.0, 6.0], [9.0, 5.0, 6.0], [1.0, 5.0, 6.0], [1.0, 5.0, 6.0], [6, 4, 5]),
        pytest.approx([13 / 3, 5.0, 6.0]),
    ]
    last = resampled(rows, names, step, 5 * step, {"Vwap": "mean"}, 1, "last")["A"]
    assert last.times_ns.tolist() == found.times_ns[-1:].tolist()


def test_what_cannot_be_put_together_is_refused(store: BarStore) -> None:
    bars = np.array([(NOON // 10**9, 1.5)], [("Epoch", "<i8"), ("Close", "<f8")])
    store.write(bars, "1H", "X", symbol="A")
    assert store.query("A", "1H", "X", resample="1D")["Close"].to_pylist() == [1.5]
    for resample, rules in (("90Min", {}), ("7H", {}), ("4H", {"Close": "median"})):
        with pytest.raises(ValueError, match=r"put together"):
            store.query("A", "1H", "X", resample=resample, rules=rules)
