"""Kv stores in Spark beside Spark's own Parquet: compaction, bulk load, scan, scrub."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.harness import Measure, race
from holdfast.spark import session
from holdfast.spark.jobs import compact, scrub_kv

ROWS, RUNS = 2_000_000, 8
KEY_SIZE, VALUE_SIZE = 16, 100


def run(scale: float, only: str) -> Iterator[Measure]:
    spark = session(memory="2g")
    rows = Rows(spark, max(80_000, int(ROWS * scale)) // RUNS * RUNS)
    for measure in (compactions, loads, scans, scrubs):
        if only in measure.__name__:
            yield from measure(rows)
    rows.close()
    spark.stop()


class Rows:
    """Random keys and values: unsorted Parquet files, and the same rows as runs that overlap."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self.spark, self.count = spark, count
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
        self.plain = str(self.directory / "plain")
        Path(self.plain).mkdir()
        random = np.random.default_rng(0)
        for number in range(RUNS):
            keys = _binary(random.bytes(count // RUNS * KEY_SIZE), KEY_SIZE)
            values = _binary(random.bytes(count // RUNS * VALUE_SIZE), VALUE_SIZE)
            table = pa.table({"key": keys, "value": values})
            pq.write_table(table, f"{self.plain}/{number}.parquet", compression="none")
        self.runs = str(self.directory / "runs")
        for number in range(RUNS):
            self.load(self.runs, spark.read.parquet(f"{self.plain}/{number}.parquet").coalesce(1))

    @property
    def gigabytes(self) -> float:
        return self.count * (KEY_SIZE + VALUE_SIZE) / 1e9

    @property
    def unsorted(self) -> DataFrame:
        return self.spark.read.parquet(self.plain)

    def load(self, target: str, frame: DataFrame) -> None:
        frame.write.format("holdfast-kv").mode("append").save(target)

    def sort_into_parquet(self, target: str, frame: DataFrame) -> None:
        frame.sort("key").write.option("compression", "zstd").parquet(target)

    def target(self) -> str:
        return str(self.directory / f"target-{time.monotonic_ns()}")

    def close(self) -> None:
        shutil.rmtree(self.directory)


def _binary(data: bytes, size: int) -> pa.Array:
    ends = pa.array(np.arange(0, len(data) + 1, size, dtype=np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(data) // size, [None, ends.buffers()[1], pa.py_buffer(data)]
    )


def compactions(rows: Rows) -> Iterator[Measure]:
    """Eight sorted runs into one, the store copied before; beside Spark's sort of the same rows."""
    copies = [rows.target() for _ in range(6)]
    for copy in copies:
        shutil.copytree(rows.runs, copy, copy_function=_link)

    def ours() -> None:
        report = compact(rows.spark, copy := copies.pop(), everything=True)
        assert report.rows_written == rows.count
        shutil.rmtree(copy)

    def theirs() -> None:
        rows.sort_into_parquet(target := rows.target(), rows.unsorted)
        shutil.rmtree(target)

    yield _rates(
        "Spark compaction of 8 runs", rows, {"holdfast": ours, "Spark sort to Parquet": theirs}, 3.0
    )
    for copy in copies:
        shutil.rmtree(copy)


def loads(rows: Rows) -> Iterator[Measure]:
    def ours() -> None:
        rows.load(target := rows.target(), rows.unsorted)
        shutil.rmtree(target)

    def theirs() -> None:
        rows.sort_into_parquet(target := rows.target(), rows.unsorted)
        shutil.rmtree(target)

    yield _rates(
        "Spark bulk load of unsorted rows",
        rows,
        {"holdfast": ours, "Spark sort to Parquet": theirs},
        0.8,
    )


def scans(rows: Rows) -> Iterator[Measure]:
    store, parquet = rows.target(), rows.target()
    shutil.copytree(rows.runs, store, copy_function=_link)
    compact(rows.spark, store, everything=True)
    rows.sort_into_parquet(parquet, rows.unsorted)

    def total(frame: DataFrame) -> None:
        sums = F.count("*"), F.sum(F.length("value")), F.sum(F.length("key"))
        assert frame.agg(*sums).collect()[0][0] == rows.count

    spark = rows.spark
    reader = spark.read.format("holdfast-kv").option("columns", "key,value")
    for name, where in (("one run", store), ("8 runs that overlap", rows.runs)):
        contenders = {
            "holdfast": lambda: total(reader.load(where)),  # noqa: B023 - called at once
            "Parquet zstd": lambda: total(spark.read.parquet(parquet)),
        }
        yield _rates(f"Spark scan of {name}", rows, contenders, 0.8 if where == store else None)


def scrubs(rows: Rows) -> Iterator[Measure]:
    files = [path for path in Path(rows.runs).rglob("*.sst")]

    def read_all() -> None:
        buffer = bytearray(1 << 20)
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def ours() -> None:
        assert scrub_kv(rows.spark, rows.runs).rows == rows.count

    contenders = {"holdfast": ours, "reading the bytes, one thread": read_all}
    medians, spreads = race(contenders, rounds=5)
    rates = {name: rows.gigabytes / median for name, median in medians.items()}
    yield Measure(
        "Spark scrub of a kv store",
        "GB/s",
        rates,
        spreads,
        higher_is_better=True,
        aims={"holdfast": 1.0},
    )


def _rates(name: str, rows: Rows, contenders: dict, aim: float | None) -> Measure:  # type: ignore[type-arg]
    medians, spreads = race(contenders, rounds=5)
    rates = {contender: rows.count / median / 1e6 for contender, median in medians.items()}
    (other,) = [contender for contender in contenders if contender != "holdfast"]
    aims = {} if aim is None else {other: aim}
    about = f"{name}; {KEY_SIZE} B keys, {VALUE_SIZE} B values"
    return Measure(about, "Mrow/s", rates, spreads, higher_is_better=True, aims=aims)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
