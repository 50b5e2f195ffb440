"""Decide what to compact next, from a manifest and the names in the WAL.

The SSTs of L0 and the sorted runs below them are one list of units, from the newest to the oldest.
A compaction merges neighbours in that list into one run in their place, so every state between two
compactions shows the same rows.  Tombstones are dropped when the oldest unit is among the merged
ones.

1. The WAL comes first: its contiguous SSTs become one SST of L0, when they are many or large.
2. Then units: from the newest on, those of which each is at most `size_ratio` times as large as
   all before it together, if there are `unit_count` of them.  Units grow by doubling, so there
   are few, and a row is written again about once for each doubling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.formats.manifest import Manifest, SstInfo
from holdfast.formats.sst import Info
from holdfast.formats.sst.block import Compression
from holdfast.kv.names import contiguous, level_name, wal_name

WalSst = tuple[int, int]  # id and size


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """When to compact, and into what."""

    wal_count: int = 64  # SSTs of the WAL that are worth a compaction
    wal_size: int = 16 << 20  # or bytes of them
    wal_size_max: int = 256 << 20  # what one SST of L0 takes at most, but always one of the WAL
    wal_count_max: int = 1024  # and so many SSTs of the WAL
    unit_count: int = 8
    size_ratio: float = 1.0
    sst_size: int = 64 << 20
    task_size: int = 256 << 20
    compression: Compression = None
    block_size: int = 1 << 16


@dataclass(frozen=True, slots=True)
class SourceSst:
    """An SST to read; of the WAL's, only the name and the size are known beforehand."""

    name: str
    size: int
    blocks_stop: int | None = None
    row_count: int | None = None
    first_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """One compaction.  `sources` are sorted streams, the newest first."""

    sources: tuple[tuple[SourceSst, ...], ...]
    drop_tombstones: bool
    wal_first: int = 0  # ids of the WAL, or none
    wal_last: int = -1
    sst_ids: tuple[int, ...] = ()  # of the levels, as they lie in the manifest
    row_count: int | None = None

    @property
    def is_wal(self) -> bool:
        """Return whether it creates an SST of L0; else it creates a run."""
        return self.wal_last >= self.wal_first

    @property
    def size(self) -> int:
        """Return the bytes to read."""
        return sum(sst.size for run in self.sources for sst in run)


def plan(manifest: Manifest, wal: Sequence[WalSst], options: CompactionOptions) -> Plan | None:
    """Return the next compaction, or None; `wal` lists what follows the last compacted SST."""
    first = manifest.wal_id_last_compacted + 1
    return plan_wal(first, wal, options) or plan_units(manifest, options)


def plan_wal(first: int, wal: Sequence[WalSst], options: CompactionOptions) -> Plan | None:
    """Plan to compact contiguous SSTs of the WAL from `first`, as many as one SST should hold."""
    ready = wal[: contiguous(first, (wal_id for wal_id, _ in wal)) - first + 1]
    if len(ready) < options.wal_count and sum(size for _, size in ready) < options.wal_size:
        return None
    ready = ready[: options.wal_count_max]
    taken, size = 0, 0
    while taken < len(ready) and (not taken or size + ready[taken][1] <= options.wal_size_max):
        size += ready[taken][1]
        taken += 1
    if not taken:
        return None
    sources = tuple((SourceSst(wal_name(wal_id), size),) for wal_id, size in ready[:taken][::-1])
    return Plan(sources, drop_tombstones=False, wal_first=first, wal_last=ready[taken - 1][0])


def plan_units(manifest: Manifest, options: CompactionOptions) -> Plan | None:
    """Return neighbours to merge into one run."""
    sizes = [sum(sst.size for sst in unit) for unit in _units(manifest)]
    for start in range(len(sizes)):
        stop = _extent(sizes, start, manifest.l0_count, options.size_ratio)
        if stop - start >= options.unit_count:
            return _plan_of(manifest, start, stop)
    return None


def plan_everything(manifest: Manifest) -> Plan | None:
    """Plan to merge all levels into one run; None if they are one."""
    count = manifest.l0_count + len(manifest.runs)
    if count < 2 and not manifest.l0_count:
        return None
    return _plan_of(manifest, 0, count)


def _extent(sizes: Sequence[int], start: int, l0_count: int, ratio: float) -> int:
    """Return where the units end that belong to the one at `start`.  L0 is not split."""
    stop, held = start, 0.0
    while stop < len(sizes) and (stop == start or stop < l0_count or sizes[stop] <= ratio * held):
        held += sizes[stop]
        stop += 1
    return stop


def _plan_of(manifest: Manifest, start: int, stop: int) -> Plan:
    units = [list(unit) for unit in _units(manifest)]
    taken = [sst for unit in units[start:stop] for sst in unit]
    return Plan(
        tuple(tuple(source_of(sst.id, sst) for sst in unit) for unit in units[start:stop]),
        drop_tombstones=stop == len(units),
        sst_ids=tuple(sst.id for sst in taken),
        row_count=sum(sst.row_count for sst in taken),
    )


def _units(manifest: Manifest) -> Iterator[Sequence[SstInfo]]:
    for sst in manifest.l0:
        yield (sst,)
    for run in manifest.runs:
        yield tuple(run)


def source_of(sst_id: int, info: SstInfo | Info) -> SourceSst:
    """Return an SST of the levels as a source."""
    return SourceSst(
        level_name(sst_id), info.size, info.filter_offset, info.row_count, info.first_key
    )
