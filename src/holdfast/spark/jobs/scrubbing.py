"""`scrub`, `scrub_kv`, `scrub_bars`: every checksum of a store, read by all workers at once.

The verdicts are those of `holdfast log verify`, `kv verify` and `bars verify`: the same plan, the
same check of each file, the same verdict.  A scrub changes nothing and may run beside an owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.bars.verify import BarsVerdict, YearCheck, check_year_file, verify_bars
from holdfast.disk import Disk, OsDisk
from holdfast.kv import verify as kv_verify
from holdfast.kv.plans import SourceSst
from holdfast.logs.verify import (
    Finding,
    VerifyPlan,
    VerifyReport,
    judge_log,
    plan_verify,
    verify_segment,
)
from holdfast.runtime import Runtime
from holdfast.spark.bar_reader import FILE_COST, stamps_of
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.kv_options import address_of
from holdfast.spark.progress import progress
from holdfast.spark.workers import grouped
from holdfast.verdicts import EXIT_CODES, Verdict, worst

_TASK_SIZE = 64 * 2**20  # small files share a task: to schedule one costs as much as a few MB


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """The verdict on some logs, and the report on each."""

    verdict: Verdict
    entries: int
    size: int
    logs: tuple[VerifyReport, ...]

    @property
    def exit_code(self) -> int:
        """Return the exit code of `holdfast log verify`."""
        return EXIT_CODES[self.verdict]


def scrub(spark: SparkSession, paths: Sequence[str]) -> ScrubReport:
    """Verify every checksum of the logs in these directories."""
    plans = [plan_verify(OsDisk(path)) for path in paths]
    # A worker needs to know only which segment is the last.
    tasks = [
        (VerifyPlan(plan.path, plan.format, plan.segments[-1:], ()), segments)
        for plan in plans
        for segments in grouped(plan.segments, lambda segment: segment.size, _TASK_SIZE)
    ]
    found = run_tasks(
        spark, tasks, lambda task: {one.name: verify_segment(task[0], one) for one in task[1]}
    )
    by_log: dict[str, dict[str, Finding]] = {plan.path: {} for plan in plans}
    for (plan, _), findings in zip(tasks, found, strict=True):
        by_log[plan.path] |= findings
    logs = tuple(judge_log(plan, by_log[plan.path]) for plan in plans)
    return ScrubReport(
        worst(log.verdict for log in logs),
        sum(log.entries for log in logs),
        sum(log.size for log in logs),
        logs,
    )


def scrub_kv(
    spark: SparkSession,
    url: str,
    *,
    bucket_options: Mapping[str, str] | None = None,
    console: Console | None = None,
) -> kv_verify.KvReport:
    """Verify every object that the active manifests of a store need.  A console gets a progress
    bar.
    """
    where, runtime = address_of(url, options=bucket_options), Runtime()

    def verify(needs: Sequence[SourceSst]) -> list[kv_verify.Checked]:
        bucket, runtime = where.open_to_read(), Runtime()
        return [kv_verify.verify_sst(bucket, need, runtime) for need in needs]

    bucket = where.open_to_read()
    plan = kv_verify.plan_verify(bucket, runtime)
    with progress(spark, "scrubbing", console):
        groups = grouped(plan.needs, lambda need: need.size, _TASK_SIZE)
        found = run_tasks(spark, groups, verify)
    return kv_verify.judge(bucket, plan, [checked for part in found for checked in part], runtime)


def scrub_bars(spark: SparkSession, path: str) -> BarsVerdict:
    """Verify every group and every year file of the store in this directory."""

    disk = OsDisk(path)

    def check(_: Disk, names: Sequence[str]) -> list[YearCheck]:
        where, stamps = disk.path, stamps_of(disk.path)

        def size_of(name: str) -> int:
            stamp = stamps(name)
            return FILE_COST + (stamp.used if stamp else 0)

        def check_files(names: Sequence[str]) -> list[YearCheck]:
            return [check_year_file(OsDisk(where), name) for name in names]

        found = run_tasks(spark, grouped(names, size_of, _TASK_SIZE), check_files)
        return [one for part in found for one in part]

    return verify_bars(disk, Runtime(), check=check)
