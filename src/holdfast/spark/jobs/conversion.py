"""`convert`: a log into a log of other segments, into Parquet or JSON lines, and back.

    log → log              segments of another size: the workers copy the bytes
    log → parquet          a file for each segment: `index` BIGINT, `payload` BINARY
    log → jsonl            {"index": 7, "payload": "aGVsbG8="}: base64, or text if asked for
    parquet, jsonl → log   in the order of `index`, which the entries keep

The target appears under its name when it is complete, or not at all (`making`).  Indexes do not
change.  CorruptError at the first damage: a conversion must not lose entries silently.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pyspark.sql import SparkSession

from holdfast import runtime
from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.errors import UnsupportedError
from holdfast.logs.format import CopiesSegments
from holdfast.logs.log import SegmentInfo
from holdfast.logs.mark import MARK
from holdfast.logs.opening import FORMATS, format_of
from holdfast.logs.scan_plan import ScanTask
from holdfast.logs.shanghai.rewrite import Copied
from holdfast.spark.jobs.exports import drop_others, export
from holdfast.spark.jobs.imports import import_rows
from holdfast.spark.jobs.making import made_whole
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import corrupt, plan_partitions
from holdfast.spark.workers import grouped

Kind = Literal["log", "parquet", "jsonl"]
_SIDE_FILES = MARK, "metadata.json"


@dataclass(frozen=True, slots=True)
class ConvertReport:
    source: str
    target: str
    source_kind: Kind
    target_kind: Kind
    first_index: int
    last_index: int  # first_index - 1 when there is nothing
    entries: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class _Sound:
    """A log without damage in its headers, at one point in time."""

    path: str
    format: str
    first_index: int
    last_index: int
    segments: tuple[SegmentInfo, ...]


def convert(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    source_kind: Kind = "log",
    target_kind: Kind = "log",
    text: bool = False,
    segment_size_max: int = 64 * 2**20,
) -> ConvertReport:
    """Convert `source` to `target`, which must not exist.

    text              JSON lines hold payloads as text, which must be UTF-8, instead of base64
    segment_size_max  of a log that is created
    """
    _refuse(source_kind, target_kind)
    source, target = OsDisk(source).path, OsDisk(target).path
    with made_whole(target, "convert") as making:
        if source_kind == "log":
            sound = _look(source)
            first, last = sound.first_index, sound.last_index
            if target_kind == "log":
                _copy(spark, sound, making, segment_size_max)
            else:
                export(spark, source, sound.format, sound.segments, making, target_kind, text=text)
        else:
            first, last = import_rows(
                spark, source, source_kind, making, segment_size_max, text=text
            )
        files = [file for file in Path(making).iterdir() if file.name not in _SIDE_FILES]
        made = [file.stat().st_size for file in files if file.suffix]
    return ConvertReport(
        source,
        target,
        source_kind,
        target_kind,
        first,
        last,
        last + 1 - first,
        len(made),
        sum(made),
    )


def _refuse(source_kind: Kind, target_kind: Kind) -> None:
    for kind in (source_kind, target_kind):
        if kind not in get_args(Kind):
            raise ValueError(f"a kind must be one of {', '.join(get_args(Kind))}, not {kind!r}")
    if "log" not in (source_kind, target_kind):
        raise ValueError("source or target must be a log; use Spark itself for other files")


def _look(path: str) -> _Sound:
    options = LogOptions(path=path)
    with closing(read_log(path)) as guest:
        if guest.damage:  # also where no entry is left to plan for
            raise corrupt(path, guest.damage[0])
        steps = [
            part.step for part in plan_partitions(path, guest, options, 1, guest.last_index + 1)
        ]
        segments = tuple(step.segment for step in steps if isinstance(step, ScanTask))
        return _Sound(
            path, format_of(OsDisk(path)).name, guest.first_index, guest.last_index, segments
        )


def _copy(spark: SparkSession, source: _Sound, making: str, segment_size_max: int) -> None:
    format = FORMATS[source.format]
    if not isinstance(format, CopiesSegments):
        raise UnsupportedError(
            f"cannot copy segments of a {source.format} log; holdfast.logs.conversion copies "
            "entry by entry"
        )

    copy = format.copy_segments

    def copy_group(segments: list[SegmentInfo]) -> list[Copied]:
        stem = f"{segments[0].name}.{runtime.new_id().hex}"  # no other attempt's name
        disks = OsDisk(source.path), OsDisk(making)
        return copy(disks[0], segments, disks[1], stem, segment_size_max=segment_size_max)

    groups = grouped(source.segments, lambda segment: segment.size, segment_size_max)
    copied = [one for part in run_tasks(spark, groups, copy_group) for one in part]
    if copied:
        drop_others(making, {segment.name for segment in copied})
    format.adopt_segments(OsDisk(making), copied, first_index=source.first_index)
