"""How commands use Spark: a session for as long as they run, its progress, its errors in a line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.spark.failures import told

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
    from pyspark.errors import PySparkException

    from holdfast.spark.progress import progress

    try:
        with progress(spark, doing, console if bar else None):
            yield spark
    except PySparkException as error:
        raise told(str(error)) from error
    finally:
        if ours:
            spark.stop()


def _start(master: str | None, doing: str) -> "tuple[SparkSession, bool]":
    """The session, and whether it is ours to stop."""
    from pyspark.sql import SparkSession

    from holdfast.spark import session  # before PySpark: it tells what to install

    ours = SparkSession.getActiveSession() is None
    return session(master, app_name=f"holdfast {doing}"), ours
