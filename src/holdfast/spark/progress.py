"""A progress bar for the Spark jobs of a block of code.

    with progress(spark, "compacting", Console(stderr=True)):
        frame.collect()

Spark calls the jobs of one thread that share a name a group.  The block's jobs get their own group,
which the bar counts and Ctrl-C cancels.  Jobs that the block starts in further threads belong to it
only when those are PySpark's `InheritableThread`s.  Needs a classic session: Spark Connect has no
job groups to look at.
"""

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

POLL_SECONDS = 0.1

_GROUP_KEYS = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_numbers = itertools.count()


@contextmanager
def progress(
    spark: SparkSession, description: str, console: Console | None = None
) -> Iterator[str]:
    """Run the block as one job group, draw its progress, and yield the group's name.

    Nothing is drawn without a console, or when that is not a terminal.  Ctrl-C cancels the group's
    jobs, here and on the executors, and is raised again.  A block that succeeds ends at 100 %, also
    if it ran no job.
    """
    context = spark.sparkContext
    group = f"holdfast-{os.getpid()}-{next(_numbers)}"
    visible = console is not None and console.is_terminal
    bar = _drawn(context, group, description, console) if visible else nullcontext()
    with _job_group(context, group, description):
        try:
            with bar:
                yield group
        except KeyboardInterrupt:
            context.cancelJobGroup(group)
            raise


class _Tally:
    """How many tasks a group has, and how many are done."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._stages: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Return (done, total) of the stages that have started.

        Spark lists the stages that it will skip as well, so counting all would never reach the end.
        Stages that Spark has dropped since stay counted.
        """
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for number in info.stageIds if info else ():
                stage = self._tracker.getStageInfo(number)
                if stage and (stage.numActiveTasks or stage.numCompletedTasks):
                    self._stages[number] = (stage.numCompletedTasks, stage.numTasks)
        done, total = zip(*self._stages.values(), strict=True) if self._stages else ((), ())
        return sum(done), sum(total)


@contextmanager
def _drawn(
    context: SparkContext, group: str, description: str, console: Console | None
) -> Iterator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(description, total=None)
        finished = threading.Event()

        def follow() -> None:
            tally = _Tally(context, group)
            while not finished.wait(POLL_SECONDS):
                try:
                    done, total = tally.count()
                except Py4JError:  # the JVM has died: the block fails too, and reports it
                    return
                bar.update(task, completed=done, total=total or None)

        follower = threading.Thread(target=follow, name="holdfast-progress", daemon=True)
        follower.start()
        try:
            yield
        finally:
            finished.set()
            follower.join()
        bar.update(task, completed=1, total=1)


@contextmanager
def _job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Put this thread's jobs into a group, and restore the previous group afterwards."""
    before = {key: context.getLocalProperty(key) for key in _GROUP_KEYS}
    context.setJobGroup(group, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None removes it
