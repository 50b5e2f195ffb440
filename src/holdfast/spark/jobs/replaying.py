"""`replay`: send a log to any Spark sink, from an index on; an interrupted replay continues.

A replay is a streaming query that ends when it has caught up.  Its checkpoint holds its progress.
The sink decides whether each entry arrives exactly once; Spark's files and Holdfast's stores
guarantee it.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.disk import OsDisk
from holdfast.doors import read_log

_POLL_SECONDS = 1


@dataclass(frozen=True, slots=True)
class ReplayReport:
    source: str
    sink: str
    first_index: int | None  # of this run; None if there was nothing new
    last_index: int | None
    entries: int
    batches: int


def replay(
    spark: SparkSession,
    source: str,
    sink_format: str,
    sink_options: Mapping[str, str],
    *,
    checkpoint: str,
    start: int | str = "earliest",
    entries_per_batch: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ReplayReport:
    """Send all entries that the checkpoint does not have yet to a sink.

    `start` applies when the checkpoint is new.  A sink that is a log gets the payloads alone.
    `on_progress` is called after each batch with the last index that it read, and the log's.
    """
    rows = spark.readStream.format("holdfast-log").option("startingIndex", str(start))
    if entries_per_batch is not None:
        rows = rows.option("maxEntriesPerTrigger", entries_per_batch)
    if sink_format == "holdfast-log":
        rows = rows.option("columns", "payload")
    query = (
        rows.load(OsDisk(source).path)
        .writeStream.format(sink_format)
        .options(**sink_options)
        .option("checkpointLocation", OsDisk(checkpoint).path)
        .trigger(availableNow=True)
        .start()
    )
    with closing(read_log(source)) as guest:
        last = guest.last_index
    ended: dict[int, tuple[int, int]] = {}
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            ended |= _batches(query)
            if ended:
                reached = ended[max(ended)][0] - 1
                on_progress(reached, max(last, reached))
    except BaseException:
        query.stop()
        raise
    ended |= _batches(query)
    if not ended:
        return ReplayReport(source, sink_format, None, None, 0, 0)
    (first_stop, first_rows), (stop, _) = ended[min(ended)], ended[max(ended)]
    entries = sum(rows for _, rows in ended.values())
    return ReplayReport(source, sink_format, first_stop - first_rows, stop - 1, entries, len(ended))


def _batches(query: StreamingQuery) -> dict[int, tuple[int, int]]:
    """Return the stop index and the row count of recent batches.  Spark remembers a hundred."""
    found = {}
    for progress in query.recentProgress:
        known = json.loads(progress.json)
        if rows := known["numInputRows"]:
            found[int(known["batchId"])] = (int(known["sources"][0]["endOffset"]["index"]), rows)
    return found
