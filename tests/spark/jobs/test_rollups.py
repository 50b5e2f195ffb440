"""Longer bars of ticks and of bars are those that plain numpy makes."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pyspark.sql import SparkSession
from tests.spark.bar_samples import YEAR_S, asked, load, ohlcv, ticks
from tests.spark.samples import staged

from holdfast.bars.staging import Transaction, new_job, stage
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.errors import NotFoundError
from holdfast.spark.jobs import rollup, rollup_frame

STEPS_S = {"1Min": 60, "5Min": 300, "1H": 3600, "1D": 86_400}


def by_hand(rows: npt.NDArray[np.void], symbol: str, step_s: int) -> list[tuple[Any, ...]]:
    """One bar after the other, as one would do it on paper."""
    rows = rows[np.argsort(rows["Epoch"] * 10**9 + rows["Nanoseconds"], kind="stable")]
    found = []
    for start_s in np.unique(rows["Epoch"] // step_s * step_s).tolist():
        part = rows[rows["Epoch"] // step_s * step_s == start_s]
        price = part["Price"]
        bar = price[0], price.max(), price.min(), price[-1], part["Size"].astype(np.int64).sum()
        found.append((symbol, start_s * 10**9, *(value.item() for value in bar)))
    return found


@pytest.fixture(scope="module")
def given() -> dict[str, npt.NDArray[np.void]]:
    year_end = np.concatenate(
        [ticks(YEAR_S[2021] - 4000, 400, 1), ticks(YEAR_S[2021] + 100_000, 400, 2)]
    )
    return {"A": year_end, "B": ticks(YEAR_S[2020] + 86_000, 500, 3)}


def test_ticks_become_bars(
    spark: SparkSession, tmp_path: Path, given: dict[str, npt.NDArray[np.void]]
) -> None:
    path = tmp_path / "bars"
    with open_bars(path, create=True) as store:
        for symbol, rows in given.items():
            store.write(rows, "1Min", "TICK", symbol=symbol, is_variable=True)
    once = Transaction("rollup", 1)
    killed = stage(OsDisk(path), new_job(once), 0, [], "1D", "OHLCV")
    assert staged(path) == [Path(killed.name).name], "a run that was killed has left it"
    report = rollup(spark, str(path), "1Min", "TICK", list(STEPS_S), transaction=once)
    expected = {
        timeframe: sorted(
            bar for symbol, rows in given.items() for bar in by_hand(rows, symbol, step_s)
        )
        for timeframe, step_s in STEPS_S.items()
    }
    for timeframe in STEPS_S:
        assert asked(path, timeframe) == expected[timeframe]
    assert report.rows_read == 1300
    assert report.rows_written == {name: len(bars) for name, bars in expected.items()}
    again = rollup(spark, str(path), "1Min", "TICK", list(STEPS_S), transaction=once)
    assert not again.committed
    assert again.rows_written["1D"] == 0

    # The same of a frame, and of its bars of a minute.
    frame = load(spark, path, attributes="TICK").repartition(3)
    rollup_frame(frame, str(tmp_path / "frame"), ["1Min", "1D"])
    assert asked(tmp_path / "frame", "1Min") == expected["1Min"]
    rollup(spark, str(tmp_path / "frame"), "1Min", "OHLCV", ["5Min"], target_attributes="LONG")
    assert asked(tmp_path / "frame", "5Min", "LONG") == expected["5Min"]
    assert staged(path) == staged(tmp_path / "frame") == []


def test_whole_days_are_resampled_and_other_steps_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "bars"
    with open_bars(path, create=True) as store:
        store.write(ohlcv(YEAR_S[2021], 2000), "1Min", "OHLCV", symbol="A")
        bars = store.query("A", "1Min", "OHLCV", resample="1D").to_pylist()
    half: dict[str, Any] = {"startingTime": "2021-01-02T12:00", "endingTime": "2021-01-02T13:00"}
    rollup(spark, str(path), "1Min", "OHLCV", ["1D"], **half)
    assert [row[2] for row in asked(path, "1D")] == [bars[1]["Open"]]
    for timeframes, advice in (
        (["1W"], "must divide a day"),
        (["1Min"], "be a longer multiple"),
        ([], "pass the timeframes"),
    ):
        with pytest.raises(ValueError, match=advice):
            rollup(spark, str(path), "1Min", "OHLCV", timeframes)
    with pytest.raises(ValueError, match="needs a column 'Bid'"):
        rollup(spark, str(path), "1Min", "OHLCV", ["1D"], recipe={"Open": ("Bid", "first")})
    with pytest.raises(NotFoundError, match="no symbol has 1Min/TICK"):
        rollup(spark, str(path), "1Min", "TICK", ["1D"])
