"""`convert`: a log into a log of other segments, into Parquet or JSON lines, and back.

    log → log              segments of another size: bytes are copied as they are, in the workers
    log → parquet          a file for each segment: `index` BIGINT, `payload` BINARY
    log → jsonl            {"index": 7, "payload": "aGVsbG8="}: base64, or text if asked for
    parquet, jsonl → log   in the order of `index`, which the entries keep

The target appears whole, under its name, when all is done, or not at all (`making`).  Every index
stays what it is.
CorruptError at the first damage: a conversion must not lose entries in silence.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pyspark.sql import SparkSession

from holdfast import runtime
from holdfast.disk import OsDisk
from holdfast.errors import UnsupportedError
from holdfast.logs.log import SegmentInfo
from holdfast.logs.open import FORMATS, format_of
from holdfast.logs.scan_plan import ScanTask
from holdfast.logs.shanghai.rewrite import Copied
from holdfast.reports import open_guest
from holdfast.spark.jobs.exports import drop_others, export
from holdfast.spark.jobs.imports import import_rows
from holdfast.spark.jobs.making import made_whole
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import corrupt, plan_partitions

Kind = Literal["log", "parquet", "jsonl"]


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
    """A log as it was when we looked, without damage as far as headers tell."""

    path: str
    format: str
    first_index: int
    last_index: int
    segments: tuple[SegmentInfo, ...]


@dataclass(frozen=True, slots=True)
class _CopyWork:
    source: _Sound
    segments: tuple[SegmentInfo, ...]
    target: str
    segment_size_max: int


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
    """Make `target`, which must not exist, of `source`.

    text              JSON lines hold payloads as text, which must be UTF-8, instead of base64
    segment_size_max  of a log that is made
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
        made = [file.stat().st_size for file in Path(making).iterdir() if file.suffix]
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
            raise ValueError(f"a kind is one of {', '.join(get_args(Kind))}, not {kind!r}")
    if "log" not in (source_kind, target_kind):
        raise ValueError("convert from a log or into one: Spark itself does the rest")


def _look(path: str) -> _Sound:
    options = LogOptions((), (path,))
    with closing(open_guest(path)) as guest:
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
    adopt = FORMATS[source.format].adopt_segments
    if adopt is None:
        raise UnsupportedError(
            f"segments of a {source.format} log cannot be copied as they are; "
            "holdfast.logs.conversion does it entry by entry"
        )
    groups = _groups(source.segments, segment_size_max)
    work = [_CopyWork(source, group, making, segment_size_max) for group in groups]
    copied = [one for part in run_tasks(spark, work, _copy_in_worker) for one in part]
    if copied:
        drop_others(making, {segment.name for segment in copied})
    adopt(OsDisk(making), copied, first_index=source.first_index)


def _copy_in_worker(work: _CopyWork) -> list[Copied]:
    stem = f"{work.segments[0].name}.{runtime.new_id().hex}"  # no other attempt's name
    source, target = OsDisk(work.source.path), OsDisk(work.target)
    copy = FORMATS[work.source.format].copy_segments
    assert copy is not None, "refused before"
    return copy(source, work.segments, target, stem, segment_size_max=work.segment_size_max)


def _groups(segments: tuple[SegmentInfo, ...], size: int) -> list[tuple[SegmentInfo, ...]]:
    """Neighbours that together make about one new segment; a task has at least one."""
    groups: list[list[SegmentInfo]] = []
    filled = size
    for segment in segments:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(segment)
        filled += segment.size
    return [tuple(group) for group in groups]
