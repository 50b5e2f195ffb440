"""`scrub_bars`: every group and every year file of a bar store, read by all workers at once.

The verdict is that of `holdfast bars verify`: the same look at the logs, the same check of each
file, the same excuses for what an owner is at work on.  It is a guest, and may run beside one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from holdfast.bars.checking import YearCheck, check_year_file
from holdfast.disk import OsDisk
from holdfast.reports.bars import BarsVerdict, verify_bars
from holdfast.spark.bar_reader import stamps_of
from holdfast.spark.jobs.tasks import run_tasks

_TASK_SIZE = 64 * 2**20
_FILE_COST = 1 << 16  # to open a file costs as much as to read so many bytes


@dataclass(frozen=True, slots=True)
class _Work:
    path: str
    names: tuple[str, ...]


def scrub_bars(spark: SparkSession, path: str) -> BarsVerdict:
    """Verify all that can be verified of the store in this directory."""

    def check(disk: OsDisk, names: Sequence[str]) -> list[YearCheck]:
        found = run_tasks(spark, _share_out(disk.path, names), _check)
        return [one for part in found for one in part]

    return verify_bars(OsDisk(path).path, check=check)


def _share_out(path: str, names: Sequence[str]) -> list[_Work]:
    stamps, groups, filled = stamps_of(path), list[list[str]](), _TASK_SIZE
    for name in names:
        if filled >= _TASK_SIZE:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        stamp = stamps(name)
        filled += _FILE_COST + (stamp.used if stamp else 0)
    return [_Work(path, tuple(group)) for group in groups]


def _check(work: _Work) -> list[YearCheck]:
    disk = OsDisk(work.path)
    return [check_year_file(disk, name) for name in work.names]
