"""What an open writer has done and holds, in numbers; holdfast.reports prints them.

Totals count from the moment it opened.  Those of reads are counted without a lock: with many
threads a few may be missed.
"""

from dataclasses import dataclass

from holdfast.errors import FencedError
from holdfast.kv.tables import Cache
from holdfast.kv.tail import Tail
from holdfast.kv.write_queue import WriteQueue


class Counts:
    """What a writer counts itself."""

    __slots__ = ("first_seq", "flushed_bytes", "flushes", "gets")

    def __init__(self, first_seq: int) -> None:
        self.first_seq, self.gets, self.flushes, self.flushed_bytes = first_seq, 0, 0, 0

    def add_flush(self, size: int) -> None:
        self.flushes += 1
        self.flushed_bytes += size


@dataclass(frozen=True, slots=True)
class Metrics:
    """One look at a writer."""

    writer_epoch: int
    rows_written_total: int  # puts and deletes that were taken, durable or not
    gets_total: int
    flushes_total: int  # SSTs of the WAL
    flushed_bytes_total: int
    cache_hits_total: int
    cache_misses_total: int
    cache_bytes: int
    memory_bytes: int  # of rows, flushed or not
    wal_ssts: int  # not compacted, as far as this writer knows
    wal_bytes: int
    fenced: bool
    poisoned: bool  # it takes no more, being fenced, closed, or after a failed write


def measure(epoch: int, counts: Counts, queue: WriteQueue, tail: Tail, cache: Cache) -> Metrics:
    """With the queue's lock held."""
    return Metrics(
        writer_epoch=epoch,
        rows_written_total=queue.seq - counts.first_seq,
        gets_total=counts.gets,
        flushes_total=counts.flushes,
        flushed_bytes_total=counts.flushed_bytes,
        cache_hits_total=cache.hits,
        cache_misses_total=cache.misses,
        cache_bytes=cache.size,
        memory_bytes=tail.size + sum(layer.size for layer in queue.unwritten()),
        wal_ssts=tail.wal_count,
        wal_bytes=tail.wal_bytes,
        fenced=isinstance(queue.refusal, FencedError),
        poisoned=queue.refusal is not None,
    )
