"""Decide what is garbage, from the active manifests and a listing of the bucket.

Active are the current manifest and those that its snapshots name.  With them known:

    manifest         a manifest before the current one that is not active
    wal              an SST of the WAL before the last compacted one of every active manifest
    level            an SST of the levels that no active manifest names, and no live job may yet
    manifest_other   a file among the manifests or the WAL that has no id: a temporary file,
    wal_other        which is garbage by its age alone

Objects younger than the store's `gc_min_age_ms` stay, by the store's clock.  Fences, SSTs of the
WAL without rows, stay for `fence_age_ms`: they refuse the writes of a writer that was frozen.

The garbage collector: deletes what no active manifest needs.  The page: docs/kv-maintenance.md

1. If an active manifest is missing, damaged or of a later version, nothing is deleted: collecting
   fails with an error first.
2. First one update of the manifest drops expired snapshots and jobs and raises the boundaries
   below which ids are never used again.  Then that manifest decides again what to delete: later
   processes read it, and cannot use again what it no longer names.
3. Ages are taken by the store's clock: now is when that manifest was written, but at most
   `clock_skew_max_ms` after our own clock.  One object with a wrong time makes no other one old.
   Expiry is by our clock, and a snapshot is kept for `clock_skew_max_ms` longer, for processes with
   slow clocks.
4. A crash at any point leaves garbage, which the next run finds.

    collector.plan()       what would be deleted, and by which rule
    collector.collect()    do it: a GcReport
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from holdfast.bucket.bucket import Bucket, ObjectInfo, Retirable, Sweepable
from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Manifest
from holdfast.kv.jobs import first_live_id
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import LEVELS, MANIFESTS, WAL, id_of, level_name, manifest_name, wal_name
from holdfast.kv.wal import FENCE_SIZE
from holdfast.runtime import Runtime

RULES = ("manifest", "manifest_other", "wal", "wal_other", "level")


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object to delete, and by which rule."""

    name: str
    size: int
    rule: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What must stay, by the current manifest and all active ones."""

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
        """Return by which rule an object is garbage, if it is old enough; None if it is needed."""
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
    """Return the last compacted SST of the manifest that is furthest behind.

    The SST itself is kept, as the design's text asks.  The text looks at the current manifest
    only, which takes the WAL away from older snapshots.
    """
    return min(manifest.wal_id_last_compacted for manifest in active.values())


def judge(
    listing: Iterable[ObjectInfo], reach: Reach, options: "GcOptions", *, now_ms: int
) -> tuple[list[Garbage], list[ObjectInfo]]:
    """Return what to delete now, and what later.  `now_ms` is the store's."""
    doomed, young = [], []
    for info in listing:
        rule = reach.rule(info.name)
        if rule is None:
            continue
        least = 0
        if rule.endswith("_other"):
            least = options.other_age_ms
        elif rule == "wal" and info.size <= FENCE_SIZE:
            least = options.fence_age_ms
        if now_ms - info.modified_ms >= max(least, reach.min_age_ms):
            doomed.append(Garbage(info.name, info.size, rule))
        else:
            young.append(info)
    return doomed, young


Result = TypeVar("Result")
Progress = Callable[[int, int], None]

