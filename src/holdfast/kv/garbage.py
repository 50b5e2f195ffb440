"""What is garbage: a pure judgement on the active manifests and a listing of the bucket.

Active are the current manifest and those that its snapshots name.  With them known:

    manifest         a manifest before the current one that is not active
    wal              an SST of the WAL before the last compacted one of every active manifest
    level            an SST of the levels that no active manifest names, and no live job may yet
    manifest_other   a file among the manifests or the WAL that has no id: somebody's temporary,
    wal_other        which only its age condemns

Nothing younger than the store's `gc_min_age_ms` is condemned, by the store's clock: writers count
on it that a name they lost sight of for half that time has not been taken and emptied again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.bucket.bucket import ObjectInfo
from holdfast.formats.manifest import Manifest
from holdfast.kv.jobs import first_live_id
from holdfast.kv.names import LEVELS, MANIFESTS, WAL, id_of

RULES = ("manifest", "manifest_other", "wal", "wal_other", "level")


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object to delete, and by which rule."""

    name: str
    size: int
    rule: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What must stay, as the current manifest and all active ones say."""

    manifest_id: int
    active: frozenset[int]
    sst_ids: frozenset[int]
    wal_first: int  # the first SST of the WAL that is needed
    level_stop: int  # ids from here on may belong to live jobs
    min_age_ms: int

    @classmethod
    def of(cls, manifest_id: int, active: Mapping[int, Manifest]) -> "Reach":
        """Of all active manifests by their ids; `manifest_id` is the current one."""
        current = active[manifest_id]
        ids = np.unique(np.concatenate([manifest.sst_ids for manifest in active.values()]))
        return cls(
            manifest_id,
            frozenset(active),
            frozenset(ids.tolist()),
            wal_first(active),
            first_live_id(current),
            current.gc_min_age_ms,
        )

    def rule(self, name: str) -> str | None:
        """By which rule an object is garbage, if it is old enough; None if it is needed."""
        directory = name.partition("/")[0]
        number = id_of(name)
        if number is None:
            return f"{directory}_other" if directory in (MANIFESTS, WAL) else None
        if directory == MANIFESTS:
            return "manifest" if number < self.manifest_id and number not in self.active else None
        if directory == WAL:
            return "wal" if number < self.wal_first else None
        needed = number in self.sst_ids or number >= self.level_stop
        return None if needed or directory != LEVELS else "level"


def wal_first(active: Mapping[int, Manifest]) -> int:
    """The last compacted SST of the manifest that is furthest behind.

    The SST itself is kept, as the design's text asks.  The text looks at the current manifest
    only, which takes the WAL away from older snapshots.
    """
    return min(manifest.wal_id_last_compacted for manifest in active.values())


def judge(
    listing: Iterable[ObjectInfo], reach: Reach, *, now_ms: int, other_age_ms: int
) -> tuple[list[Garbage], list[ObjectInfo]]:
    """What to delete, and what will be garbage when it is older.  `now_ms` is the store's."""
    doomed, young = [], []
    for info in listing:
        rule = reach.rule(info.name)
        if rule is None:
            continue
        least = other_age_ms if rule.endswith("_other") else reach.min_age_ms
        if now_ms - info.modified_ms >= max(least, reach.min_age_ms):
            doomed.append(Garbage(info.name, info.size, rule))
        else:
            young.append(info)
    return doomed, young
