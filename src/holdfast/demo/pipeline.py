"""The log becomes one-minute bars on Spark, exactly once, though a worker is killed on the way.

1.  A structured stream reads the log in micro-batches and decodes the ticks in Python workers.  The
    checkpoint fixes which entries belong to which batch before it runs, and Spark's file sink lists
    the files of each batch in one commit: the files of a task that died are never listed.
2.  The bars are aggregated from the ticks that were so landed.  First and last are those of the
    lowest and the highest index, so the order in which tasks ran does not matter.

Then both are compared with what was acknowledged, which Spark has never seen.
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

from holdfast.demo import bars, ticks, workers
from holdfast.demo.results import Batch, Streaming, WorkerKill
from holdfast.runtime import now_ms

BATCHES = 8
KILLS_MAX = 8
TICK_SCHEMA = "index long, time timestamp, symbol string, price double, size long"
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


def make_bars(landed: DataFrame) -> DataFrame:
    """One bar for each symbol and minute in which something was traded."""
    minute = F.date_trunc("minute", "time").alias("minute")
    return landed.groupBy("symbol", minute).agg(
        F.min_by("price", "index").alias("open"),
        F.max("price").alias("high"),
        F.min("price").alias("low"),
        F.max_by("price", "index").alias("close"),
        F.sum("size").alias("volume"),
        F.count("*").alias("count"),
    )


class Pipeline:
    """From the log at `log` to Parquet below `directory`."""

    def __init__(self, spark: SparkSession, log: Path, directory: Path, expected: ticks.Ticks):
        self._spark, self._log, self._directory = spark, log, directory
        self._expected = expected
        self._kills: list[WorkerKill] = []
        self._began_ms = 0

    def run(
        self, on_progress: Callable[[str, int, int], None] = lambda what, done, total: None
    ) -> tuple[Streaming, bars.Bars]:
        """Stream, aggregate, compare.  `on_progress` is told of each step, done and in all."""
        self._began_ms = now_ms()
        context = self._spark.sparkContext
        context.setLogLevel("OFF")  # else each task that we make fail prints its stack
        try:
            query = self._stream(on_progress)
        finally:
            context.setLogLevel("ERROR")
        seconds = self._since(now_ms())
        on_progress("bars", 0, 2)
        landed = self._spark.read.parquet(str(self._directory / "ticks"))
        made = self._aggregate(landed)
        on_progress("bars", 1, 2)
        counts = landed.agg(F.count("*"), F.count_distinct("index")).collect()[0]
        on_progress("bars", 2, 2)
        batches = self._batches(query)
        wanted = bars.make_bars(self._expected)
        streaming = Streaming(
            seconds=seconds,
            batches=batches,
            worker_kills=tuple(_placed(kill, batches) for kill in self._kills),
            failed_tasks=self._failed_tasks(query),
            rows=counts[0],
            distinct=counts[1],
            bars=len(made),
            bars_expected=len(wanted),
            bars_differing=_differing(made, wanted),
        )
        return streaming, made

    def _stream(self, on_progress: Callable[[str, int, int], None]) -> StreamingQuery:
        total = len(self._expected)
        query = (
            self._spark.readStream.format("holdfast-log")
            .option("maxEntriesPerTrigger", -(-total // BATCHES))
            .option("columns", "index,payload")
            .load(str(self._log))
            .mapInArrow(decode_ticks, TICK_SCHEMA)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .option("path", str(self._directory / "ticks"))
            .trigger(availableNow=True)
            .start()
        )
        finished = threading.Event()
        killer = threading.Thread(target=self._kill_a_worker, args=(query, finished), daemon=True)
        killer.start()
        try:
            while query.isActive:
                on_progress("stream", _rows(query), total)
                finished.wait(_POLL_SECONDS)
            query.awaitTermination()  # which tells how it ended, if it failed
        finally:
            finished.set()
            killer.join()
            query.stop()
        on_progress("stream", total, total)
        return query

    def _kill_a_worker(self, query: StreamingQuery, finished: threading.Event) -> None:
        """In the middle of the stream, until a task has failed of it."""
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

    def _aggregate(self, landed: DataFrame) -> bars.Bars:
        path = str(self._directory / "bars")
        make_bars(landed).coalesce(1).write.mode("overwrite").parquet(path)
        return bars.from_table(self._spark.read.parquet(path).toArrow())

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


def _rows(query: StreamingQuery) -> int:
    return sum(progress.numInputRows or 0 for progress in query.recentProgress)


def _placed(kill: WorkerKill, batches: tuple[Batch, ...]) -> WorkerKill:
    """With the number of the batch that ran when it happened."""
    later = [batch.number for batch in batches if batch.at_seconds >= kill.at_seconds]
    return WorkerKill(kill.pid, min(later, default=len(batches)), kill.at_seconds)


def _differing(made: bars.Bars, wanted: bars.Bars) -> int:
    """Bars that are in one and not, just so, in the other."""
    ours, theirs = set(wanted.tolist()), set(made.tolist())
    return max(len(ours - theirs), len(theirs - ours), abs(len(made) - len(wanted)))
