"""`scrub`: every checksum of one or many logs, read by all workers at once.

Its verdicts are those of `holdfast.reports.verify_log`, segment by segment.  It is a guest, and may
run beside live owners.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import SparkSession

from holdfast.disk import OsDisk
from holdfast.logs.log import SegmentInfo
from holdfast.reports import (
    EXIT_CODES,
    Finding,
    Verdict,
    VerifyPlan,
    VerifyReport,
    judge_log,
    plan_verify,
    verify_segment,
    worst,
)
from holdfast.spark.jobs.tasks import run_tasks

_TASK_SIZE = 64 * 2**20  # small segments share a task: to schedule one costs as much as a few MB


@dataclass(frozen=True, slots=True)
class ScrubReport:
    verdict: Verdict
    entries: int
    size: int
    logs: tuple[VerifyReport, ...]

    @property
    def exit_code(self) -> int:
        """As `holdfast log verify` has it."""
        return EXIT_CODES[self.verdict]


@dataclass(frozen=True, slots=True)
class _Work:
    """Some segments of one log."""

    plan: VerifyPlan
    segments: tuple[SegmentInfo, ...]


def scrub(spark: SparkSession, paths: Sequence[str]) -> ScrubReport:
    """Verify every checksum of the logs in these directories."""
    plans = [plan_verify(OsDisk(path).path) for path in paths]
    tasks = [work for plan in plans for work in _share_out(plan)]
    found = run_tasks(spark, tasks, _verify)
    by_log: dict[str, dict[str, Finding]] = {plan.path: {} for plan in plans}
    for task, findings in zip(tasks, found, strict=True):
        by_log[task.plan.path] |= findings
    logs = tuple(judge_log(plan, by_log[plan.path]) for plan in plans)
    return ScrubReport(
        worst(log.verdict for log in logs),
        sum(log.entries for log in logs),
        sum(log.size for log in logs),
        logs,
    )


def _share_out(plan: VerifyPlan) -> list[_Work]:
    # A worker needs to know only which segment is the last.
    slim = VerifyPlan(plan.path, plan.format, plan.segments[-1:], ())
    ends, total = {}, 0
    for segment in plan.segments:
        ends[segment.name] = total // _TASK_SIZE
        total += segment.size
    groups = groupby(plan.segments, lambda segment: ends[segment.name])
    return [_Work(slim, tuple(group)) for _, group in groups]


def _verify(work: _Work) -> dict[str, Finding]:
    return {segment.name: verify_segment(work.plan, segment) for segment in work.segments}
