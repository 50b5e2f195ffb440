"""The options of a writer: flushes, memory, intervals."""

from dataclasses import dataclass
from typing import TypedDict

from holdfast.formats.manifest.checks import PARALLEL_WRITES_MAX
from holdfast.kv.manifests import GC_MIN_AGE_MS
from holdfast.kv.tables import CACHE_SIZE


class KvOptions(TypedDict, total=False):
    """Options of `open_kv` and `create_kv`.

    flush_ms             milliseconds between flushes; None: only when waited for, or full
    flush_bytes          bytes in memory that start a flush
    skip_memtable_bytes  bytes of a batch that is written as an SST of its own
    unflushed_bytes_max  bytes in memory at which `put` waits
    parallel_writes_max  SSTs of the WAL that are written at once
    ordered_acks         acknowledge writes in order
    memory_bytes_max     bytes of flushed rows that are kept in memory
    cache_bytes_max      bytes of cached filters, indexes and blocks
    gc_min_age_ms        age of objects that may be deleted; fixed when the store is created
    snapshot_ttl_ms      how long the writer's own snapshot lasts unless it is renewed
    watch_ms             milliseconds between reads of the manifest, and maintenance; None: never
    """

    flush_ms: float | None
    flush_bytes: int
    skip_memtable_bytes: int
    unflushed_bytes_max: int
    parallel_writes_max: int
    ordered_acks: bool
    memory_bytes_max: int
    cache_bytes_max: int
    gc_min_age_ms: int
    snapshot_ttl_ms: int
    watch_ms: float | None


@dataclass(frozen=True, slots=True)
class Options:
    """The values of KvOptions, with their defaults."""

    flush_ms: float | None = 100.0
    flush_bytes: int = 4 * 2**20
    skip_memtable_bytes: int = 2 * 2**20
    unflushed_bytes_max: int = 64 * 2**20
    parallel_writes_max: int = 1
    ordered_acks: bool = True
    memory_bytes_max: int = 64 * 2**20
    cache_bytes_max: int = CACHE_SIZE
    gc_min_age_ms: int = GC_MIN_AGE_MS
    snapshot_ttl_ms: int = 600_000
    watch_ms: float | None = 10_000.0

    def __post_init__(self) -> None:
        for name in ("flush_bytes", "skip_memtable_bytes", "unflushed_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 1 <= self.parallel_writes_max <= PARALLEL_WRITES_MAX:
            raise ValueError(
                f"parallel_writes_max is {self.parallel_writes_max}; expected 1 to 65536"
            )
