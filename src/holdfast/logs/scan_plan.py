"""Plan a scan of a range of indexes as independent tasks, from headers alone.

To read a log in many processes, open a reader in one of them and plan.  Each task is one segment,
scanned elsewhere with the format's `scan_segment`.  The plan accounts for every index of the range:
it is in a task, or in damage that opening found, or outside of the log.  Damage inside a segment
that can be scanned is left to its scan, which finds it more exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from holdfast.logs.log import INDEX_MAX, Damage, LogReader, SegmentInfo

FOREVER = INDEX_MAX + 1  # the stop of a range without an end


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Entries start..stop-1 of one segment."""

    segment: SegmentInfo
    start: int
    stop: int


def plan_scan(reader: LogReader, start: int = 1, stop: int = FOREVER) -> list[ScanTask | Damage]:
    """Return the tasks that scan start..stop-1, and the damage that is known in it, in order."""
    segments, damage = reader.segments(), reader.damage
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
    """Return the segments whose indexes are not reliable, and why.

    Damage without indexes is a header that contradicts its neighbour's; which of the two is wrong
    is unknown.
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
    """Yield the gap that a missing or unreadable segment leaves between two others."""
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
    """Yield the damage of files before the first readable segment; their indexes are unknown."""
    if segments and start < segments[0].first_index:
        first = _order(segments[0].name)
        yield from (d for d in damage if _order(d.file) < first)


def _behind(
    segments: Sequence[SegmentInfo], damage: Sequence[Damage], stop: int
) -> Iterator[Damage]:
    """Yield the damage after the last readable segment."""
    last = segments[-1].last_index if segments else 0
    for one in damage:
        unread = not segments or _order(one.file) > _order(segments[-1].name)
        if stop > last + 1 and (one.first_index > last or (unread and not one.first_index)):
            end = min(one.last_index, stop - 1)
            if not one.first_index or one.first_index <= end:
                yield replace(one, last_index=end if one.first_index else 0)


def _order(name: str) -> tuple[int, str]:
    """Return the order of a segment's name; numbers may outgrow their width."""
    return len(name), name
