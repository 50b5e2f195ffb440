"""Verify a log: read every byte of it, in this process or as tasks in many.

    work = plan_verify(disk)
    findings = {one.name: verify_segment(work, one) for one in work.segments}    # anywhere
    report = judge_log(work, findings)

Nothing here takes a lock or changes anything, and all of it may run beside a live owner.  An
append that is being written looks like a torn tail.  So a tail that looks torn is read twice, a
moment apart, and is called torn only if it is the same both times.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from holdfast import runtime
from holdfast.disk import Disk, OsDisk
from holdfast.errors import ChangedError, CorruptError, OutOfRangeError
from holdfast.logs.log import Damage, Described, SegmentInfo
from holdfast.logs.opening import FORMATS, format_of
from holdfast.logs.origin import read_origin
from holdfast.logs.replicas import Replicas
from holdfast.logs.staging import area
from holdfast.verdicts import Verdict, worst

_SECOND_LOOK_MS = 100
_ATTEMPTS_MAX = 100

Pause = Callable[[float], None]  # for so many milliseconds
OnProgress = Callable[[int, int], None]
Finding: TypeAlias = Damage | Literal["removed"] | None


@dataclass(frozen=True, slots=True)
class SegmentVerdict:
    """What reading one segment from end to end found."""

    name: str
    verdict: Verdict
    first_index: int  # 0 where it is not known
    last_index: int
    size: int
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The verdict on a log and on each of its segments."""

    path: str
    format: str
    verdict: Verdict
    entries: int
    size: int
    segments: tuple[SegmentVerdict, ...]


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """A log about to be verified: each segment can be read by another process."""

    path: str
    format: str
    segments: tuple[SegmentInfo, ...]
    known: tuple[Damage, ...]  # before any segment is read


def verify_log(
    disk: Disk,
    on_progress: OnProgress = lambda done, total: None,
    *,
    pause: Pause = runtime.sleep_ms,
) -> VerifyReport:
    """Verify every checksum of every segment; `on_progress` gets bytes done and bytes in all."""
    work = plan_verify(disk)
    findings: dict[str, Finding] = {}
    done, total = 0, sum(segment.size for segment in work.segments)
    for segment in work.segments:
        on_progress(done, total)
        findings[segment.name] = verify_segment(work, segment, disk=disk, pause=pause)
        done += segment.size
    on_progress(done, total)
    if not any(findings.values()) and not work.known:
        work = replace(work, known=_check_whole(disk))
    return judge_log(work, findings, disk=disk)


def plan_verify(disk: Disk) -> VerifyPlan:
    """Return what there is to verify of a log, and what is known of it already."""
    format = format_of(disk)
    with closing(format.open_reader(disk)) as reader:
        segments = tuple(reader.segments())
        known = (*reader.damage, *damaged_side_files(disk))
    return VerifyPlan(path_of(disk), format.name, segments, known)


def verify_segment(
    work: VerifyPlan,
    segment: SegmentInfo,
    *,
    disk: Disk | None = None,
    pause: Pause = runtime.sleep_ms,
) -> Finding:
    """Read one segment from end to end: in this process or in any other, in any order."""
    disk, check = disk or OsDisk(work.path), FORMATS[work.format].check_segment
    try:
        damage = check(disk, segment)
        if damage and segment == work.segments[-1]:
            pause(_SECOND_LOOK_MS)
            damage = damage if check(disk, segment) == damage else None
    except (FileNotFoundError, ChangedError):
        return "removed"  # by trim or truncation, since it was planned
    return damage


def judge_log(
    work: VerifyPlan, findings: Mapping[str, Finding], *, disk: Disk | None = None
) -> VerifyReport:
    """Return the verdict on a log whose every segment was read."""
    verdicts: list[SegmentVerdict] = []
    for segment in work.segments:
        found = findings[segment.name]
        if found != "removed":
            about = [damage for damage in work.known if damage.file == segment.name]
            about += [found] if found and found not in about else []
            first, last, size = segment.first_index, segment.last_index, segment.size
            verdict = judge(about)
            verdicts.append(SegmentVerdict(segment.name, verdict, first, last, size, tuple(about)))
    names, sizes = {segment.name for segment in work.segments}, (disk or OsDisk(work.path)).list()
    for stray in (damage for damage in work.known if damage.file not in names):
        first, last, size = stray.first_index, stray.last_index, sizes.get(stray.file, 0)
        verdicts.append(SegmentVerdict(stray.file, judge((stray,)), first, last, size, (stray,)))
    verdict = worst(segment.verdict for segment in verdicts)
    count, total = sum(map(count_of, work.segments)), sum(s.size for s in work.segments)
    return VerifyReport(work.path, work.format, verdict, count, total, tuple(verdicts))


def judge(damage: Iterable[Damage]) -> Verdict:
    """Return the verdict on something with this damage."""
    return worst("torn tail" if one.torn else "corrupt" for one in damage)


def damaged_side_files(disk: Disk, *, last_index: int | None = None) -> tuple[Damage, ...]:
    """Return the damage of positions of replicas, transaction records and the origin file.

    No entry depends on them, so that a log with such damage can be read and appended to.  A
    position beyond the log is damage; `last_index` is its end if a repair will change it.
    """
    replicas = Replicas(disk, last_index=None if last_index is None else lambda: last_index)
    found = [*replicas.survey()[1], *area(disk).damaged_records()]
    try:
        read_origin(disk)
    except CorruptError as error:
        found.append(error)
    return tuple(Damage(one.where, one.offset, 0, 0, one.why) for one in found)


def path_of(disk: Disk) -> str:
    """Return the path of a directory; what names it, if it is simulated."""
    return disk.path if isinstance(disk, OsDisk) else str(disk)


def count_of(segment: SegmentInfo) -> int:
    """Return the number of entries in a segment."""
    return segment.last_index + 1 - segment.first_index


def _check_whole(disk: Disk) -> tuple[Damage, ...]:
    """Check what only all segments together say; again if the owner changes them meanwhile."""
    format = format_of(disk)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        with closing(format.open_reader(disk)) as reader:
            try:
                return tuple(reader.check_whole()) if isinstance(reader, Described) else ()
            except (ChangedError, FileNotFoundError, OutOfRangeError):
                if attempt == _ATTEMPTS_MAX:
                    raise
    raise AssertionError("the last attempt raises or returns")
