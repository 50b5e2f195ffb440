"""Logs in Spark beside Spark's own Parquet: scan, sink, scrub, conversion, start-up."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.harness import Measure, race
from holdfast.disk import OsDisk
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.spark import session, warm
from holdfast.spark.jobs.conversion import convert
from holdfast.spark.jobs.scrubbing import scrub

SIZES = {100: 2_000_000, 1024: 300_000}


def run(scale: float, only: str) -> Iterator[Measure]:
    if only in "starts":
        yield from starts(scale)
    spark = session(memory="2g")
    for size, count in SIZES.items():
        rows = Rows(spark, size, max(10_000, int(count * scale) // 10_000 * 10_000))
        for measure in (scans, sinks, scrubs, conversions):
            if only in measure.__name__:
                yield from measure(rows)
        rows.close()
    spark.stop()


class Rows:
    """The same rows in a log and in zstd Parquet."""

    def __init__(self, spark: SparkSession, size: int, count: int) -> None:
        self.spark, self.size, self.count = spark, size, count
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
        self.log, self.parquet = str(self.directory / "log"), str(self.directory / "parquet")
        self.plain = str(self.directory / "plain")
        batch = [random.randbytes(size) for _ in range(10_000)]
        with ShanghaiLog(OsDisk(self.log)) as log:
            for _ in range(count // len(batch)):
                log.append(batch)
            log.rotate()
        frame = self.from_log().select("index", "payload")
        frame.write.option("compression", "zstd").parquet(self.parquet)
        frame.select("payload").repartition(8).write.option("compression", "none").parquet(
            self.plain
        )

    @property
    def gigabytes(self) -> float:
        return self.count * self.size / 1e9

    def from_log(self) -> DataFrame:
        return self.spark.read.format("holdfast-log").load(self.log)

    def target(self) -> str:
        return str(self.directory / f"target-{time.monotonic_ns()}")

    def close(self) -> None:
        shutil.rmtree(self.directory)


def total(frame: DataFrame, count: int) -> None:
    sums = F.count("*"), F.sum(F.length("payload")), F.sum("index")
    (row,) = frame.agg(*sums).collect()
    assert row[0] == count


def scans(rows: Rows) -> Iterator[Measure]:
    contenders = {
        "holdfast": lambda: total(
            rows.spark.read.format("holdfast-log")
            .option("columns", "index,payload")
            .load(rows.log),
            rows.count,
        ),
        "Parquet zstd": lambda: total(rows.spark.read.parquet(rows.parquet), rows.count),
    }
    medians, spreads = race(contenders, rounds=7)
    rates = {name: rows.count / median / 1e6 for name, median in medians.items()}
    name = f"Spark scan: count, sum of lengths; {rows.size} B"
    aims = {"Parquet zstd": 0.9}
    yield Measure(name, "Mrow/s", rates, spreads, higher_is_better=True, aims=aims)


def sinks(rows: Rows) -> Iterator[Measure]:
    def into(format: str) -> None:
        target = rows.target()
        writer = rows.spark.read.parquet(rows.plain).write.format(format).mode("append")
        (writer.option("compression", "zstd") if format == "parquet" else writer).save(target)
        shutil.rmtree(target)

    contenders = {
        "holdfast": lambda: into("holdfast-log"),
        "Parquet zstd": lambda: into("parquet"),
    }
    medians, spreads = race(contenders, rounds=5)
    rates = {name: rows.count / median / 1e6 for name, median in medians.items()}
    aims = {"Parquet zstd": 0.6}
    name = f"Spark sink from Parquet; {rows.size} B"
    yield Measure(name, "Mrow/s", rates, spreads, higher_is_better=True, aims=aims)


def scrubs(rows: Rows) -> Iterator[Measure]:
    files = list(Path(rows.log).glob("*.wal"))

    def read_all() -> None:
        buffer = bytearray(1 << 20)
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    contenders = {
        "holdfast": lambda: scrub(rows.spark, [rows.log]),
        "reading the bytes, one thread": read_all,
    }
    medians, spreads = race(contenders, rounds=7)
    rates = {name: rows.gigabytes / median for name, median in medians.items()}
    name = f"Spark scrub; {rows.size} B"
    aims = {"holdfast": 1.0}
    yield Measure(name, "GB/s", rates, spreads, higher_is_better=True, aims=aims)


def conversions(rows: Rows) -> Iterator[Measure]:
    def in_workers() -> None:
        target = rows.target()
        convert(rows.spark, rows.log, target)
        shutil.rmtree(target)

    def through_frames() -> None:
        target = rows.target()
        frame = rows.from_log().select("payload")
        frame.write.format("holdfast-log").mode("append").save(target)
        shutil.rmtree(target)

    contenders = {"holdfast": in_workers, "through DataFrames": through_frames}
    medians, spreads = race(contenders, rounds=5)
    rates = {name: rows.gigabytes / median for name, median in medians.items()}
    name = f"log to log; {rows.size} B"
    aims = {"through DataFrames": 4.0}
    yield Measure(name, "GB/s", rates, spreads, higher_is_better=True, aims=aims)


_START = """
import sys
from holdfast.spark import session
spark = session(fast_start=sys.argv[1] == "fast")
assert spark.range(1000).count() == 1000
"""
_PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
assert spark.range(1000).count() == 1000
"""


def starts(scale: float) -> Iterator[Measure]:
    """From nothing to the first result, each in a process of its own."""
    warm()
    quiet = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(code: str, *words: str) -> None:
        command = [sys.executable, "-c", code, *words]
        subprocess.run(command, check=True, capture_output=True, env=quiet)

    contenders = {
        "holdfast": lambda: start(_START, "fast"),
        "without the class cache": lambda: start(_START, "slow"),
        "plain PySpark": lambda: start(_PLAIN),
    }
    medians, spreads = race(contenders, rounds=max(2, int(5 * scale)), warm_up=0)
    yield Measure("Spark: first result", "s", medians, spreads, aims={"holdfast": 6})
