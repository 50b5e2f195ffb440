"""What an operator asks of a log, as dataclasses: printed by the command line, or sent as JSON.

Everything here is a guest: it takes no lock, changes nothing, and may run beside a live owner.
An append under way looks like a torn tail.  So a tail that looks torn is looked at twice, a moment
apart, and is called torn only if it is the same both times.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from holdfast.disk import OsDisk
from holdfast.errors import ChangedError, CorruptError, OutOfRangeError, UnsupportedError
from holdfast.logs.log import (
    Damage,
    Described,
    Guest,
    Inspectable,
    Measured,
    Metric,
    SegmentInfo,
)
from holdfast.logs.open import FORMATS, format_of
from holdfast.logs.replicas import Replicas

Verdict = Literal["clean", "torn tail", "corrupt"]
EXIT_CODES: dict[Verdict, int] = {"clean": 0, "torn tail": 3, "corrupt": 2}
_GRAVITY: tuple[Verdict, ...] = ("clean", "torn tail", "corrupt")

_SECOND_LOOK_SECONDS = 0.1
_ATTEMPTS_MAX = 100

Pause = Callable[[float], None]


@runtime_checkable
class InspectableGuest(Guest, Inspectable, Protocol):
    """A log open for reading that can also say what it is made of."""


@dataclass(frozen=True, slots=True)
class CutFile:
    """Bytes that recovery or repair took out of the log and kept."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    name: str
    acknowledged: int
    lag: int  # entries not acknowledged; negative if it has what the log has lost
    updated_ms: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who signed the lock last, and whether that process still holds it."""

    pid: int
    alive: bool


@dataclass(frozen=True, slots=True)
class LogReport:
    """One log at a glance, from names, headers and the tail; verify_log reads the rest."""

    path: str
    format: str
    verdict: Verdict
    first_index: int
    last_index: int
    entries: int
    size: int
    states: dict[str, int]  # how many segments are active, sealed, damaged
    segments: tuple[SegmentInfo, ...]
    damage: tuple[Damage, ...]
    torn: Damage | None
    cuts: tuple[CutFile, ...]
    replicas: tuple[ReplicaReport, ...]
    owner: Owner | None
    facts: dict[str, str]  # what only logs of this format have
    gauges: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class SegmentVerdict:
    """What reading one segment from end to end found."""

    name: str
    verdict: Verdict
    first_index: int  # 0 where it cannot be known
    last_index: int
    size: int
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
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


Finding: TypeAlias = Damage | Literal["removed"] | None


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest of them; clean if there are none."""
    return max(verdicts, key=_GRAVITY.index, default="clean")


def open_guest(path: str) -> InspectableGuest:
    """Open a log for reading, whatever its format."""
    disk = OsDisk(path)
    format = format_of(disk)
    guest = format.open_read_only(disk)
    if not isinstance(guest, InspectableGuest):
        raise UnsupportedError(f"a {format.name} log cannot be inspected")
    return guest


def inspect_log(path: str, *, pause: Pause = time.sleep) -> LogReport:
    """Say what a log holds and how it fares, without reading its sealed segments."""
    disk = OsDisk(path)
    format = format_of(disk)
    with closing(open_guest(path)) as guest:
        segments = tuple(guest.segments())
        replicas, unreadable = list_replicas(disk, guest.last_index)
        damage = (*guest.damage, *unreadable)
        torn = _torn_tail(VerifyPlan(path, format.name, segments, damage), pause)
        return LogReport(
            path=path,
            format=format.name,
            verdict=_judge([*damage, *([torn] if torn else [])]),
            first_index=guest.first_index,
            last_index=guest.last_index,
            entries=sum(map(_count, segments)),
            size=sum(segment.size for segment in segments),
            states=dict(Counter(segment.state for segment in segments)),
            segments=segments,
            damage=damage,
            torn=torn,
            cuts=tuple(CutFile(n, size) for n, size in disk.list().items() if n.endswith(".cut")),
            replicas=replicas,
            owner=find_owner(disk, format.locked_file),
            facts=guest.facts() if isinstance(guest, Described) else {},
            gauges=_gauges(guest, damage, torn, replicas),
        )


def verify_log(
    path: str,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    pause: Pause = time.sleep,
) -> VerifyReport:
    """Verify every checksum of every segment; `on_progress` is told bytes done, bytes in all."""
    work = plan_verify(path)
    findings: dict[str, Finding] = {}
    done, total = 0, sum(segment.size for segment in work.segments)
    for segment in work.segments:
        on_progress(done, total)
        findings[segment.name] = verify_segment(work, segment, pause=pause)
        done += segment.size
    on_progress(done, total)
    if not any(findings.values()) and not work.known:
        work = replace(work, known=_check_whole(path))
    return judge_log(work, findings)


def _check_whole(path: str) -> tuple[Damage, ...]:
    """What only all segments together tell; read anew if the owner changes them meanwhile."""
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        with closing(open_guest(path)) as guest:
            try:
                return tuple(guest.check_whole()) if isinstance(guest, Described) else ()
            except (ChangedError, OutOfRangeError):
                if attempt == _ATTEMPTS_MAX:
                    raise
    raise AssertionError("the last attempt raises or returns")


def plan_verify(path: str) -> VerifyPlan:
    """What there is to verify of a log, and what is known of it already."""
    disk = OsDisk(path)
    with closing(open_guest(path)) as guest:
        segments = tuple(guest.segments())
        known = (*guest.damage, *list_replicas(disk, guest.last_index)[1])
    return VerifyPlan(path, format_of(disk).name, segments, known)


