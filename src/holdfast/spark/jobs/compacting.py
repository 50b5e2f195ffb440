"""`compact`: the compactor of a kv store, with its merges in the workers.

The driver is the compactor: it fences others, plans, cuts tasks by keys and bytes, and commits.
Tasks merge the SSTs of a key range into new ones, without a shuffle; only their names cross Spark.
The garbage collector deletes what retries, speculative tasks or tasks of a dead driver wrote.  The
result is the same as that of `Compactor` in one process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.bucket import Bucket
from holdfast.kv.admin import CompactReport
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.tasks import Merged, Task, merge_task
from holdfast.runtime import Runtime
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.kv_options import address_of
from holdfast.spark.progress import progress

_TASK_SIZE_LEAST = 16 << 20  # to start a task costs as much as to merge a few MB
_TASKS_PER_CORE = 2  # so that a slow one does not delay all others


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

    FencedError: another compactor has fenced this one.  A console gets a progress bar.
    """
    where = address_of(url, cas, bucket_options)
    merges: list[tuple[Task, Merged]] = []

    def merge(tasks: Sequence[Task]) -> list[Merged]:
        done = run_tasks(
            spark, tasks, lambda task: merge_task(where.open_proved(), task, Runtime())
        )
        merges.extend(zip(tasks, done, strict=True))
        return done

    bucket, cores = where.open(), spark.sparkContext.defaultParallelism
    sized = _sized(options or CompactionOptions(), bucket, cores)
    compactor = Compactor(bucket, options=sized, merge=merge)
    with progress(spark, "compacting", console):
        steps = compactor.compact_everything() if everything else compactor.run_until_quiet()
    return CompactReport.of(steps, merges)


def _sized(options: CompactionOptions, bucket: Bucket, cores: int) -> CompactionOptions:
    """Reduce the size of tasks, so that each core gets several."""
    current = ManifestStore(bucket, Runtime()).latest()
    ssts = [sst for run in current[1].runs for sst in run] if current else []
    size = sum(sst.size for sst in [*ssts, *(current[1].l0 if current else ())])
    share = max(size // (cores * _TASKS_PER_CORE), _TASK_SIZE_LEAST)
    return replace(options, task_size=min(options.task_size, share))
