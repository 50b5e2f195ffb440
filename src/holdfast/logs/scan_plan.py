"""A scan of a range of indexes as tasks that know nothing of each other, planned from headers.

For whoever reads a log in many processes at once: the guest is opened in one of them, and each
task is one segment, scanned elsewhere with the format's `scan_segment`.  The plan accounts for
every index of the range: it lies in a task, or in a damage that opening found, or outside of the
log.  Damage inside a segment that can be scanned is left to its scan, which sees it more exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from holdfast.logs.log import Damage, Inspectable, SegmentInfo

FOREVER = 2**63 - 1  # the stop of a range that is open


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Entries start..stop-1 of one segment."""

    segment: SegmentInfo
    start: int
    stop: int


def plan_scan(guest: Inspectable, start: int = 1, stop: int = FOREVER) -> list[ScanTask | Damage]:
    """What there is to scan of start..stop-1, and what is known to be lost of it; in order."""
    segments, damage = guest.segments(), guest.damage
    plan: list[ScanTask | Damage] = [*_before(segments, damage, start)]
    doubts = _doubts(segments, damage)
    for segment, after in zip_longest(segments, segments[1:]):
        first, end = max(start, segment.first_index), min(stop, segment.last_index + 1)
        if first < end:
            doubt = doubts.get(segment.name)
            lost = doubt and replace(doubt, first_index=first, last_index=end - 1)
            plan.append(lost or ScanTask(segment, first, end))
        if after is not None:
            plan += _between(segment, after, damage, start, stop)
    return [*plan, *_behind(segments, damage, stop)]


def _doubts(segments: Sequence[SegmentInfo], damage: Sequence[Damage]) -> dict[str, Damage]:
    """Segments whose indexes cannot be relied on, and why.

    Damage that does not know what it affects is a header that contradicts its neighbour's, and
    which of the two is wrong is open.
    """
    vague = {one.file: one for one in damage if not one.first_index}
    doubts = {s.name: vague[s.name] for s in segments if s.name in vague}
    for one, two in pairwise(segments):
        if one.name in vague and two.state == "damaged":
            doubts.setdefault(two.name, vague[one.name])
    return doubts


def _between(
    one: SegmentInfo, two: SegmentInfo, damage: Sequence[Damage], start: int, stop: int
) -> Iterator[Damage]:
    """The gap that a missing or unreadable segment has left between two others."""
    first, last = max(start, one.last_index + 1), min(stop, two.first_index) - 1
    if first <= last:
        about = [d for d in damage if _order(one.name) < _order(d.file) < _order(two.name)] or [
            Damage(two.name, 0, 0, 0, f"missing: {one.name} ends at {one.last_index}")
        ]
        why = "; ".join(dict.fromkeys(d.why for d in about))
        yield Damage(about[0].file, about[0].offset, first, last, why)


def _before(
    segments: Sequence[SegmentInfo], damage: Sequence[Damage], start: int
) -> Iterator[Damage]:
    """Files in front of all that can be read.  What they held is known only to end there."""
    if segments and start < segments[0].first_index:
        first = _order(segments[0].name)
        yield from (d for d in damage if _order(d.file) < first)


def _behind(
    segments: Sequence[SegmentInfo], damage: Sequence[Damage], stop: int
) -> Iterator[Damage]:
    """What was lost after all that can be read."""
    last = segments[-1].last_index if segments else 0
    for one in damage:
        unread = not segments or _order(one.file) > _order(segments[-1].name)
        if stop > last + 1 and (one.first_index > last or (unread and not one.first_index)):
            end = min(one.last_index, stop - 1)
            if not one.first_index or one.first_index <= end:
                yield replace(one, last_index=end if one.first_index else 0)


def _order(name: str) -> tuple[int, str]:
    """Names of segments count up, and outgrow their width one day."""
    return len(name), name
