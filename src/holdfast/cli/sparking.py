"""How commands use Spark: one session per command, its progress, its errors in one line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(master: str | None, doing: str, *, bar: bool = True) -> "Iterator[SparkSession]":
    """Open a session whose jobs draw a bar on stderr, if it is a terminal.

    A command that runs a stream draws its own bar and passes `bar=False`.
    """
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting Spark") if sys.stderr.isatty() else nullcontext():
        spark, ours = _start(master, doing)
    from holdfast.spark.failures import FAILURES, error_in
    from holdfast.spark.progress import progress

    with _silenced(spark):
        try:
            with progress(spark, doing, console if bar else None):
                yield spark
        except FAILURES as error:
            raise error_in(str(error)) from error
        finally:
            if ours:
                spark.stop()


def need_spark() -> None:
    """Raise MissingError with what to install if PySpark is missing."""
    from holdfast.spark import session  # noqa: F401


@contextmanager
def _silenced(spark: "SparkSession") -> Iterator[None]:
    """Keep the JVM from printing a stack trace before the command reports the error."""
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
        if context._jsc is not None:  # the session continues: another part of the process opened it
            java.lang.System.setErr(stderr)
            context.setLogLevel("ERROR")


def _start(master: str | None, doing: str) -> "tuple[SparkSession, bool]":
    """Return the session, and whether this command must stop it."""
    from pyspark.sql import SparkSession

    from holdfast.spark import session  # before PySpark: its error names what to install

    ours = SparkSession.getActiveSession() is None
    return session(master, app_name=f"holdfast {doing}"), ours
