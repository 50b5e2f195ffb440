"""Build the DataFrames of a pipeline.  Spark analyses every view; every sink is checked.

Nothing is read here.  `validate` and `run` build the same frames, so both find the same problems.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.spark import bar_sink, kv_sink
from holdfast.spark.failures import error_in
from holdfast.spark.log_sink import choose_columns
from holdfast.spark.pipelines.checking import nearest
from holdfast.spark.pipelines.declared import Declared, Problem, Sink, Source, Step, Table
from holdfast.spark.pipelines.parsing import parse, reading
from holdfast.spark.sources import register

_FITS: dict[str, Callable[[StructType, Sink], object]] = {
    "holdfast-log": lambda schema, sink: choose_columns(schema, sink.options.get("orderBy")),
    "holdfast-kv": lambda schema, sink: kv_sink.check_columns(schema),
    "holdfast-bars": lambda schema, sink: bar_sink.check_columns(
        schema, sink.options.get("symbol")
    ),
}
_RAW = "_source_"  # before the name of a source: its rows as they come; no view is called so


@dataclass(frozen=True, slots=True)
class Frames:
    """The views by name, and the bad rows of all sources, if they can have any."""

    views: dict[str, DataFrame]
    bad: DataFrame | None
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a frame is made of: its sources in the order of Spark's offsets, and its views."""

    sources: tuple[str, ...]
    views: frozenset[str]


def build(spark: SparkSession, declared: Declared) -> Frames:
    """Build the frames in a new session, so that no other view has the same name."""
    own = spark.newSession()
    register(own)
    frames = Frames({}, None, [])
    bad: list[DataFrame] = []
    for source in declared.sources:
        with _problems(frames, declared, f"source.{source.name}"):
            parsed = parse(_load(own, source), source)
            _show(own, source, parsed.good, frames)
            bad += [] if parsed.bad is None else [parsed.bad]
    for table in declared.tables:
        with _problems(frames, declared, f"table.{table.name}"):
            reader = own.read.format(table.format).options(**table.options)
            _show(own, table, reader.load(table.path), frames)
    for number, step in enumerate(declared.steps):
        later = [other.name for other in declared.steps[number:]]
        with _problems(frames, declared, f"step.{step.name}", later):
            _show(own, step, _made(own, step), frames)
    for sink in declared.sinks:
        if sink.view in frames.views:
            _check(frames, declared, sink)
    return Frames(frames.views, reduce(DataFrame.unionAll, bad) if bad else None, frames.problems)


def lineage(frame: DataFrame) -> Lineage:
    """Find the sources in the analysed plan, which has them in the order of Spark's offsets."""
    sources: list[str] = []
    views: set[str] = set()

    def walk(node: Any, inside: str) -> None:
        kind = node.getClass().getSimpleName()
        if kind == "SubqueryAlias":
            inside = node.alias()
            views.add(inside)
        if kind.startswith("StreamingRelation"):
            sources.append(inside.removeprefix(_RAW))
        for below in (node.children(), node.subqueries()):
            for number in range(below.size()):
                walk(below.apply(number), inside)

    walk(frame._jdf.queryExecution().analyzed(), "")
    known = {name.removeprefix(_RAW) for name in views}
    return Lineage(tuple(sources), frozenset(known))


def _load(spark: SparkSession, source: Source) -> DataFrame:
    source = reading(source)
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.schema and source.parse is None:
        reader = reader.schema(source.schema)
    reader.load(source.path).createOrReplaceTempView(f"{_RAW}{source.name}")
    return spark.table(f"{_RAW}{source.name}")


def _made(spark: SparkSession, step: Step) -> DataFrame:
    if step.function is None:
        return spark.sql(step.sql or "")
    views = {name: spark.table(name) for name in inspect.signature(step.function).parameters}
    made = step.function(**views)
    if not isinstance(made, DataFrame):
        raise TypeError(f"return a DataFrame, not {made!r}")
    return made


def _show(
    spark: SparkSession, item: Source | Table | Step, frame: DataFrame, frames: Frames
) -> None:
    if not isinstance(item, Table) and item.watermark is not None:
        frame = frame.withWatermark(*item.watermark)
    frame.createOrReplaceTempView(item.name)
    frames.views[item.name] = spark.table(item.name)


def _check(frames: Frames, declared: Declared, sink: Sink) -> None:
    """Check that the sink takes these columns and that the query can run in this mode."""
    frame = frames.views[sink.view]
    if not frame.isStreaming:
        what = f"name what reads a source: {sink.view} is the same in every batch"
        frames.problems.append(Problem(declared.file, f"sink.{sink.name}.from", what))
        return
    with _problems(frames, declared, f"sink.{sink.name}.from"):
        if set(lineage(frame).sources) - {source.name for source in declared.sources}:
            raise ValueError(
                f"{sink.view} reads a stream that is not declared: declare it as a source, so that "
                "its progress is known"
            )
    if sink.format in _FITS:
        with _problems(frames, declared, f"sink.{sink.name}"):
            _FITS[sink.format](frame.schema, sink)
    with _problems(frames, declared, f"sink.{sink.name}.mode"):
        jvm: Any = frame.sparkSession._jvm
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)


@contextmanager
def _problems(
    frames: Frames, declared: Declared, key: str, later: Collection[str] = ()
) -> Iterator[None]:
    """Record a failure of the block as a problem, and continue."""
    try:
        yield
    except PySparkException as error:
        what = _message(error, frames.views, later, {step.name for step in declared.steps})
        if what is not None:
            frames.problems.append(Problem(declared.file, key, what))
    except (Py4JError, ConnectionError):  # the JVM has died
        raise
    except Exception as error:  # the function of a step is the user's, and may raise anything
        what = str(error) if isinstance(error, ValueError) else repr(error)
        frames.problems.append(Problem(declared.file, key, what))


def _message(
    error: PySparkException,
    views: Collection[str],
    later: Collection[str],
    steps: Collection[str],
) -> str | None:
    """Return Spark's first line, or a better message.  None: the cause is a problem already."""
    line = str(error).strip().partition("\n")[0].partition(" SQLSTATE")[0]
    if error.getCondition() == "PYTHON_DATA_SOURCE_ERROR":
        return str(error_in(str(error)))
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return line
    missing = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
    if missing in later:
        return f"move step.{missing} before it: a step sees sources and earlier steps"
    if missing in steps:
        return None
    hint = nearest(missing, views) or f"; there are {', '.join(views)}"
    return f"no source or step is called {missing}{hint}"
