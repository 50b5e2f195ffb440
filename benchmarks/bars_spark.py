"""Bars in Spark beside Spark's own Parquet: scan, write, rollup, scrub."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.harness import Measure, race
from holdfast.doors import open_bars
from holdfast.spark import bars_frame, session
from holdfast.spark.jobs import rollup, scrub_bars

SCANNED, WRITTEN = 20, 6  # symbols
YEAR_S, MINUTES = 1_609_459_200, 525_600
_PRICES = ("Open", "High", "Low", "Close")


def run(scale: float, only: str) -> Iterator[Measure]:
    spark = session(memory="2g")
    for symbols, measures in ((SCANNED, (scans, scrubs)), (WRITTEN, (writes, rollups))):
        chosen = [measure for measure in measures if only in measure.__name__]
        if chosen:
            rows = Rows(spark, max(2, int(symbols * scale)))
            for measure in chosen:
                yield from measure(rows)
            rows.close()
    spark.stop()


class Rows:
    """A dense year of minutes of some symbols: in a store and in zstd Parquet."""

    def __init__(self, spark: SparkSession, symbols: int) -> None:
        self.spark, self.count = spark, symbols * MINUTES
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
        self.store, self.parquet = str(self.directory / "bars"), str(self.directory / "parquet")
        random = np.random.default_rng(0)
        kinds = [("Epoch", "<i8"), *((name, "<f4") for name in _PRICES), ("Volume", "<i4")]
        bars = np.zeros(MINUTES, kinds)
        bars["Epoch"] = YEAR_S + 60 * np.arange(MINUTES)
        with open_bars(self.store, create=True) as store:
            for number in range(symbols):
                for name in _PRICES:
                    bars[name] = 100 + np.cumsum(random.normal(0, 0.01, MINUTES))
                bars["Volume"] = random.integers(1, 10_000, MINUTES)
                store.write(bars, "1Min", "OHLCV", symbol=f"S{number}")
        self.from_store().write.option("compression", "zstd").parquet(self.parquet)

    def from_store(self, **options: str) -> DataFrame:
        wanted = {"timeframe": "1Min", "attributes": "OHLCV"} | options
        return self.spark.read.format("holdfast-bars").options(**wanted).load(self.store)

    def packed(self, columns: list[str]) -> DataFrame:
        chosen = None if columns == ["*"] else columns
        return bars_frame(self.spark, self.store, "1Min", "OHLCV", columns=chosen)

    def target(self) -> str:
        return str(self.directory / f"target-{time.monotonic_ns()}")

    def close(self) -> None:
        shutil.rmtree(self.directory)


def total(frame: DataFrame, count: int) -> None:
    """Look at every value; times are too large for a sum, and texts for a hash aggregation."""
    looks = {"symbol": F.max(F.length("symbol")), "epoch_ns": F.max("epoch_ns")}
    asked = [looks.get(name, F.sum(name)) for name in frame.columns]
    assert frame.agg(F.count("*"), *asked).collect()[0][0] == count


def scans(rows: Rows) -> Iterator[Measure]:
    for about, columns in (("all columns", None), ("two columns", "epoch_ns,Close")):
        options = {} if columns is None else {"columns": columns}
        chosen = ["*"] if columns is None else columns.split(",")
        contenders = {
            "holdfast": lambda: total(rows.packed(chosen), rows.count),  # noqa: B023
            "holdfast, row by row": lambda: total(rows.from_store(**options), rows.count),  # noqa: B023
            "Parquet zstd": lambda: total(
                rows.spark.read.parquet(rows.parquet).select(*chosen),  # noqa: B023
                rows.count,
            ),
        }
        yield _rates(f"Spark scan of bars, {about}", rows, contenders, 0.8 if not columns else None)


def writes(rows: Rows) -> Iterator[Measure]:
    frame = rows.spark.read.parquet(rows.parquet)

    def ours() -> None:
        target = rows.target()
        options = {"timeframe": "1Min", "attributes": "OHLCV"}
        frame.write.format("holdfast-bars").options(**options).mode("append").save(target)
        shutil.rmtree(target)

    def theirs() -> None:
        target = rows.target()
        frame.write.option("compression", "zstd").parquet(target)
        shutil.rmtree(target)

    yield _rates("Spark write of bars", rows, {"holdfast": ours, "Parquet zstd": theirs}, None)


def rollups(rows: Rows) -> Iterator[Measure]:
    """Bars of five minutes, an hour and a day; beside the same by Spark, into Parquet."""

    def ours() -> None:
        target = rows.target()
        rollup(rows.spark, rows.store, "1Min", "OHLCV", ["5Min", "1H", "1D"], target=target)
        shutil.rmtree(target)

    def theirs() -> None:
        frame = rows.spark.read.parquet(rows.parquet)
        for step_s in (300, 3600, 86_400):
            target, step_ns = rows.target(), step_s * 10**9
            start = (F.col("epoch_ns") - F.col("epoch_ns") % step_ns).alias("epoch_ns")
            made = frame.groupBy("symbol", start).agg(
                F.min_by("Open", "epoch_ns"),
                F.max("High"),
                F.min("Low"),
                F.max_by("Close", "epoch_ns"),
                F.sum("Volume"),
            )
            made.toDF("symbol", "epoch_ns", *_PRICES, "Volume").write.parquet(target)
            shutil.rmtree(target)

    contenders = {"holdfast": ours, "Spark groupBy to Parquet": theirs}
    yield _rates("Spark rollup to 5Min, 1H, 1D", rows, contenders, None)


def scrubs(rows: Rows) -> Iterator[Measure]:
    files = list(Path(rows.store).rglob("*.bin"))
    gigabytes = sum(file.stat().st_blocks * 512 for file in files) / 1e9

    def read_all() -> None:
        buffer = bytearray(1 << 20)
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def ours() -> None:
        assert scrub_bars(rows.spark, rows.store).rows == rows.count

    contenders = {"holdfast": ours, "reading the bytes, one thread": read_all}
    medians, spreads = race(contenders, rounds=5)
    rates = {name: gigabytes / median for name, median in medians.items()}
    yield Measure("Spark scrub of bars", "GB/s", rates, spreads, higher_is_better=True)


def _rates(name: str, rows: Rows, contenders: dict, aim: float | None) -> Measure:  # type: ignore[type-arg]
    medians, spreads = race(contenders, rounds=5)
    rates = {contender: rows.count / median / 1e6 for contender, median in medians.items()}
    other = list(contenders)[-1]
    aims = {} if aim is None else {other: aim}
    return Measure(name, "Mrow/s", rates, spreads, higher_is_better=True, aims=aims)
