"""Choose the segments that may be removed.  `Log.trim` removes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.logs.log import SegmentInfo
from holdfast.logs.replicas import Replica


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of a log.  A segment is removed if one of them names it and no replica needs it."""

    before: int | None = None  # segments that hold only entries below this index
    age_max_ms: int | None = None  # segments whose newest entry is older than this
    size_max: int | None = None  # the oldest, until all segments together take at most this
    acknowledged: bool = False  # segments that every registered replica has acknowledged

    def __post_init__(self) -> None:
        wants = [self.before, self.age_max_ms, self.size_max]
        if not self.acknowledged and all(want is None for want in wants):
            raise ValueError(
                "pass at least one limit: before, age_max_ms, size_max or acknowledged"
            )
        if any(want is not None and want < 0 for want in wants):
            raise ValueError("before, age_max_ms and size_max must not be negative")


@dataclass(frozen=True, slots=True)
class Trim:
    """What `trim` removed, or `plan_trim` would remove, and why it stopped there."""

    removed: tuple[SegmentInfo, ...]
    freed: int
    first_index: int  # of the log afterwards
    stopped_by: str


def choose(
    segments: Sequence[SegmentInfo], limits: Retention, replicas: Sequence[Replica], now_ms: int
) -> Trim:
    """Return the longest run of oldest segments that may be removed; never the active one."""
    if limits.acknowledged and not replicas:
        raise ValueError("no replica is registered, so nothing is acknowledged")
    total, removed = sum(segment.size for segment in segments), []
    slowest = min(replicas, key=lambda replica: replica.acknowledged, default=None)
    stopped_by = "the active segment stays"
    for segment, after in pairwise(segments):
        if slowest and slowest.acknowledged < segment.last_index:
            stopped_by = f"replica {slowest.name} has acknowledged only {slowest.acknowledged}"
            break
        # Its newest entry is at most as old as its successor.
        age_ms = now_ms - after.created_ms
        if not (
            limits.acknowledged
            or (limits.before is not None and segment.last_index < limits.before)
            or (limits.age_max_ms is not None and age_ms > limits.age_max_ms)
            or (limits.size_max is not None and total > limits.size_max)
        ):
            stopped_by = f"{segment.name} is within the limits"
            break
        removed.append(segment)
        total -= segment.size
    first = segments[len(removed)].first_index if segments else 1
    return Trim(tuple(removed), sum(s.size for s in removed), first, stopped_by)
