"""Run a pipeline: one streaming query for each sink, and one for the bad rows.

Each query has a checkpoint of its own, so each sink gets every row exactly once by itself: ours
know a batch by the query's id and its number, Spark's files by the number in their own log.  See
docs/decisions/0007.  If one query cannot go on, all are stopped, and what stopped it is raised.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import CorruptError
from holdfast.spark.failures import told
from holdfast.spark.pipelines import checkpoint
from holdfast.spark.pipelines.declared import (
    KEEPS_ROWS_APART,
    Declared,
    InvalidError,
    Sink,
    Trigger,
)
from holdfast.spark.pipelines.frames import Frames, build, lineage
from holdfast.spark.pipelines.positions import lag_of
from holdfast.spark.pipelines.status import rows_in

POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that a sink has taken."""

    sink: str
    batch: int
    rows: int  # read from its sources
    rows_per_second: float
    lag: Mapping[str, int | None]  # of each source, what it had still to read
    committed_ms: int


@dataclass(slots=True)
class RunReport:
    """What a run has done, by sink."""

    pipeline: str
    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    dead_letter_log: str = ""


@dataclass(frozen=True, slots=True)
class _Flow:
    """One query to be: what it reads and where it writes to."""

    name: str
    frame: DataFrame
    sources: tuple[str, ...]
    format: str
    path: str
    mode: str
    options: Mapping[str, str]


def run(
    spark: SparkSession,
    declared: Declared,
    *,
    trigger: Trigger | None = None,
    accept_changes: bool = False,
    on_batch: Callable[[Batch], None] = lambda batch: None,
) -> RunReport:
    """Run until all that is there now has been written; a continuous one until it is stopped.

    `on_batch` is told of every batch.  InvalidError if the pipeline cannot be run as declared,
    ChangedError if it is not what the checkpoint was made with; else what stopped a query.
    """
    with checkpoint.owned(declared.checkpoint):
        frames = build(spark, declared)
        if frames.problems:
            raise InvalidError(frames.problems)
        flows, queries = _flows(declared, frames)
        checkpoint.agree(declared, queries, accept_changes=accept_changes)
        report = RunReport(declared.name, dead_letter_log=declared.dead_letters)
        letters = rows_in("holdfast-log", declared.dead_letters) or 0
        trigger = trigger or declared.trigger
        try:
            with _running(declared, flows, trigger) as running:
                _watch(running, declared, report, on_batch)
        except KeyboardInterrupt:
            if trigger.kind != "continuous":  # which has no other end
                raise
        report.dead_letters = (rows_in("holdfast-log", declared.dead_letters) or 0) - letters
        return report


def _flows(declared: Declared, frames: Frames) -> tuple[list[_Flow], dict[str, checkpoint.Query]]:
    flows: list[_Flow] = []
    queries: dict[str, checkpoint.Query] = {}

    def add(name: str, frame: DataFrame, sink: Sink | None) -> None:
        made = lineage(frame)
        queries[name] = checkpoint.describe(declared, sink, made.sources, made.views)
        place = (
            ("holdfast-log", declared.dead_letters, "append", {})
            if sink is None
            else (sink.format, sink.path, sink.mode, sink.options)
        )
        flows.append(_Flow(name, frame, made.sources, *place))

    for sink in declared.sinks:
        add(sink.name, frames.views[sink.view], sink)
    if frames.bad is not None:
        add(KEEPS_ROWS_APART, frames.bad, None)
    return flows, queries


@contextmanager
def _running(
    declared: Declared, flows: list[_Flow], trigger: Trigger
) -> Iterator[list[tuple[_Flow, StreamingQuery]]]:
    """All queries, which end with the block, however it ends."""
    running: list[tuple[_Flow, StreamingQuery]] = []
    modules = {step.function.__module__ for step in declared.steps if step.function}
    for name in modules:
        if name.startswith("holdfast_pipeline_"):  # workers cannot import it
            cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    try:
        for flow in flows:
            with _blamed(flow):
                running.append((flow, _start(declared, flow, trigger)))
        yield running
    finally:
        for _, query in running:
            query.stop()


def _start(declared: Declared, flow: _Flow, trigger: Trigger) -> StreamingQuery:
    home = checkpoint.query_path(declared.checkpoint, flow.name)
    writer = flow.frame.writeStream.format(flow.format).outputMode(flow.mode)
    writer = writer.options(**flow.options).option("checkpointLocation", str(home))
    if trigger.kind == "once":
        writer = writer.trigger(once=True)
    elif trigger.kind == "available-now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{trigger.every_ms} milliseconds")
    return writer.queryName(flow.name).start(flow.path)


def _watch(
    running: list[tuple[_Flow, StreamingQuery]],
    declared: Declared,
    report: RunReport,
    on_batch: Callable[[Batch], None],
) -> None:
    """Until all have ended, or one has failed."""
    seen = {flow.name: -1 for flow, _ in running}
    while True:
        active = [query.isActive for _, query in running]  # first, so that the last batch is seen
        for flow, query in running:
            for batch in _batches(flow, query, declared, seen[flow.name]):
                seen[flow.name] = batch.batch
                report.batches[flow.name] = report.batches.get(flow.name, 0) + 1
                report.rows[flow.name] = report.rows.get(flow.name, 0) + batch.rows
                on_batch(batch)
            if (error := query.exception()) is not None:
                with _blamed(flow):
                    raise error
        if not any(active):
            return
        time.sleep(POLL_SECONDS)


def _batches(flow: _Flow, query: StreamingQuery, declared: Declared, after: int) -> Iterator[Batch]:
    """Those that have ended since.  Spark remembers a hundred, more than end between two looks."""
    for progress in query.recentProgress:
        told = json.loads(progress.json)
        if told["batchId"] <= after or "addBatch" not in told["durationMs"]:
            continue  # nothing was written: it only looked for news
        lag = {
            name: lag_of(declared.source(name), source["endOffset"], source["latestOffset"])
            for name, source in zip(flow.sources, told["sources"], strict=True)
        }
        found = checkpoint.read_progress(declared.checkpoint, flow.name)
        yield Batch(
            flow.name,
            told["batchId"],
            told["numInputRows"],
            told["processedRowsPerSecond"],
            lag,
            found.committed_ms if found else 0,
        )


@contextmanager
def _blamed(flow: _Flow) -> Iterator[None]:
    """Spark's errors become ours, and name the query that they stopped."""
    try:
        yield
    except PySparkException as error:
        where = f"sink.{flow.name}" if flow.name != KEEPS_ROWS_APART else "dead_letter"
        ours = told(str(error))
        if isinstance(ours, CorruptError):
            raise CorruptError(
                ours.where, ours.offset, f"{ours.why}; it stopped {where}"
            ) from error
        raise type(ours)(f"{where}: {ours}") from error
