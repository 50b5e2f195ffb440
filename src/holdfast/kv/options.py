"""How a writer behaves: when it flushes, what it keeps in memory, how often it looks around."""

from dataclasses import dataclass

from holdfast.formats.manifest.checks import PARALLEL_WRITES_MAX
from holdfast.kv.tables import CACHE_SIZE


@dataclass(frozen=True, slots=True)
class Limits:
    """When to flush by itself, and how much may wait in memory."""

    flush_bytes: int = 4 * 2**20
    skip_memtable_bytes: int = 2 * 2**20
    max_unflushed_bytes: int = 64 * 2**20
    max_parallel_writes: int = 1
    ordered_acks: bool = True

    def __post_init__(self) -> None:
        if min(self.flush_bytes, self.skip_memtable_bytes, self.max_unflushed_bytes) < 1:
            raise ValueError("limits are at least one byte")
        if not 1 <= self.max_parallel_writes <= PARALLEL_WRITES_MAX:
            raise ValueError(f"{self.max_parallel_writes} parallel writes; 1 to 65536 are possible")


@dataclass(frozen=True, slots=True)
class Options(Limits):
    """How a writer behaves.  Only `gc_min_age_ms` is the store's own, fixed when it is created."""

    flush_ms: float | None = 100.0  # None: only when waited for, or full
    memory_bytes: int = 64 * 2**20  # for what is flushed and not compacted
    cache_bytes: int = CACHE_SIZE
    gc_min_age_ms: int = 300_000
    snapshot_ttl_ms: int = 600_000
    watch_ms: float | None = 10_000.0  # how often to look at the manifest, and to maintain
