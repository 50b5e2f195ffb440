"""`compact`: the compactor of a kv store, with its merges in the workers.

The driver is the compactor: it takes over, plans, cuts tasks by keys and bytes, and alone commits.
Tasks merge the SSTs of a key range into new ones, without a shuffle; only their names cross Spark.
What retries, twins, or the tasks of a dead driver have written is garbage, which the collector
finds.  What is in the store afterwards is what `Compactor` makes of it in one process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.bucket import Bucket
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.tasks import Merged, Task, merge_task
from holdfast.runtime import Runtime
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.kv_options import Address, address_of
from holdfast.spark.progress import progress

_TASK_SIZE_LEAST = 16 << 20  # to start a task costs as much as to merge a few MB
_TASKS_PER_CORE = 2  # so that a slow one does not keep all others waiting


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What was done: compactions, rows and bytes that they read, rows that they wrote."""

    steps: int
    tasks: int
    rows_read: int
    bytes_read: int
    rows_written: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class _Work:
    where: Address
    task: Task


def compact(
    spark: SparkSession,
    url: str,
    *,
    everything: bool = False,
    cas: str | None = None,
    bucket_options: Mapping[str, str] | None = None,
    options: CompactionOptions | None = None,
    console: Console | None = None,
) -> CompactReport:
    """Compact until there is nothing to do; or `everything`, WAL and levels, into one run.

    FencedError: another compactor has taken over.  A console gets a progress bar.
    """
    where = address_of(url, cas, bucket_options)
    merges: list[tuple[Task, Merged]] = []

    def merge(tasks: Sequence[Task]) -> list[Merged]:
        found = run_tasks(spark, [_Work(where, task) for task in tasks], _merge)
        done = [_told(answer) for answer in found]
        merges.extend(zip(tasks, done, strict=True))
        return done

    bucket, cores = where.open(), spark.sparkContext.defaultParallelism
    sized = _sized(options or CompactionOptions(), bucket, cores)
    compactor = Compactor(bucket, options=sized, merge=merge)
    with progress(spark, "compacting", console):
        steps = compactor.compact_everything() if everything else compactor.run_until_quiet()
    return _report(steps, merges)


def _sized(options: CompactionOptions, bucket: Bucket, cores: int) -> CompactionOptions:
    """Several tasks for each core also where there is less to merge than one task would take."""
    current = ManifestStore(bucket, Runtime()).latest()
    ssts = [sst for run in current[1].runs for sst in run] if current else []
    size = sum(sst.size for sst in [*ssts, *(current[1].l0 if current else ())])
    share = max(size // (cores * _TASKS_PER_CORE), _TASK_SIZE_LEAST)
    return replace(options, task_size=min(options.task_size, share))


def _merge(work: _Work) -> Merged | FileNotFoundError:
    """In a worker.  A source that is gone stays so: to try again would not help."""
    try:
        return merge_task(work.where.open_proved(), work.task, Runtime())
    except FileNotFoundError as error:
        return error


def _told(answer: Merged | FileNotFoundError) -> Merged:
    if isinstance(answer, FileNotFoundError):
        raise answer
    return answer


def _report(steps: int, merges: Sequence[tuple[Task, Merged]]) -> CompactReport:
    ssts = [sst.info for _, merged in merges for sst in merged.ssts]
    return CompactReport(
        steps=steps,
        tasks=len(merges),
        rows_read=sum(merged.row_count for _, merged in merges),
        bytes_read=sum(sst.size for task, _ in merges for run in task.sources for sst in run),
        rows_written=sum(info.row_count for info in ssts),
        bytes_written=sum(info.size for info in ssts),
    )
