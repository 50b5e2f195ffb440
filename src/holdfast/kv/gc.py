"""The garbage collector: deletes what no active manifest needs.  The page: docs/kv-maintenance.md

1. What is needed is known, or nothing is deleted: if an active manifest is missing, damaged or of
   a later version, that is an error before anything else happens.
2. First one update of the manifest drops expired snapshots and jobs and raises the boundaries
   below which ids are never used again.  Then what to delete is judged once more by that manifest:
   whoever comes later sees it, and cannot revive what it has given up.
3. Ages are taken by the store's clock, from what it stamped last.  Expiry is by ours, and a
   snapshot is kept for `clock_skew_max_ms` longer, for those whose clocks are behind.
4. A crash at any point leaves garbage, which the next run finds.

    collector.plan()       what would be deleted, and by which rule
    collector.collect()    do it: a GcReport
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.bucket.bucket import Bucket, ObjectInfo, Retirable, Sweepable
from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Manifest
from holdfast.kv.garbage import Garbage, Reach, judge, wal_first
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import LEVELS, MANIFESTS, WAL, id_of, level_name, manifest_name, wal_name
from holdfast.runtime import Runtime

Result = TypeVar("Result")
Progress = Callable[[int, int], None]

_DELETES_MAX = 1000  # names in one request
_TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class GcOptions:
    """How wrong clocks may be, and when a file that nobody knows is given up."""

    clock_skew_max_ms: int = 3600 * 1000
    other_age_ms: int = 24 * 3600 * 1000


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
    """Ids of what the next manifest will not have any more."""

    snapshots: tuple[bytes, ...] = ()
    jobs: tuple[bytes, ...] = ()


class _OutdatedError(Exception):
    """What was read of the current manifest is not so any more: another collector was faster."""


class GarbageCollector:
    """Deletes what no active manifest needs: `plan` says what that is, `collect` does it.

    Any number may run at once, beside writers, readers and compactors.
    """

    def __init__(
        self, bucket: Bucket, runtime: Runtime | None = None, options: GcOptions | None = None
    ) -> None:
        self._bucket, self._runtime = bucket, runtime or Runtime()
        self._options = options or GcOptions()
        self._store = ManifestStore(bucket, self._runtime)

    def plan(self) -> GcPlan:
        """What would go and why; nothing is changed."""
        return _until_current(self._plan)

    def collect(self, on_progress: Progress = lambda done, total: None) -> GcReport:
        """Delete garbage; `on_progress` is told objects done, objects in all.

        CorruptError, UnsupportedError: not known what is garbage, so nothing went.
        """
        return _until_current(lambda: self._collect(on_progress))

    def _plan(self) -> GcPlan:
        manifest_id, manifest = self._latest()
        expired = self._expired(manifest)
        reach, listing = self._reach(manifest_id, manifest, expired), self._list()
        doomed, young = self._judge(listing, reach, _newest_ms(listing))
        return GcPlan(manifest_id, tuple(doomed), len(young), expired.snapshots, expired.jobs)

    def _collect(self, on_progress: Progress) -> GcReport:
        manifest_id, manifest = self._latest()
        expired, listing = self._expired(manifest), self._list()
        if not self._is_worth_it(manifest_id, manifest, expired, listing):
            return _report(manifest_id, [], 0, expired, 0)
        manifest_id, manifest = self._advance()
        # From here on every snapshot that is left counts, whatever the clocks say.
        reach = self._reach(manifest_id, manifest, _Expired())
        stamped = self._bucket.list(MANIFESTS, after=manifest_name(manifest_id - 1))
        now_ms = _newest_ms([*listing, *stamped])
        doomed, young = self._judge(listing, reach, now_ms)
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
        """Whether there is more to delete than the manifest that we would make superfluous."""
        reach = self._reach(manifest_id, manifest, expired)
        # The store's clock may have stood still since the last write.  Ours tells when to look;
        # whether something is old enough is then for the store's to say.
        now_ms = max(_newest_ms(listing), self._runtime.now_ms())
        doomed, _ = self._judge(listing, reach, now_ms)
        others = [garbage for garbage in doomed if garbage.rule != "manifest"]
        return bool(expired.snapshots or expired.jobs or others or len(doomed) > 1)

    def _advance(self) -> tuple[int, Manifest]:
        """Drop what has expired, raise the boundaries: the manifest that decides."""
        least = 0

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            nonlocal least
            least = least or manifest_id
            expired = self._expired(manifest)
            needed = wal_first(self._active(manifest_id, manifest, expired))
            if manifest.manifest_gc_boundary >= least and not (expired.snapshots or expired.jobs):
                return None  # our own work, which we were slow to make
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

    def _judge(
        self, listing: Iterable[ObjectInfo], reach: Reach, now_ms: int
    ) -> tuple[list[Garbage], list[ObjectInfo]]:
        return judge(listing, reach, now_ms=now_ms, other_age_ms=self._options.other_age_ms)

    def _forget(self, manifest: Manifest, reach: Reach, now_ms: int) -> int:
        """Let a bucket that keeps records or temporaries of its own clean them up."""
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
        """Snapshots and jobs that even a clock far behind ours calls expired."""
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
        """All active manifests; an error if one of them cannot be read."""
        found = {manifest_id: manifest}
        for snapshot in manifest.snapshots:
            id = snapshot.manifest_id
            if id in found or snapshot.id in expired.snapshots:
                continue
            try:
                found[id] = self._store.get(id)
            except FileNotFoundError:
                if self._latest()[0] != manifest_id:
                    raise _OutdatedError from None  # who dropped the snapshot has collected it
                raise CorruptError(
                    manifest_name(id), 0, "a snapshot needs it, but it is not there"
                ) from None
        return found

    def _latest(self) -> tuple[int, Manifest]:
        current = self._store.latest()
        if current is None:
            raise FileNotFoundError("no store here: it has no manifest")
        return current

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


def _newest_ms(listing: Iterable[ObjectInfo]) -> int:
    """The store's clock is not behind the newest stamp it has made."""
    return max((info.modified_ms for info in listing), default=0)


def _is_below(garbage: Garbage, manifest: Manifest) -> bool:
    """Whether nobody will ever use this id again, as the manifest says."""
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
