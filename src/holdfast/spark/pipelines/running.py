"""Run a pipeline: one streaming query for each sink, and one for the bad rows.

Each query has its own checkpoint, so each sink gets every row exactly once.  Holdfast's sinks
identify a batch by the query's id and its number; Spark's Parquet sink uses the number in its own
log.  See docs/decisions/0007.  If one query fails, all are stopped, and its error is raised.

If the Python process of a query dies, the query is started again.  Spark retries tasks, but not the
process that plans them.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import CorruptError
from holdfast.spark.failures import FAILURES, error_in
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
BEGIN_SECONDS_MAX = 20
RESTARTS_MAX = 5  # of one query, without a batch in between
_LOST_PROCESS = ("Python worker failed to connect back", "Python worker exited unexpectedly")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that a sink has committed."""

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
    """What a query reads and where it writes to."""

    name: str
    frame: DataFrame
    sources: tuple[str, ...]
    format: str
    path: str
    mode: str
    options: Mapping[str, str]


@dataclass(slots=True)
class _Running:
    flow: _Flow
    query: StreamingQuery
    batch: int = -1  # the last one that was reported
    restarts: int = 0


def run(
    spark: SparkSession,
    declared: Declared,
    *,
    trigger: Trigger | None = None,
    accept_changes: bool = False,
    on_batch: Callable[[Batch], None] = lambda batch: None,
) -> RunReport:
    """Run until all current rows are written; a continuous pipeline runs until it is stopped.

    `on_batch` is called for every batch.  InvalidError if the pipeline cannot run as declared,
    ChangedError if the checkpoint was created by a different one; else what stopped a query.
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
                while _look(running, declared, trigger, report, on_batch):
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            if trigger.kind != "continuous":  # which ends in no other way
                raise
        for counts in (report.batches, report.rows):  # in the order of the file
            ordered = {flow.name: counts[flow.name] for flow in flows if flow.name in counts}
            counts.clear()
            counts.update(ordered)
        report.dead_letters = (rows_in("holdfast-log", declared.dead_letters) or 0) - letters
        return report


def _flows(declared: Declared, frames: Frames) -> tuple[list[_Flow], dict[str, checkpoint.Query]]:
    flows: list[_Flow] = []
    queries: dict[str, checkpoint.Query] = {}
    columns = {
        table.name: frames.views[table.name].schema.simpleString() for table in declared.tables
    }

    def add(name: str, frame: DataFrame, sink: Sink | None) -> None:
        made = lineage(frame)
        queries[name] = checkpoint.describe(declared, sink, made.sources, made.views, columns)
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
def _running(declared: Declared, flows: list[_Flow], trigger: Trigger) -> Iterator[list[_Running]]:
    """Run all queries until the block ends."""
    running: list[_Running] = []
    modules = {step.function.__module__ for step in declared.steps if step.function}
    for name in modules:
        if name.startswith("holdfast_pipeline_"):  # workers cannot import it
            cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    try:
        for flow in flows:
            with _blamed(flow):
                running.append(_Running(flow, _start(declared, flow, trigger)))
                _let_begin(running[-1].query)
        yield running
    finally:
        for one in running:
            one.query.stop()


def _start(declared: Declared, flow: _Flow, trigger: Trigger) -> StreamingQuery:
    home = checkpoint.query_path(declared.checkpoint, flow.name)
    writer = flow.frame.writeStream.outputMode(flow.mode)
    writer = writer.queryName(flow.name).option("checkpointLocation", str(home))
    if trigger.kind == "once":
        writer = writer.trigger(once=True)
    elif trigger.kind == "available-now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{trigger.every_ms} milliseconds")
    if flow.mode == "update":
        return writer.foreachBatch(_updating(flow, home)).start()
    return writer.format(flow.format).options(**flow.options).start(flow.path)


def _let_begin(query: StreamingQuery) -> None:
    """Wait until a query knows its offsets.  For that it starts a Python process, which has ten
    seconds to connect; on few cores, many at once would time out."""
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
        if query.status["isDataAvailable"]:
            return
        time.sleep(POLL_SECONDS / 5)


def _updating(flow: _Flow, home: Path) -> Callable[[DataFrame, int], None]:
    """Return a function that writes one batch as the transaction of the stream.  Spark itself
    streams to Python sinks only in append mode."""

    def write(rows: DataFrame, batch: int) -> None:
        query = json.loads((home / "metadata").read_bytes())["id"]
        known = {"txnAppId": query, "txnVersion": str(batch), "checkpointLocation": str(home)}
        options = {**flow.options, **known}
        rows.write.format(flow.format).options(**options).mode("append").save(flow.path)

    return write


def _look(
    running: list[_Running],
    declared: Declared,
    trigger: Trigger,
    report: RunReport,
    on_batch: Callable[[Batch], None],
) -> bool:
    """Report new batches; raise the error of a failed query.  False when all have ended."""
    active = [one.query.isActive for one in running]  # first, so that the last batch is seen
    for one in running:
        name = one.flow.name
        for batch in _batches(one, declared):
            one.batch, one.restarts = batch.batch, 0
            report.batches[name] = report.batches.get(name, 0) + 1
            report.rows[name] = report.rows.get(name, 0) + batch.rows
            checkpoint.note_batch(declared.checkpoint, name, batch.batch, batch.rows)
            on_batch(batch)
        error = one.query.exception()
        if error is None:
            continue
        if one.restarts == RESTARTS_MAX or not any(text in str(error) for text in _LOST_PROCESS):
            with _blamed(one.flow):
                raise error
        one.restarts += 1
        one.query = _start(declared, one.flow, trigger)
        _let_begin(one.query)
        active.append(True)
    return any(active)


def _batches(one: _Running, declared: Declared) -> Iterator[Batch]:
    """Yield the batches that have ended since the last call.  Spark remembers a hundred."""
    flow, last = one.flow, one.query.lastProgress
    if last is None or last.batchId <= one.batch:  # cheaper to ask than a hundred
        return
    for progress in one.query.recentProgress:
        known = json.loads(progress.json)
        if known["batchId"] <= one.batch or "addBatch" not in known["durationMs"]:
            continue  # nothing was written: there were no new rows
        lag = {
            name: lag_of(declared.source(name), source["endOffset"], source["latestOffset"])
            for name, source in zip(flow.sources, known["sources"], strict=True)
        }
        found = checkpoint.read_progress(declared.checkpoint, flow.name)
        yield Batch(
            flow.name,
            known["batchId"],
            known["numInputRows"],
            known["processedRowsPerSecond"],
            lag,
            found.committed_ms if found else 0,
        )


@contextmanager
def _blamed(flow: _Flow) -> Iterator[None]:
    """Translate Spark's errors, and name the query that they stopped."""
    try:
        yield
    except FAILURES as error:
        where = f"sink.{flow.name}" if flow.name != KEEPS_ROWS_APART else "dead_letter"
        found = error_in(str(error))
        if isinstance(found, CorruptError):
            why = f"{found.why}; it stopped {where}"
            raise CorruptError(found.where, found.offset, why) from error
        raise type(found)(f"{where}: {found}") from error
