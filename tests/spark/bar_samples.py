"""Bar stores to read, and what is in them as numpy and Arrow have it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.doors import open_bars, read_bars

YEAR_S = {2020: 1_577_836_800, 2021: 1_609_459_200}
OHLCV = [("Open", "<f4"), ("High", "<f4"), ("Low", "<f4"), ("Close", "<f4"), ("Volume", "<i4")]
TICK = [("Price", "<f8"), ("Size", "<u4")]


def ohlcv(start_s: int, count: int, seed: int = 0) -> npt.NDArray[np.void]:
    """One bar a minute, with gaps."""
    random = np.random.default_rng(seed)
    rows = np.zeros(count, [("Epoch", "<i8"), *OHLCV])
    rows["Epoch"] = start_s + np.cumsum(random.integers(1, 4, count)) * 60
    for name in ("Open", "High", "Low", "Close"):
        rows[name] = random.integers(100, 200, count) / 4
    rows["Volume"] = random.integers(1, 1000, count)
    return rows


def ticks(start_s: int, count: int, seed: int = 0) -> npt.NDArray[np.void]:
    """A few a minute, no two at once."""
    random = np.random.default_rng(seed)
    rows = np.zeros(count, [("Epoch", "<i8"), ("Nanoseconds", "<i4"), *TICK])
    rows["Epoch"] = start_s + np.cumsum(random.integers(1, 40, count))
    rows["Nanoseconds"] = random.integers(0, 10**9, count)
    rows["Price"] = random.integers(100, 200, count) / 4
    rows["Size"] = random.integers(1, 1000, count)
    return rows


def make_bars(path: Path) -> Path:
    """Three symbols, two years, all in the year files."""
    with open_bars(path, create=True) as store:
        for number, symbol in enumerate(("AAPL", "MSFT", "NVDA")):
            for year, start_s in YEAR_S.items():
                bars = ohlcv(start_s + 86_400, 300, 10 * number + year)
                store.write(bars, "1Min", "OHLCV", symbol=symbol)
    return path


def load(spark: SparkSession, path: Path, timeframe: str = "1Min", **options: Any) -> DataFrame:
    wanted = {"timeframe": timeframe, "attributes": "OHLCV"} | options
    return spark.read.format("holdfast-bars").options(**wanted).load(str(path))


def save(frame: DataFrame, path: Path, timeframe: str = "1Min", **options: Any) -> None:
    wanted = {"timeframe": timeframe, "attributes": "OHLCV"} | options
    frame.write.format("holdfast-bars").options(**wanted).mode("append").save(str(path))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def asked(path: Path, timeframe: str = "1Min", attributes: str = "OHLCV") -> list[tuple[Any, ...]]:
    """The same by a query of the store."""
    with read_bars(path) as guest:
        table = guest.query("*", timeframe, attributes)
    columns = [table["symbol"].to_pylist(), table["time"].cast(pa.int64()).to_pylist()]
    columns += [table[name].to_pylist() for name in table.column_names[2:]]
    return sorted(zip(*columns, strict=True))
