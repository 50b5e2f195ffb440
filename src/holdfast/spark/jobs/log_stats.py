"""`stats`: how many entries and bytes a log has, over time and by size.

An entry has the time at which its segment was created.  Sizes are those of payloads, in buckets
that double.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.logs.log import Damage
from holdfast.logs.opening import FORMATS, format_of
from holdfast.logs.scan_plan import ScanTask, plan_scan
from holdfast.spark.jobs.tasks import run_tasks


@dataclass(frozen=True, slots=True)
class SegmentStats:
    name: str
    created_ms: int
    entries: int
    payload_size: int


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """Payloads of at least `least` bytes and fewer than `below`."""

    least: int
    below: int
    entries: int


@dataclass(frozen=True, slots=True)
class StatsReport:
    path: str
    format: str
    first_index: int
    last_index: int
    entries: int
    payload_size: int
    smallest: int  # 0 in an empty log
    largest: int
    segments: tuple[SegmentStats, ...]  # oldest first
    sizes: tuple[SizeBucket, ...]  # no gaps between the first and the last
    damage: tuple[Damage, ...]  # what was lost, and so is not counted


@dataclass(frozen=True, slots=True)
class _Counted:
    entries: int
    payload_size: int
    smallest: int
    largest: int
    powers: tuple[int, ...]  # how many payloads take 0, 1, 2, ... bits to write their length
    damage: tuple[Damage, ...]


def stats(spark: SparkSession, path: str) -> StatsReport:
    """Count the entries of a log.  Damaged ones are reported and not counted."""
    path = OsDisk(path).path
    format = format_of(OsDisk(path)).name
    with closing(read_log(path)) as guest:
        plan = plan_scan(guest)
        first, last = guest.first_index, guest.last_index
    work = [step for step in plan if isinstance(step, ScanTask)]
    counted = run_tasks(spark, work, lambda task: _count(path, format, task))
    lost = [step for step in plan if isinstance(step, Damage)]
    segments = tuple(
        SegmentStats(w.segment.name, w.segment.created_ms, c.entries, c.payload_size)
        for w, c in zip(work, counted, strict=True)
    )
    full = [c for c in counted if c.entries]
    return StatsReport(
        path=path,
        format=format,
        first_index=first,
        last_index=last,
        entries=sum(c.entries for c in counted),
        payload_size=sum(c.payload_size for c in counted),
        smallest=min((c.smallest for c in full), default=0),
        largest=max((c.largest for c in full), default=0),
        segments=segments,
        sizes=_buckets([c.powers for c in counted]),
        damage=(*lost, *(damage for c in counted for damage in c.damage)),
    )


def _count(path: str, format: str, task: ScanTask) -> _Counted:
    """Count in a worker.  Lengths come from the views, so no payload is read."""
    damage: list[Damage] = []
    lengths: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
    for batch in FORMATS[format].scan_segment(
        OsDisk(path),
        task.segment,
        task.start,
        task.stop,
        on_damage=damage.append,
        verify=False,
    ):
        lengths.append(_lengths(batch.column("payload")))
    every = np.concatenate(lengths)
    if not len(every):
        return _Counted(0, 0, 0, 0, (), tuple(damage))
    powers = np.bincount(np.frexp(every)[1])  # the exponent is the number of bits
    total = int(every.sum(dtype=np.int64))
    return _Counted(
        len(every), total, int(every.min()), int(every.max()), tuple(powers.tolist()), tuple(damage)
    )


def _lengths(views: pa.Array) -> npt.NDArray[np.int32]:
    buffer: Any = views.buffers()[1]
    found: npt.NDArray[np.int32] = np.frombuffer(buffer, np.int32)[::4]
    return found[views.offset : views.offset + len(views)]


def _buckets(powers: list[tuple[int, ...]]) -> tuple[SizeBucket, ...]:
    total = np.zeros(max(map(len, powers), default=0), np.int64)
    for counts in powers:
        total[: len(counts)] += counts
    used = np.flatnonzero(total)
    if not len(used):
        return ()
    return tuple(
        SizeBucket(2 ** (power - 1) if power else 0, 2**power, int(total[power]))
        for power in range(int(used[0]), int(used[-1]) + 1)
    )
