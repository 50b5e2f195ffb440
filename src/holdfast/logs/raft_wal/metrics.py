"""What a raft-wal log counts, under the names that the original gives it.

Counted since the log was opened.  Plain additions, without a lock: what many reading threads count
at the same instant may be a few too low.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from holdfast import runtime
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.logs.log import Metric

_HELP = {
    "log_entry_bytes_written": "bytes of entries appended, as encoded, without headers",
    "log_entries_written": "entries appended",
    "log_appends": "batches appended, each by one call",
    "log_entry_bytes_read": "bytes of entries read one by one, as encoded",
    "log_entries_read": "reads of single entries, failed ones included; scans are not counted",
    "segment_rotations": "segments sealed because they were full, or by hand",
    "head_truncations": "entries removed from the head",
    "tail_truncations": "entries removed from the tail",
    "stable_gets": "reads of stable keys",
    "stable_sets": "writes of stable keys",
}


@dataclass(slots=True)
class Counters:
    log_entry_bytes_written: int = 0
    log_entries_written: int = 0
    log_appends: int = 0
    log_entry_bytes_read: int = 0
    log_entries_read: int = 0
    segment_rotations: int = 0
    head_truncations: int = 0
    tail_truncations: int = 0
    stable_gets: int = 0
    stable_sets: int = 0

    def metrics(self) -> list[Metric]:
        names = [field.name for field in fields(self)]
        return [Metric(name, "counter", getattr(self, name), _HELP[name]) for name in names]


def last_segment_age(segments: Sequence[SegmentMeta]) -> list[Metric]:
    """How long the last segment that was sealed took to fill; nothing if none was."""
    sealed = [segment for segment in segments if segment.sealed]
    if not sealed:
        return []
    last = max(sealed, key=lambda segment: segment.id)
    age_ms = runtime.from_rfc3339(last.seal_time) - runtime.from_rfc3339(last.create_time)
    about = "seconds from the creation to the sealing of the last segment that was sealed"
    return [Metric("last_segment_age_seconds", "gauge", age_ms / 1000, about)]
