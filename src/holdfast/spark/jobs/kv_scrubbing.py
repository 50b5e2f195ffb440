"""`scrub_kv`: every checksum of a kv store, read by all workers at once.

Its verdicts are those of `holdfast.kv.verifying`.  It writes nothing, and may run beside live
owners.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.kv.verifying import Checked, KvReport, Need, judge, plan_verify, verify_sst
from holdfast.runtime import Runtime
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.kv_options import Address, address_of
from holdfast.spark.progress import progress

_TASK_SIZE = 64 << 20  # small SSTs share a task: to schedule one costs as much as a few MB


@dataclass(frozen=True, slots=True)
class _Work:
    where: Address
    needs: tuple[Need, ...]


def scrub_kv(
    spark: SparkSession,
    url: str,
    *,
    bucket_options: Mapping[str, str] | None = None,
    console: Console | None = None,
) -> KvReport:
    """Verify all that the active manifests of a store need.  A console gets a progress bar."""
    where, runtime = address_of(url, options=bucket_options), Runtime()
    bucket = where.open_to_read()
    plan = plan_verify(bucket, runtime)
    ends, total = {}, 0
    for need in plan.needs:
        ends[need.name] = total // _TASK_SIZE
        total += need.size
    groups = groupby(plan.needs, lambda need: ends[need.name])
    work = [_Work(where, tuple(group)) for _, group in groups]
    with progress(spark, "scrubbing", console):
        found = run_tasks(spark, work, _verify)
    return judge(bucket, plan, [checked for part in found for checked in part], runtime)


def _verify(work: _Work) -> list[Checked]:
    bucket, runtime = work.where.open_to_read(), Runtime()
    return [verify_sst(bucket, need, runtime) for need in work.needs]
