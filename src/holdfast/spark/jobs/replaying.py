"""`replay`: a log into any Spark sink, from an index on; what was interrupted is taken up again.

It is a streaming query that ends when it has caught up, so its checkpoint remembers how far it
came.  Whether each entry arrives exactly once is up to the sink; Spark's files and our own logs
see to it.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.disk import OsDisk
from holdfast.reports import open_guest

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
    """Send all that the log has, and the checkpoint does not know of yet, to a sink.

    `start` counts when the checkpoint is new.  A sink that is a log gets the payloads alone.
    `on_progress` is told after each batch how far in the log it has come, and where that ends.
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
    with closing(open_guest(source)) as guest:
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
    """The batches that ended of late: where each one ended, and how many rows it had.

    Spark remembers a hundred, which is many more than end while we wait.
    """
    found = {}
    for progress in query.recentProgress:
        told = json.loads(progress.json)
        if rows := told["numInputRows"]:
            found[int(told["batchId"])] = (int(told["sources"][0]["endOffset"]["index"]), rows)
    return found