def verify_segment(work: VerifyPlan, segment: SegmentInfo, *, pause: Pause = time.sleep) -> Finding:
    """Read one segment from end to end: in this process or in any other, in any order."""
    disk, check = OsDisk(work.path), FORMATS[work.format].check_segment
    try:
        damage: Damage | None = check(disk, segment)
        if damage and segment == work.segments[-1]:
            pause(_SECOND_LOOK_SECONDS)
            damage = damage if check(disk, segment) == damage else None
    except (FileNotFoundError, ChangedError):
        return "removed"  # by compaction or truncation, since it was planned
    return damage


def judge_log(work: VerifyPlan, findings: Mapping[str, Finding]) -> VerifyReport:
    """The verdict on a log whose every segment was read."""
    verdicts: list[SegmentVerdict] = []
    for segment in work.segments:
        found = findings[segment.name]
        if found != "removed":
            about = [damage for damage in work.known if damage.file == segment.name]
            about += [found] if found and found not in about else []
            verdicts.append(_segment_verdict(segment, about))
    names, sizes = {segment.name for segment in work.segments}, OsDisk(work.path).list()
    for stray in (damage for damage in work.known if damage.file not in names):
        first, last, size = stray.first_index, stray.last_index, sizes.get(stray.file, 0)
        verdicts.append(SegmentVerdict(stray.file, "corrupt", first, last, size, (stray,)))
    verdict = worst(segment.verdict for segment in verdicts)
    count, total = sum(map(_count, work.segments)), sum(s.size for s in work.segments)
    return VerifyReport(work.path, work.format, verdict, count, total, tuple(verdicts))


def list_replicas(
    disk: OsDisk, last_index: int
) -> tuple[tuple[ReplicaReport, ...], tuple[Damage, ...]]:
    """Who follows this log and how far behind; or what is wrong with the file that should tell."""
    try:
        found = Replicas(disk).list()
    except CorruptError as error:
        return (), (Damage(error.where, error.offset, 0, 0, error.why),)
    return tuple(
        ReplicaReport(r.name, r.acknowledged, last_index - r.acknowledged, r.updated_ms)
        for r in found
    ), ()


def _gauges(
    guest: InspectableGuest,
    damage: Sequence[Damage],
    torn: Damage | None,
    replicas: Sequence[ReplicaReport],
) -> tuple[Metric, ...]:
    """What can be watched from outside; what an owner counts only it can tell."""
    segments = guest.segments()
    values = {
        "first_index": (guest.first_index, "index of the first entry"),
        "last_index": (guest.last_index, "index of the last entry; one less if there is none"),
        "size_bytes": (sum(s.size for s in segments), "bytes in segments"),
        "segments": (len(segments), "files that hold entries"),
        "damaged": (len(damage), "damage found by opening, the tail's torn end not counted"),
        "torn_tail": (int(torn is not None), "1 if an append was cut short"),
    }
    behind = [
        Metric("replica_lag", "gauge", r.lag, "entries not acknowledged", (("replica", r.name),))
        for r in replicas
    ]
    own = guest.metrics() if isinstance(guest, Measured) else []
    return (
        *(Metric(name, "gauge", value, about) for name, (value, about) in values.items()),
        *behind,
        *(metric for metric in own if metric.kind == "gauge"),
    )


def find_owner(disk: OsDisk, locked_file: str | None = None) -> Owner | None:
    """Who holds the lock, found out without touching it; None if nobody ever has.

    Other programs do not know ours: they hold `locked_file`.
    """
    signed = _find_signature(disk)
    if locked_file is None or (signed is not None and signed.alive):
        return signed
    with suppress(FileNotFoundError):
        if holder := disk.lock_holder(locked_file):
            return Owner(int(holder), alive=True)
    return signed


def _find_signature(disk: OsDisk) -> Owner | None:
    try:
        file = disk.open("LOCK")
    except FileNotFoundError:
        return None
    with closing(file):
        text = file.read_at(0, 20).decode("ascii", "replace").strip()
    if not text.isdecimal():
        return None
    return Owner(int(text), _has_open(int(text), Path(disk.path, "LOCK")))


def _has_open(pid: int, lock: Path) -> bool:
    """The signature outlives its process, and another may get its number: look at its files."""
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except PermissionError:
        return True  # another user's process: that there is one is all we may know
    except (FileNotFoundError, ProcessLookupError):
        return False
    wanted = lock.stat()
    for link in links:
        with suppress(OSError):  # closed since we listed it
            if os.path.samestat(link.stat(), wanted):
                return True
    return False


def _torn_tail(work: VerifyPlan, pause: Pause) -> Damage | None:
    found = verify_segment(work, work.segments[-1], pause=pause) if work.segments else None
    return found if isinstance(found, Damage) and found.torn else None


def _segment_verdict(segment: SegmentInfo, damage: list[Damage]) -> SegmentVerdict:
    first, last = segment.first_index, segment.last_index
    return SegmentVerdict(segment.name, _judge(damage), first, last, segment.size, tuple(damage))


def _judge(damage: Iterable[Damage]) -> Verdict:
    return worst("torn tail" if one.torn else "corrupt" for one in damage)


def _count(segment: SegmentInfo) -> int:
    return segment.last_index + 1 - segment.first_index
