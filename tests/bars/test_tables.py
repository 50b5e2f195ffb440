"""Parsing of times, and resampling of bars."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.bars import BarStore
from holdfast.bars.candles import candles
from holdfast.bars.query import TIME_STOP_NS, Rows
from holdfast.bars.tables import resampled
from holdfast.bars.times import as_ns, span_of
from holdfast.formats.bar_time import DAY_NS, parse_timeframe

NOON = 1_609_502_400 * 10**9  # 1 January 2021


@pytest.mark.parametrize(
    "moment",
    [
        *(NOON, "2021-01-01T12:00", "2021-01-01 12:00:00Z", np.datetime64(NOON, "ns")),
        *(datetime(2021, 1, 1, 12), datetime(2021, 1, 1, 12, tzinfo=UTC), pd.Timestamp(NOON)),
        datetime(2021, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        *("2021-01-01T14:00+02:00", "2021-01-01 09:30:00.000-0230", "1609502400"),
        pd.Timestamp("2021-01-01 07:00", tz="America/New_York"),
    ],
    ids=repr,
)
def test_every_form_of_a_time_is_parsed(moment: object) -> None:
    assert as_ns(moment, 0) == NOON


def test_invalid_timestamps_are_refused() -> None:
    for moment in (
        *("yesterday", "NaT", "now", "2026-13-01", "2026-11-16T25:00", "2026-11-16+02:00", ""),
        *(
            "2026",
            "2026-11",
            "20261116",
            "2026-11-16T09:30+99:00",
            "2026-11-16T09:30.5",
            pd.NaT,
            1.5,
            [],
            object(),
        ),
    ):
        with pytest.raises(ValueError, match=r"cannot parse .* as a timestamp; expected YYYY"):
            as_ns(moment, 0)
    with pytest.raises(ValueError, match="'first' or 'last'"):
        span_of(None, None, 1, "middle")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "moment",
    [
        *(date(2021, 1, 1), "2021-01-01", np.datetime64("2021-01-01"), datetime(2021, 1, 1)),
        *(pd.Timestamp("2021-01-01"), np.datetime64("2021")),
    ],
    ids=repr,
)
def test_a_date_is_its_midnight(moment: object) -> None:
    midnight = NOON - DAY_NS // 2
    assert as_ns(moment, 0) == midnight
    span = span_of(moment, None, None, "last")
    assert (span.start_ns, span_of(None, moment, None, "last").stop_ns) == (midnight, midnight)
    one = span_of(None, None, None, "last", day=moment)
    assert (one.start_ns, one.stop_ns) == (midnight, midnight + DAY_NS)


def test_far_times_do_not_wrap() -> None:
    for far in ("2600-01-01", datetime.max, np.datetime64("2600-01-01", "s"), date.max):
        assert span_of(None, far, None, "last").stop_ns == TIME_STOP_NS
        assert not span_of(far, None, None, "last").years()
    late = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    assert span_of(None, late, None, "last").stop_ns == TIME_STOP_NS
    assert span_of(datetime.min, None, None, "last").start_ns == 0


def test_rows_of_a_day_are_asked_for_by_its_date(store: BarStore) -> None:
    hours = NOON - DAY_NS // 2 + np.arange(72) * DAY_NS // 24
    rows = {"time": hours.astype("M8[ns]"), "Price": np.arange(72)}
    store.write(rows, "1H", "X", symbol="A")
    store.write(rows, "1H", "T", symbol="A", is_variable=True)
    for attributes in ("X", "T"):
        found = store.query("A", "1H", attributes, day="2021-01-02")
        assert found["Price"].to_pylist() == list(range(24, 48))
        ranged = store.query("A", "1H", attributes, start="2021-01-02", stop="2021-01-03")
        assert ranged == found
        assert store.delete("A", "1H", attributes, day=date(2021, 1, 2)) == 24
        assert len(store.query("A", "1H", attributes, day="2021-01-02")) == 0
        assert len(store.query("A", "1H", attributes)) == 48
    for options in ({"start": "2021-01-01"}, {"stop": "2021-01-01"}):
        with pytest.raises(ValueError, match="day excludes start and stop"):
            store.query("A", "1H", "X", day="2021-01-02", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'2021-01-02T12:00' is not a date; expected YYYY-MM-DD"):
        store.delete("A", "1H", "X", day="2021-01-02T12:00")


def test_bars_are_resampled() -> None:
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


def test_bars_that_cannot_be_resampled_are_refused(store: BarStore) -> None:
    bars = np.array([(NOON // 10**9, 1.5)], [("Epoch", "<i8"), ("Close", "<f8")])
    store.write(bars, "1H", "X", symbol="A")
    assert store.query("A", "1H", "X", resample="1D")["Close"].to_pylist() == [1.5]
    for resample, rules in (("90Min", {}), ("7H", {}), ("4H", {"Close": "median"})):
        with pytest.raises(ValueError, match=r"cannot resample|set a rule"):
            store.query("A", "1H", "X", resample=resample, rules=rules)


def _days(store: BarStore, values: Any, first: str = "2024-01-01", **options: Any) -> Any:
    start = np.datetime64(first, "D")
    times = start + np.arange(len(values))
    store.write({"time": times, "V": values}, "1D", "X", symbol="A")
    return store.query("A", "1D", "X", **options)


def test_weeks_begin_on_monday(store: BarStore) -> None:
    found = _days(store, np.arange(15), "2023-12-31", resample="1W", rules={"V": "sum"})
    mondays = [str(time.as_py().date()) for time in found["time"]]
    assert mondays == ["2023-12-25", "2024-01-01", "2024-01-08"]
    assert found["V"].to_pylist() == [0, sum(range(1, 8)), sum(range(8, 15))]


@pytest.mark.parametrize("rule", ["first", "max", "min", "last", "sum", "mean"])
def test_nan_is_skipped_as_pandas_does(store: BarStore, rule: str) -> None:
    nan = float("nan")
    values = np.array([nan, 2, nan, 4, 1, nan, nan, *[nan] * 7, 5.0, nan, nan, nan, nan, nan, 6])
    found = _days(store, values, resample="1W", rules={"V": rule})["V"].to_numpy()
    series = pd.Series(values, pd.date_range("2024-01-01", periods=len(values)))
    wanted = getattr(series.resample("W-SUN"), rule)().to_numpy()
    np.testing.assert_array_equal(found, wanted)


def test_sums_are_exact_or_refused(store: BarStore) -> None:
    big = np.array([2**63, 2**62, 1, 0, 0, 0, 0], np.uint64)
    rules = {"V": "sum"}
    assert _days(store, big, resample="1W", rules=rules)["V"].to_pylist() == [2**63 + 2**62 + 1]
    with pytest.raises(ValueError, match="does not fit into uint64"):
        _days(store, big * 0 + np.uint64(2**62), resample="1W", rules=rules)
    ticks = pa.table(
        {
            "symbol": pa.array(["A", "A"]).dictionary_encode(),
            "time": pa.array([0, 1], pa.timestamp("ns", "UTC")),
            "Price": [float("nan"), 2.0],
            "Size": pa.array([2**63, 5], pa.uint64()),
        }
    )
    bars = candles(ticks, 60 * 10**9, "Price", "Size")
    assert bars["Volume"].to_pylist() == [2**63 + 5]
    assert bars["Open"].to_pylist() == [2.0]


@pytest.mark.parametrize("timeframe", ["1Min", "1H", "1D"])
def test_a_tick_stays_in_its_second(store: BarStore, timeframe: str) -> None:
    step = max(parse_timeframe(timeframe) >> 32, 1)
    seconds = 10**9 * np.arange(1_704_200_000, 1_704_200_000 + 90)
    times = np.sort(np.concatenate([seconds, seconds + min(5, step // 2)]))
    rows = {"time": times, "V": np.arange(len(times))}
    store.write(rows, timeframe, "T", symbol="A", is_variable=True)
    found = store.query("A", timeframe, "T")["time"].cast("int64").to_numpy()
    assert np.array_equal(found // 10**9, times // 10**9)
    at = int(seconds[7])
    kept = store.query("A", timeframe, "T", start=at, stop=at + 10**9)["V"].to_pylist()
    assert kept == [14, 15]
    store.delete("A", timeframe, "T", start=at, stop=at + 10**9)
    left = store.query("A", timeframe, "T")["V"].to_pylist()
    assert left == [n for n in range(len(times)) if n not in (14, 15)]


@pytest.mark.parametrize("symbol", ["*", "A,B", "A,", ","])
def test_a_symbol_can_be_named_in_a_query(store: BarStore, symbol: str) -> None:
    with pytest.raises(ValueError, match="invalid symbol"):
        store.write({"Epoch": [86400], "V": [1]}, "1D", "X", symbol=symbol)
    store.write({"Epoch": [86400], "V": [1]}, "1D", "X", symbol="BRK*B")
    assert store.query("BRK*B", "1D", "X")["V"].to_pylist() == [1]
