"""Spark: stream the log into bars and prices exactly once, then compact, roll up and verify.

A structured stream reads the log in micro-batches, decodes the ticks in Python workers and keeps
the bars of all minutes so far.  Changed bars go into the bar store, where a bar replaces the one of
its minute, and their closing prices into the kv store.  Each store takes a micro-batch once, by its
number, so a batch that Spark runs again changes nothing.

One worker kills itself with SIGKILL while it decodes the entry in the middle of the log.  Spark
runs its task again; what the dead task had produced is dropped.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import holdfast
from holdfast.demo import market
from holdfast.demo.acts import Measured, Promise
from holdfast.doors.kv import manage_kv
from holdfast.spark.jobs import compact, rollup

BATCHES = 5
MINUTES = {"5Min": 5, "1H": 60, "1D": 1440}  # of the timeframes that are rolled up
_GC_MIN_AGE_MS = 2_000  # short, so that a demo has something to delete
_RECIPE = {n: (n, rule) for n, rule in zip(market.COLUMNS[2:], market.RULES, strict=True)}


class Pipeline:
    """The log, the bar store and the kv store in one directory."""

    def __init__(self, spark: SparkSession, directory: Path, ticks: market.Ticks) -> None:
        self.spark, self.ticks = spark, ticks  # those that the log must hold
        self.log, self.bars, self.prices = (directory / n for n in ("log", "bars", "prices"))
        self.checkpoint, self.killed = directory / "checkpoint", directory / "killed"

    def stream(self) -> Measured:
        """Run the stream over the whole log and compare what it wrote with the ticks."""
        holdfast.create_kv(self.prices, gc_min_age_ms=_GC_MIN_AGE_MS, maintain=False).close()
        began = time.monotonic()
        batches = self._run_query()
        seconds = time.monotonic() - began
        worker = int(self.killed.read_text()) if self.killed.exists() else 0
        bars, prices, wanted = self.read_bars("1Min"), self._prices(), market.make_bars(self.ticks)
        rows, found = sum(bars["Count"].to_pylist()), len(self.ticks)
        bad_bars = market.differing(bars, wanted)
        numbers = {(key.decode(), float(value)) for key, value in prices.items()}
        bad_prices = len(numbers ^ market.make_prices(wanted).items())
        figures = {"seconds": seconds, "batches": batches, "killed_worker": worker, "rows": rows}
        return {**figures, "lost": max(0, found - rows), "doubled": max(0, rows - found)}, [
            Promise(worker > 0, f"Spark worker {worker} killed with -9 in the middle of the log"),
            Promise(
                rows == found, f"{rows:,} of {found:,} ticks landed in {batches} micro-batches"
            ),
            Promise(
                not bad_bars, f"{len(bars):,} bars, {bad_bars:,} not as computed without Spark"
            ),
            Promise(not bad_prices, f"{len(prices):,} prices, {bad_prices:,} not as computed"),
        ]

    def maintain(self) -> Measured:
        """Compact the kv store, delete its garbage, and make longer bars of the minutes."""
        before = self._prices()
        with holdfast.open_kv(self.prices, maintain=False) as kv:
            snapshot = kv.snapshot()
        merged = compact(self.spark, str(self.prices), everything=True)
        time.sleep(_GC_MIN_AGE_MS / 1000)
        deleted = manage_kv(self.prices).gc().count
        bad_rows = len(before.items() ^ self._prices().items())
        bad_kept = len(before.items() ^ self._prices(snapshot.manifest_id).items())
        rolled = rollup(
            self.spark, str(self.bars), "1Min", "OHLCV", list(MINUTES), recipe=_RECIPE
        ).rows_written
        bad_bars = sum(
            market.differing(self.read_bars(name), market.make_bars(self.ticks, minutes))
            for name, minutes in MINUTES.items()
        )
        counts = ", ".join(f"{count:,} of {name}" for name, count in rolled.items())
        read, written = merged.rows_read, merged.rows_written
        return {"rows_read": read, "deleted": deleted, "rolled": rolled}, [
            Promise(not bad_rows, f"{read:,} rows compacted to {written:,}; {bad_rows:,} changed"),
            Promise(deleted > 0, f"{deleted:,} objects deleted"),
            Promise(not bad_kept, f"a snapshot from before: {bad_kept:,} rows changed"),
            Promise(not bad_bars, f"bars rolled up to {counts}, {bad_bars:,} not as computed"),
        ]

    def read_bars(self, timeframe: str) -> pa.Table:
        """Read all bars of a timeframe, without Spark."""
        with holdfast.read_bars(self.bars) as store:
            return store.query("*", timeframe, "OHLCV")

    def _prices(self, manifest_id: int | None = None) -> dict[bytes, bytes]:
        with holdfast.read_kv(self.prices, at=manifest_id, lazy=True) as reader:
            return dict(reader.items())

    def _run_query(self) -> int:
        """Run the stream and return the number of its micro-batches."""
        self.spark.sparkContext.setLogLevel("OFF")  # the killed task prints its stack otherwise
        ticks = (
            self.spark.readStream.format("holdfast-log")
            .option("columns", "index,payload")
            .option("maxEntriesPerTrigger", -(-len(self.ticks) // BATCHES))
            .load(str(self.log))
            .mapInArrow(
                _decoder(len(self.ticks) // 2, str(self.killed)),
                "index long, time timestamp, symbol string, price double, size long",
            )
        )
        query = (
            make_bars(ticks)
            .writeStream.outputMode("update")
            .foreachBatch(self._write)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            while query.isActive:  # and Ctrl-C is noticed
                time.sleep(0.25)
            query.awaitTermination()  # raises if the query failed
        finally:
            query.stop()
            self.spark.sparkContext.setLogLevel("ERROR")
        return sum(progress.numInputRows > 0 for progress in query.recentProgress)

    def _write(self, changed: DataFrame, batch: int) -> None:
        """Write one micro-batch to both stores; each of them knows it by its number."""
        once = {"txnAppId": "demo", "txnVersion": str(batch)}
        changed.persist()
        bars = changed.write.format("holdfast-bars").options(**once).mode("append")
        bars.options(timeframe="1Min", attributes="OHLCV").save(str(self.bars))
        prices = make_prices(changed).write.format("holdfast-kv").options(**once).mode("append")
        prices.save(str(self.prices))
        changed.unpersist()


def _decoder(
    die_at: int, mark: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_ticks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode a batch at a time; no Python runs per row.  Die once, at entry `die_at`."""
        for batch in batches:
            columns = market.as_table(market.decode(batch["payload"]))
            yield from columns.add_column(0, "index", batch["index"]).to_batches()
            first, last = batch["index"][0].as_py(), batch["index"][-1].as_py()
            if first <= die_at <= last and not Path(mark).exists():
                Path(mark).write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)

    return decode_ticks


def make_bars(ticks: DataFrame) -> DataFrame:
    """Make a bar for each symbol and minute; first and last are those of the log's order."""
    minute = F.date_trunc("minute", "time").alias("time")
    return ticks.groupBy("symbol", minute).agg(
        F.min_by("price", "index").alias("Open"),
        F.max("price").alias("High"),
        F.min("price").alias("Low"),
        F.max_by("price", "index").alias("Close"),
        F.sum("size").alias("Volume"),
        F.count("*").alias("Count"),
    )


def make_prices(bars: DataFrame) -> DataFrame:
    """Make rows of the kv store: the last price of each changed minute."""
    minute = F.concat_ws("/", "symbol", F.date_format("time", "HH:mm"))
    return bars.select(minute.alias("key"), F.col("Close").cast("string").alias("value"))
