"""Which index files may go: only those that the snapshot covers.  A decision, not a deed.

The original leaves this to the operator.  What is wanted gone is said as for every log; what stays
besides: files with entries behind the snapshot, without which the log could not be opened, and
files with requests that may be asked for again.
"""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.logs.log import SegmentInfo
from holdfast.logs.replicas import Replica
from holdfast.logs.retention import Compaction, Retention, choose


def choose_covered(
    segments: Sequence[SegmentInfo],
    limits: Retention,
    replicas: Sequence[Replica],
    now_ms: int,
    first_index: int,
    oldest_request: int | None,
) -> Compaction:
    """`segments` with all indexes that they hold; `first_index` is that of the log."""
    plan = choose(segments, limits, replicas, now_ms)
    removed: list[SegmentInfo] = []
    stopped_by = plan.stopped_by
    for segment in plan.removed:
        if segment.last_index >= first_index:
            stopped_by = f"the snapshot, of entry {first_index - 1}, does not cover {segment.name}"
            break
        if oldest_request is not None and segment.last_index >= oldest_request:
            stopped_by = f"{segment.name} has requests that are still remembered"
            break
        removed.append(segment)
    freed = sum(segment.size for segment in removed)
    return replace(
        plan, removed=tuple(removed), freed=freed, first_index=first_index, stopped_by=stopped_by
    )
