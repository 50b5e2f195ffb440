"""How commands use Spark: a session for as long as they run, its progress, its errors in a line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[*,4] (the default, all cores here) or spark://HOST:PORT, "
        "whose workers must see the same directories.",
    ),
]


@contextmanager
def spark_session(master: str | None, doing: str, *, bar: bool = True) -> "Iterator[SparkSession]":
    """A session whose jobs draw a bar on stderr, where a terminal is watching.

    A stream's jobs are not ours to count: its command draws its own and says `bar=False`.
    """
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting Spark") if sys.stderr.isatty() else nullcontext():
        spark, ours = _start(master, doing)
    from holdfast.spark.failures import FAILURES, told
    from holdfast.spark.progress import progress

    with _silenced(spark):
        try:
            with progress(spark, doing, console if bar else None):
                yield spark
        except FAILURES as error:
            raise told(str(error)) from error
        finally:
            if ours:
                spark.stop()


def need_spark() -> None:
    """MissingError says what to install; what imports PySpark itself cannot."""
    from holdfast.spark import session  # noqa: F401


@contextmanager
def _silenced(spark: "SparkSession") -> Iterator[None]:
    """What fails is told once, by us, and not before by the JVM with pages of stack."""
    if os.environ.get("HOLDFAST_DEBUG"):
        yield
        return
    context = spark.sparkContext
    java: Any = context._jvm.java  # type: ignore[union-attr]
    stderr = java.lang.System.err
    context.setLogLevel("OFF")
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        if context._jsc is not None:  # the session goes on: it was not ours
            java.lang.System.setErr(stderr)
            context.setLogLevel("ERROR")


def _start(master: str | None, doing: str) -> "tuple[SparkSession, bool]":
    """The session, and whether it is ours to stop."""
    from pyspark.sql import SparkSession

    from holdfast.spark import session  # before PySpark: it tells what to install

    ours = SparkSession.getActiveSession() is None
    return session(master, app_name=f"holdfast {doing}"), ours
