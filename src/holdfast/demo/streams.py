"""The log becomes bars and prices on Spark, exactly once, though a worker is killed on the way.

A structured stream reads the log in micro-batches, decodes the ticks in Python workers, and keeps
the bars of all minutes so far.  Those that a batch has changed go into two stores:

1.  The bar store: a bar replaces the one of its minute.
2.  The kv store: the last price of each symbol, and of each of its minutes.

The checkpoint fixes which entries belong to which batch before it runs, and each store takes a
batch once, by its number: what a task that died had written is never committed, and a batch that
comes again changes nothing.  First and last are those of the lowest and the highest index, so the
order in which tasks ran does not matter.

Then both are compared with what was acknowledged, which Spark has never seen.  A tick that came
twice, or not at all, would be in the counts and volumes.
"""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.bars import open_bars
from holdfast.demo import bars, ticks, workers
from holdfast.demo.results import Batch, Streaming, WorkerKill
from holdfast.kv import Reader
from holdfast.runtime import now_ms

BATCHES = 5
KILLS_MAX = 8
TIMEFRAME, ATTRIBUTES = "1Min", "OHLCV"
_TICK_SCHEMA = "index long, time timestamp, symbol string, price double, size long"
_POLL_SECONDS = 0.25


def decode_ticks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Entries of the log as columns; a batch at a time, no Python runs per row."""
    for batch in batches:
        found = ticks.decode(batch["payload"])
        yield pa.record_batch(
            {
                "index": batch["index"],
                "time": pa.array(found["time_us"].copy()).cast(pa.timestamp("us", "UTC")),
                "symbol": pa.array(ticks.SYMBOLS).take(pa.array(found["symbol"].copy())),
                "price": pa.array(found["price"] / ticks.PRICE_UNIT),
                "size": pa.array(found["size"].astype(np.int64)),
            }
        )


def make_bars(found: DataFrame) -> DataFrame:
    """One bar for each symbol and minute in which something was traded."""
    minute = F.date_trunc("minute", "time").alias("time")
    return found.groupBy("symbol", minute).agg(
        F.min_by("price", "index").alias("Open"),
        F.max("price").alias("High"),
        F.min("price").alias("Low"),
        F.max_by("price", "index").alias("Close"),
        F.sum("size").alias("Volume"),
        F.count("*").alias("Count"),
    )


def make_prices(changed: DataFrame) -> DataFrame:
    """Of the bars of one batch: a price for each of their minutes, and the newest of each symbol.

    Entries come in the order of time, so the newest of a batch is the newest of all.
    """
    minute = F.concat_ws("/", F.lit("minute"), "symbol", F.date_format("time", "HH:mm"))
    minutes = changed.select(minute.alias("key"), F.col("Close").alias("price"))
    newest = changed.groupBy("symbol").agg(F.max_by("Close", "time").alias("price"))
    last = newest.select(F.concat(F.lit("last/"), "symbol").alias("key"), "price")
    return minutes.union(last).select("key", F.col("price").cast("string").alias("value"))


class Streams:
    """From the log at `log` into the stores at `bars` and `prices` below `directory`."""

    def __init__(self, spark: SparkSession, log: Path, directory: Path, expected: ticks.Ticks):
        self._spark, self._log, self._directory = spark, log, directory
        self._expected = expected
        self._kills: list[WorkerKill] = []
        self._began_ms = 0

    def run(
        self, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> tuple[Streaming, bars.Bars]:
        """Stream and compare.  `on_progress` is told how many ticks were taken in, and in all."""
        self._began_ms = now_ms()
        context = self._spark.sparkContext
        context.setLogLevel("OFF")  # else each task that we make fail prints its stack
        try:
            query = self._stream(on_progress)
        finally:
            context.setLogLevel("ERROR")
        batches = self._batches(query)
        made = read_bars(self._directory / "bars", TIMEFRAME)
        wanted = bars.make_bars(self._expected)
        prices, wanted_prices = self._prices(), bars.make_prices(self._expected)
        streaming = Streaming(
            seconds=self._since(now_ms()),
            batches=batches,
            worker_kills=tuple(_placed(kill, batches) for kill in self._kills),
            failed_tasks=self._failed_tasks(query),
            rows=int(made["count"].sum()),
            bars=len(made),
            bars_differing=bars.differing(made, wanted),
            prices=len(prices),
            prices_differing=len(set(prices.items()) ^ set(wanted_prices.items())),
        )
        return streaming, made

    def _stream(self, on_progress: Callable[[int, int], None]) -> StreamingQuery:
        total = len(self._expected)
        found = (
            self._spark.readStream.format("holdfast-log")
            .option("columns", "index,payload")
            .option("maxEntriesPerTrigger", -(-total // BATCHES))
            .load(str(self._log))
            .mapInArrow(decode_ticks, _TICK_SCHEMA)
        )
        query = (
            make_bars(found)
            .writeStream.outputMode("update")
            .foreachBatch(self._land)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        finished = threading.Event()
        killer = threading.Thread(target=self._kill_a_worker, args=(query, finished), daemon=True)
        killer.start()
        try:
            while query.isActive:
                on_progress(_rows(query), total)
                finished.wait(_POLL_SECONDS)
            query.awaitTermination()  # which tells how it ended, if it failed
        finally:
            finished.set()
            killer.join()
            query.stop()
        on_progress(total, total)
        return query

    def _land(self, changed: DataFrame, batch: int) -> None:
        """One batch into both stores, each of which knows it by its number."""
        once = {"txnAppId": "demo", "txnVersion": str(batch)}
        changed.persist()
        bar_writer = changed.write.format("holdfast-bars").options(**once).mode("append")
        bar_writer = bar_writer.option("timeframe", TIMEFRAME).option("attributes", ATTRIBUTES)
        bar_writer.save(str(self._directory / "bars"))
        price_writer = make_prices(changed).write.format("holdfast-kv").options(**once)
        price_writer.mode("append").save(str(self._directory / "prices"))
        changed.unpersist()

    def _kill_a_worker(self, query: StreamingQuery, finished: threading.Event) -> None:
        """In the middle of the streams, until a task has failed of it."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
        while not finished.wait(0.001) and len(self._kills) < KILLS_MAX:
            if len(query.recentProgress) < BATCHES // 3:
                finished.wait(0.02)
            elif (pid := workers.kill_busy_worker(jvm_pid)) is not None:
                self._kills.append(WorkerKill(pid, 0, self._since(now_ms())))
                if self._has_failed(query, finished):
                    return

    def _has_failed(self, query: StreamingQuery, finished: threading.Event) -> bool:
        """Whether a task has, or does soon: Spark counts a little later."""
        for _ in range(30):
            if self._failed_tasks(query):
                return True
            if finished.wait(0.1):
                break
        return False

    def _failed_tasks(self, query: StreamingQuery) -> int:
        tracker = self._spark.sparkContext.statusTracker()
        failed = 0
        for job in tracker.getJobIdsForGroup(str(query.runId)):
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())]
            failed += sum(stage.numFailedTasks for stage in stages if stage)
        return failed

    def _prices(self) -> dict[str, float]:
        with Reader.open(str(self._directory / "prices"), lazy=True) as reader:
            return {key.decode(): float(value) for key, value in reader.items()}

    def _batches(self, query: StreamingQuery) -> tuple[Batch, ...]:
        batches = []
        for progress in query.recentProgress:
            began_ms = datetime.fromisoformat(progress.timestamp).timestamp() * 1000
            spent_ms = progress.durationMs.get("triggerExecution", 0)
            if progress.numInputRows:
                ended = self._since(began_ms + spent_ms)
                rows = progress.numInputRows
                batches.append(Batch(progress.batchId, rows, ended, spent_ms / 1000))
        return tuple(batches)

    def _since(self, at_ms: float) -> float:
        return (at_ms - self._began_ms) / 1000


def read_bars(root: Path, timeframe: str) -> bars.Bars:
    """All bars of a store, read without Spark."""
    with open_bars(root, read_only=True) as store:
        return bars.from_table(store.query("*", timeframe, ATTRIBUTES))


def _rows(query: StreamingQuery) -> int:
    return sum(progress.numInputRows or 0 for progress in query.recentProgress)


def _placed(kill: WorkerKill, batches: tuple[Batch, ...]) -> WorkerKill:
    """With the number of the batch that ran when it happened."""
    later = [batch.number for batch in batches if batch.at_seconds >= kill.at_seconds]
    return WorkerKill(kill.pid, min(later, default=len(batches)), kill.at_seconds)
