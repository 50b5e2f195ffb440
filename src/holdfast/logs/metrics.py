"""What every log counts since it was opened, under the names that raft-wal gives it.

Plain additions without a lock: a few may be missed if many threads read at once.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.metrics import Metric


def counter(about: str) -> Any:
    """Return a field of Counters that starts at 0."""
    return field(default=0, metadata={"about": about})


@dataclass(slots=True)
class Counters:
    """A format that counts more adds fields."""

    log_entry_bytes_written: int = counter("bytes of entries appended, without headers")
    log_entries_written: int = counter("entries appended")
    log_appends: int = counter("batches appended, each by one call")
    log_entry_bytes_read: int = counter("bytes of entries read one by one")
    log_entries_read: int = counter("single reads, failed ones included; scans are not counted")
    segment_rotations: int = counter("segments sealed because they were full, old, or by request")

    def metrics(self) -> list[Metric]:
        """Return all counters."""
        return [
            Metric(one.name, "counter", getattr(self, one.name), one.metadata["about"])
            for one in fields(self)
        ]
