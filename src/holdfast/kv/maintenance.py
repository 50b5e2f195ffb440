"""Upkeep of a store by its own writer: compaction when something has gathered, collection rarely.

It does nothing while there is nothing to do, so a compactor elsewhere is not disturbed as long as
it keeps up.  If it does not, this one takes over, and the other is fenced; when another takes over
from this one, it stops compacting for good and only collects garbage.
"""

from dataclasses import dataclass, field

from holdfast.bucket.bucket import Bucket
from holdfast.errors import FencedError
from holdfast.formats.manifest import Manifest
from holdfast.kv.compaction import Compactor, StoppedError
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.plans import CompactionOptions, plan_units
from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """When to compact, into what, and how often to look for garbage."""

    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    gc: GcOptions = field(default_factory=GcOptions)
    gc_interval_ms: int = 600_000


class Maintenance:
    """Compacts and collects for one writer.

    `step` is called by one thread, again and again; `stop` by any.
    """

    def __init__(
        self, bucket: Bucket, runtime: Runtime, options: MaintenanceOptions | None = None
    ) -> None:
        self._bucket, self._runtime = bucket, runtime
        self._options = options or MaintenanceOptions()
        self._collector = GarbageCollector(bucket, runtime, self._options.gc)
        self._collected_ms = runtime.monotonic_ms()
        self._compactor: Compactor | None = None
        self._is_fenced = self._is_stopped = False

    def step(self, manifest: Manifest, wal_count: int, wal_size: int) -> bool:
        """Do what is due, as far as the writer knows the store; whether anything was."""
        did = self._compact(manifest, wal_count, wal_size)
        now_ms = self._runtime.monotonic_ms()
        if not self._is_stopped and now_ms - self._collected_ms >= self._options.gc_interval_ms:
            self._collected_ms = now_ms
            did = bool(self._collector.collect().count) or did
        return did

    def stop(self) -> None:
        """Let a step that runs end soon; what it has merged by then is garbage."""
        self._is_stopped = True

    def _compact(self, manifest: Manifest, wal_count: int, wal_size: int) -> bool:
        options, did = self._options.compaction, False
        due = wal_count >= options.wal_count or wal_size >= options.wal_size
        if self._is_fenced or not (due or plan_units(manifest, options)):
            return False
        try:
            if self._compactor is None:
                self._compactor = Compactor(
                    self._bucket, self._runtime, options, go_on=self._goes_on
                )
            while self._compactor.step() is not None:
                did = True
        except FencedError:
            self._is_fenced = True
        except StoppedError:
            return did
        return did

    def _goes_on(self) -> bool:
        return not self._is_stopped
