"""Maintenance of a store by its own writer: compaction when it is due, garbage collection rarely.

While nothing is due, it does nothing, so another compactor can work as long as it keeps up.  If
that one does not, this one takes over, and the other is fenced.  If another compactor takes over
from this one, this one stops compacting and only collects garbage.

A writer that is closed compacts earlier: the next one reads all of the WAL when it opens, and
writers that live for a second would leave more and more of it.
"""

from dataclasses import dataclass, field, replace

from holdfast.bucket.bucket import Bucket
from holdfast.errors import FencedError
from holdfast.formats.manifest import JobKind, Manifest
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions, plan_units
from holdfast.kv.tasks import StoppedError
from holdfast.runtime import Runtime

MANIFESTS_MAX = 128  # uncollected ones that start a collection
_WAL_GARBAGE_MAX = 1024  # and so many compacted SSTs of the WAL
_CLOSING_WAL_COUNT = 4  # SSTs of the WAL that are worth a compaction when the writer is closed
_BUSY_MS = 600_000  # a job that is younger belongs to a compactor that works


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """When to compact, into what, and how often to look for garbage.

    `on_close`: also when the writer is closed, one compaction of the WAL and one of small levels.
    """

    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    gc: GcOptions = field(default_factory=GcOptions)
    gc_interval_ms: int = 600_000
    on_close: bool = True


class Maintenance:
    """Compacts and collects for one writer.

    `step` is called by one thread, again and again; `stop` by any; `finish` after that.
    """

    def __init__(
        self, bucket: Bucket, runtime: Runtime, options: MaintenanceOptions | None = None
    ) -> None:
        self._bucket, self._runtime = bucket, runtime
        self.options = options or MaintenanceOptions()
        self._collector = GarbageCollector(bucket, runtime, self.options.gc)
        self._collected_ms = runtime.monotonic_ms()
        self._compactor: Compactor | None = None
        self._is_fenced = self._is_stopped = False

    @property
    def spare_id(self) -> bytes | None:
        """Return the id of the job that the compactor has registered for its next compaction."""
        return self._compactor.spare_id if self._compactor else None

    @property
    def _waited_ms(self) -> int:
        return self._runtime.monotonic_ms() - self._collected_ms

    def step(self, manifest_id: int, manifest: Manifest, wal_count: int, wal_size: int) -> bool:
        """Do one thing that is due, as far as the writer knows the store; return whether there was
        any.
        """
        if self._is_stopped:
            return False
        waited_ms, interval_ms = self._waited_ms, self.options.gc_interval_ms
        did = False
        # If all that it found was too young, there is no use in looking again at once.
        if waited_ms >= interval_ms or (
            waited_ms >= interval_ms / 10 and _has_much_garbage(manifest_id, manifest)
        ):
            did = self._collect()
        options = self.options.compaction
        due = wal_count >= options.wal_count or wal_size >= options.wal_size
        if due or plan_units(manifest, options):
            did = self._compact(options) or did
        return did

    def stop(self) -> None:
        """Stop a running step soon; what it has merged by then is garbage."""
        self._is_stopped = True

    def finish(self, wal_count: int) -> None:
        """Do what spares the next writer work: one compaction of the WAL, one of small levels."""
        manifest_id, manifest = ManifestStore(self._bucket, self._runtime).current()
        self._is_stopped = False
        if not self._is_another_busy(manifest):
            options = self.options.compaction
            eager = replace(options, wal_count=min(options.wal_count, _CLOSING_WAL_COUNT))
            if wal_count >= eager.wal_count:
                self._compact(eager)
            units = plan_units(manifest, options)
            if units is not None and units.size <= options.sst_size:
                self._compact(options)
        if _has_much_garbage(manifest_id, manifest):
            self._collect()

    def _is_another_busy(self, manifest: Manifest) -> bool:
        """Return whether another compactor seems to be at work, which ours would fence."""
        since_ms = self._runtime.now_ms() - _BUSY_MS
        return any(
            job.kind == JobKind.COMPACTION
            and not job.done
            and job.started_ms > since_ms
            and job.id != self.spare_id
            for job in manifest.jobs
        )

    def _collect(self) -> bool:
        self._collected_ms = self._runtime.monotonic_ms()
        return bool(self._collector.collect().count)

    def _compact(self, options: CompactionOptions) -> bool:
        if self._is_fenced:
            return False
        try:
            if self._compactor is None:
                self._compactor = Compactor(
                    self._bucket, self._runtime, self.options.compaction, go_on=self._goes_on
                )
            return self._compactor.step(options) is not None
        except FencedError:
            self._is_fenced = True
        except StoppedError:
            pass
        return False

    def _goes_on(self) -> bool:
        return not self._is_stopped


def _has_much_garbage(manifest_id: int, manifest: Manifest) -> bool:
    """Return whether there is so much garbage that a collection need not wait for its time."""
    compacted = manifest.wal_id_last_compacted - manifest.wal_gc_boundary
    manifests = manifest_id - manifest.manifest_gc_boundary
    return manifests >= MANIFESTS_MAX or compacted >= _WAL_GARBAGE_MAX