_DELETES_MAX = 1000  # names in one request
_TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class GcOptions:
    """How wrong clocks may be, and the ages at which foreign files and fences are garbage.

    A fence stops a writer that was frozen (a paused virtual machine, say) for up to `fence_age_ms`.
    """

    clock_skew_max_ms: int = 3600 * 1000
    other_age_ms: int = 24 * 3600 * 1000
    fence_age_ms: int = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What would be deleted now."""

    manifest_id: int
    garbage: tuple[Garbage, ...]
    young_count: int  # garbage that is kept because of its age
    expired_snapshots: tuple[bytes, ...]
    expired_jobs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class GcReport:
    """What was deleted, by rule."""

    manifest_id: int
    counts: dict[str, int]
    sizes: dict[str, int]
    young_count: int
    expired_snapshots: int
    expired_jobs: int
    swept_count: int  # temporaries of the bucket itself

    @property
    def count(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class _Expired:
    """Ids of snapshots and jobs that the next manifest drops."""

    snapshots: tuple[bytes, ...] = ()
    jobs: tuple[bytes, ...] = ()


class _OutdatedError(Exception):
    """The current manifest has changed: another collector was faster."""


class GarbageCollector:
    """Deletes objects that no active manifest needs: `plan` returns them, `collect` deletes them.

    Any number may run at once, beside writers, readers and compactors.
    """

    def __init__(
        self, bucket: Bucket, runtime: Runtime | None = None, options: GcOptions | None = None
    ) -> None:
        self._bucket, self._runtime = bucket, runtime or Runtime()
        self._options = options or GcOptions()
        self._store = ManifestStore(bucket, self._runtime)

    def plan(self) -> GcPlan:
        """Return what would be deleted, and why; nothing is changed."""
        return _until_current(self._plan)

    def collect(self, on_progress: Progress = lambda done, total: None) -> GcReport:
        """Delete garbage; `on_progress` is called with the objects done, and in all.

        CorruptError, UnsupportedError: it is unknown what is garbage; nothing was deleted.
        """
        return _until_current(lambda: self._collect(on_progress))

    def _plan(self) -> GcPlan:
        manifest_id, manifest = self._store.current()
        expired = self._expired(manifest)
        reach, listing = self._reach(manifest_id, manifest, expired), self._list()
        doomed, young = judge(listing, reach, self._options, now_ms=self._soon_ms())
        return GcPlan(manifest_id, tuple(doomed), len(young), expired.snapshots, expired.jobs)

    def _collect(self, on_progress: Progress) -> GcReport:
        manifest_id, manifest = self._store.current()
        expired, listing = self._expired(manifest), self._list()
        if not self._is_worth_it(manifest_id, manifest, expired, listing):
            return _report(manifest_id, [], 0, expired, 0)
        manifest_id, manifest = self._advance()
        # From here on every remaining snapshot counts, regardless of clocks.
        reach = self._reach(manifest_id, manifest, _Expired())
        now_ms = self._store_now_ms()
        doomed, young = judge(listing, reach, self._options, now_ms=now_ms)
        doomed = [garbage for garbage in doomed if _is_below(garbage, manifest)]
        names = [garbage.name for garbage in doomed]
        for start in range(0, len(names), _DELETES_MAX):
            on_progress(start, len(names))
            self._bucket.delete(*names[start : start + _DELETES_MAX])
        swept = self._forget(manifest, reach, now_ms)
        return _report(manifest_id, doomed, len(young), expired, swept)

    def _is_worth_it(
        self, manifest_id: int, manifest: Manifest, expired: _Expired, listing: list[ObjectInfo]
    ) -> bool:
        """Return whether there is more to delete than the manifest that this run would replace."""
        reach = self._reach(manifest_id, manifest, expired)
        doomed, _ = judge(listing, reach, self._options, now_ms=self._soon_ms())
        others = [garbage for garbage in doomed if garbage.rule != "manifest"]
        return bool(expired.snapshots or expired.jobs or others or len(doomed) > 1)

    def _advance(self) -> tuple[int, Manifest]:
        """Write the manifest that decides: expired snapshots dropped, boundaries raised."""
        least = 0

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            nonlocal least
            least = least or manifest_id
            expired = self._expired(manifest)
            needed = wal_first(self._active(manifest_id, manifest, expired))
            if manifest.manifest_gc_boundary >= least and not (expired.snapshots or expired.jobs):
                return None  # our own update, which took long
            draft = manifest.edit()
            for id in expired.snapshots:
                draft.drop_snapshot(id)
            for id in expired.jobs:
                draft.drop_job(id)
            message = draft.message
            message.wal_gc_boundary = max(message.wal_gc_boundary, needed)
            message.manifest_gc_boundary = max(message.manifest_gc_boundary, manifest_id)
            return draft.freeze()

        return self._store.update(change)

    def _store_now_ms(self) -> int:
        """Return a time that the store's clock has passed: when the current manifest was written.

        An object whose time is ahead of all clocks (restored, copied, from a broken clock) must not
        make the others look old.
        """
        most_ms = self._runtime.now_ms() + self._options.clock_skew_max_ms
        return min(self._store.stamped_ms, most_ms)

    def _soon_ms(self) -> int:
        """Return about when the store will write the next manifest, for plans.

        Our clock decides when to look; the store's clock decides what is old enough.
        """
        return max(self._store_now_ms(), self._runtime.now_ms())

    def _forget(self, manifest: Manifest, reach: Reach, now_ms: int) -> int:
        """Have a bucket with records or temporary files clean them up."""
        if isinstance(self._bucket, Retirable):
            names = {
                MANIFESTS: manifest_name(max(manifest.manifest_gc_boundary - 1, 0)),
                WAL: wal_name(max(manifest.wal_gc_boundary - 1, 0)),
                LEVELS: level_name(reach.level_stop - 1),
            }
            for directory, boundary in names.items():
                self._bucket.retire(directory, boundary)
        if isinstance(self._bucket, Sweepable):
            return self._bucket.sweep(now_ms - self._options.other_age_ms)
        return 0

    def _expired(self, manifest: Manifest) -> _Expired:
        """Return snapshots and jobs that have expired even by a clock far behind ours."""
        since_ms = self._runtime.now_ms() - self._options.clock_skew_max_ms
        return _Expired(
            tuple(
                snapshot.id
                for snapshot in manifest.snapshots
                if 0 < snapshot.snapshot_expire_time_s < since_ms / 1000
            ),
            tuple(job.id for job in manifest.jobs if job.expires_ms < since_ms),
        )

    def _reach(self, manifest_id: int, manifest: Manifest, expired: _Expired) -> Reach:
        return Reach.of(manifest_id, self._active(manifest_id, manifest, expired))

    def _active(
        self, manifest_id: int, manifest: Manifest, expired: _Expired
    ) -> dict[int, Manifest]:
        """Return all active manifests; an error if one of them cannot be read."""
        found = {manifest_id: manifest}
        for snapshot in manifest.snapshots:
            id = snapshot.manifest_id
            if id in found or snapshot.id in expired.snapshots:
                continue
            try:
                found[id] = self._store.get(id)
            except FileNotFoundError:
                if self._store.current()[0] != manifest_id:
                    raise _OutdatedError from None  # the snapshot was dropped since
                raise CorruptError(
                    manifest_name(id), 0, "missing, but a snapshot needs it"
                ) from None
        return found

    def _list(self) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        for directory in (MANIFESTS, WAL, LEVELS):
            found += self._bucket.list(directory)
        return found


def _until_current(attempt: Callable[[], Result]) -> Result:
    for _ in range(_TRIES_MAX):
        try:
            return attempt()
        except _OutdatedError:
            continue
    raise UnavailableError("manifests are collected faster than they can be read")


def _is_below(garbage: Garbage, manifest: Manifest) -> bool:
    """Return whether this id is below the boundary, so that it is never used again."""
    number = id_of(garbage.name)
    if number is None or garbage.rule == "level":
        return True
    manifests = garbage.rule == "manifest"
    return number < (manifest.manifest_gc_boundary if manifests else manifest.wal_gc_boundary)


def _report(
    manifest_id: int, deleted: Iterable[Garbage], young: int, expired: _Expired, swept: int
) -> GcReport:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for garbage in deleted:
        counts[garbage.rule] += 1
        sizes[garbage.rule] += garbage.size
    snapshots, jobs = len(expired.snapshots), len(expired.jobs)
    return GcReport(manifest_id, dict(counts), dict(sizes), young, snapshots, jobs, swept)
