"""Pipelines: sources, steps and sinks declared once, run by Spark.  The page: docs/pipelines.md

    from holdfast.spark import session
    from holdfast.spark.pipelines import read, run

    run(session(), read("ticks.toml"))

Importing this costs nothing: PySpark is imported by the first use that needs it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.spark.pipelines.checking import check
from holdfast.spark.pipelines.checkpoint import ChangedError
from holdfast.spark.pipelines.declared import Declared, InvalidError, Problem, Trigger
from holdfast.spark.pipelines.reading import Pipeline, read_tables
from holdfast.spark.pipelines.status import Status, status
from holdfast.spark.pipelines.template import write_template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.pipelines.running import Batch, RunReport, run

__all__ = [
    "Batch",
    "ChangedError",
    "Declared",
    "InvalidError",
    "Pipeline",
    "Problem",
    "RunReport",
    "Status",
    "Trigger",
    "read",
    "run",
    "status",
    "validate",
    "write_template",
]


def read(path: str | Path) -> Declared:
    """Read a pipeline from its file.  InvalidError lists all problems."""
    declared, problems = check(path, read_tables(path))
    if declared is None or problems:
        raise InvalidError(problems)
    return declared


def validate(spark: "SparkSession", path: str | Path) -> list[Problem]:
    """Return all problems of a file, including those that Spark finds."""
    from holdfast.spark.pipelines.frames import build

    try:
        declared, problems = check(path, read_tables(path))
    except InvalidError as error:
        return error.problems
    return problems + (build(spark, declared).problems if declared is not None else [])


def __getattr__(name: str) -> Any:
    if name not in ("Batch", "RunReport", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.spark.pipelines import running

    return getattr(running, name)
