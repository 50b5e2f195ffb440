"""Maintain a kv store beside its writer.  holdfast.doors.manage_kv opens this by address."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from holdfast.bucket.bucket import Bucket, room
from holdfast.errors import HoldfastError, UnsupportedError
from holdfast.formats.sst import Rows
from holdfast.formats.sst.block import Compression
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions, GcPlan, GcReport
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.scans import pinned
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.kv.status import (
    KvStatus,
    ManifestEntry,
    ManifestReport,
    SnapshotReport,
    list_manifests,
    report_manifest,
    report_snapshot,
    status_of,
)
from holdfast.kv.tasks import Merged, SstMeta, Task, merge_task
from holdfast.kv.unsorted import arrange, write_runs
from holdfast.kv.verify import KvReport, verify_store
from holdfast.runtime import Runtime

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What was done: compactions, and the rows and bytes that they read and wrote."""

    steps: int
    tasks: int
    rows_read: int
    bytes_read: int
    rows_written: int
    bytes_written: int

    @classmethod
    def of(cls, steps: int, merges: Sequence[tuple[Task, Merged]]) -> "CompactReport":
        ssts = [sst.info for _, merged in merges for sst in merged.ssts]
        return cls(
            steps=steps,
            tasks=len(merges),
            rows_read=sum(merged.row_count for _, merged in merges),
            bytes_read=sum(_size(task) for task, _ in merges),
            rows_written=sum(info.row_count for info in ssts),
            bytes_written=sum(info.size for info in ssts),
        )


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was loaded; `rows` does not count those that a later row of the same key replaced."""

    loaded: bool  # False: the store had this transaction already
    rows_read: int = 0
    rows: int = 0
    runs: int = 0
    ssts: int = 0
    bytes: int = 0


class KvAdmin:
    """Maintains a store beside its writer: loads, compaction, garbage, snapshots, manifests.

    Writers and readers are not disturbed; `compact` fences another compactor.  It holds nothing
    open, so there is nothing to close.  With `read_only`, calls that write raise UnsupportedError.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        is_new: bool = False,
        read_only: bool = False,
        runtime: Runtime | None = None,
    ) -> None:
        """NotFoundError if there is no store.  With `is_new`, it was created for this
        administrator.
        """
        self.bucket, self.is_new, self._read_only = bucket, is_new, read_only
        self._runtime = runtime or Runtime()
        self._store = ManifestStore(bucket, self._runtime)
        self._store.current()

    def __repr__(self) -> str:
        return f"KvAdmin({self.bucket!r})"

    def status(self) -> KvStatus:
        """Return a summary, from names, manifests and the footers of the WAL."""
        return status_of(self.bucket, self._runtime)

    def verify(self, on_progress: Progress = _silent) -> KvReport:
        """Verify every checksum that the active manifests need; `on_progress` gets bytes."""
        return verify_store(self.bucket, on_progress, self._runtime)

    def manifests(self) -> list[ManifestEntry]:
        """Return the manifests that still exist, oldest first."""
        return list_manifests(self.bucket, self._runtime)

    def manifest(self, id: int | None = None) -> ManifestReport:
        """Return one manifest, or the current one; FileNotFoundError if it is missing."""
        return report_manifest(self.bucket, id, self._runtime)

    def compact(
        self, *, everything: bool = False, on_progress: Progress = _silent
    ) -> CompactReport:
        """Compact until there is nothing to do; or `everything`, WAL and levels, into one run.

        FencedError: another compactor has taken over.  `on_progress` gets the bytes of each step.
        """
        self._check_writable()
        merges: list[tuple[Task, Merged]] = []

        def merge(tasks: Sequence[Task]) -> list[Merged]:
            done, total = 0, sum(map(_size, tasks))
            for task in tasks:
                on_progress(done, total)
                merges.append((task, merge_task(self.bucket, task, self._runtime)))
                done += _size(task)
            on_progress(done, total)
            return [merged for _, merged in merges[-len(tasks) :]] if tasks else []

        with room(self.bucket):
            compactor = Compactor(self.bucket, self._runtime, merge=merge)
            steps = compactor.compact_everything() if everything else compactor.run_until_quiet()
        return CompactReport.of(steps, merges)

    def plan_gc(self, options: GcOptions | None = None) -> GcPlan:
        """Return the objects that `gc` would delete, and why; nothing is changed."""
        return GarbageCollector(self.bucket, self._runtime, options).plan()

    def gc(self, options: GcOptions | None = None, on_progress: Progress = _silent) -> GcReport:
        """Delete objects that no active manifest needs; `on_progress` gets objects.

        CorruptError: a manifest that decides is damaged; nothing was deleted.
        """
        self._check_writable()
        with room(self.bucket):
            return GarbageCollector(self.bucket, self._runtime, options).collect(on_progress)

    def load(
        self,
        chunks: Iterable[Rows],
        *,
        is_sorted: bool = False,
        transaction: tuple[str, int] | None = None,
        compression: Compression = None,
    ) -> LoadReport:
        """Load rows in one atomic write; of a key that comes twice the last row counts.

        `is_sorted`: keys ascend over all chunks, or ValueError.  `transaction` is a name and a
        number: nothing is loaded if the store has that number of the name, or a higher one.
        """
        self._check_writable()
        options = CompactionOptions(compression=compression)
        load = BulkLoad(self.bucket, self._runtime, options, transaction=transaction)
        if load.is_committed:
            return LoadReport(loaded=False)
        counted = _Counted(chunks)
        try:
            runs = self._write(load, counted, is_sorted=is_sorted)
            loaded = load.commit_runs(runs)
        except BaseException:
            with suppress(HoldfastError):  # it expires; report the first error
                load.abandon()
            raise
        ssts = [sst.info for run in runs for sst in run]
        rows, size = sum(info.row_count for info in ssts), sum(info.size for info in ssts)
        return LoadReport(loaded, counted.rows, rows, len(runs), len(ssts), size)

    def has_transaction(self, transaction: tuple[str, int]) -> bool:
        """Return whether the store has this number of the name, or a higher one."""
        name, number = transaction
        return number <= self.manifest().transactions.get(name, -1)

    def snapshots(self) -> list[SnapshotReport]:
        """Return all snapshots, expired ones too."""
        return [self._report(each) for each in self._snapshots.list()]

    def create_snapshot(self, ttl_ms: float | None, *, at: int | None = None) -> SnapshotReport:
        """Keep the newest state, or manifest `at`, for `ttl_ms`; None: until it is dropped.

        ValueError if the manifest is not active.
        """
        self._check_writable()
        if at is None:
            return self._report(pinned(self.bucket, self._runtime, ttl_ms))
        return self._report(self._snapshots.create(ttl_ms, manifest_id=at))

    def extend_snapshot(self, id: UUID, ttl_ms: float | None) -> SnapshotReport:
        """Set a new expiry, counted from now.  KeyError if the snapshot no longer exists."""
        self._check_writable()
        return self._report(self._snapshots.extend(id, ttl_ms))

    def drop_snapshots(self, *ids: UUID) -> None:
        """Drop snapshots; a missing one is ignored."""
        self._check_writable()
        with room(self.bucket):
            self._snapshots.drop(*ids)

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._store, self._runtime)

    def _report(self, snapshot: Snapshot) -> SnapshotReport:
        return report_snapshot(snapshot, self._runtime.now_ms())

    def _write(
        self, load: BulkLoad, chunks: Iterable[Rows], *, is_sorted: bool
    ) -> list[list[SstMeta]]:
        """Write SSTs that are not visible yet; return the runs, the newest first."""
        if is_sorted:
            return [write_sorted(self.bucket, load.job, chunks, self._runtime)]
        runs = write_runs(self.bucket, load.job, chunks, self._runtime)
        return arrange(self.bucket, load.job, runs, self._runtime)

    def _check_writable(self) -> None:
        if self._read_only:
            raise UnsupportedError(f"{self!r} was opened with read_only=True and writes nothing")


class _Counted:
    """Chunks of rows, and how many rows were read."""

    def __init__(self, chunks: Iterable[Rows]) -> None:
        self._chunks, self.rows = chunks, 0

    def __iter__(self) -> Iterator[Rows]:
        for rows in self._chunks:
            self.rows += len(rows)
            yield rows


def _size(task: Task) -> int:
    return sum(sst.size for run in task.sources for sst in run)
