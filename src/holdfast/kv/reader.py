"""A store open for reading, beside a live writer or without one.  The page: docs/kv.md

A reader shows one state of the store.  Two calls replace it by a newer one:

1. `poll` renews the snapshot when it is due, and reads new SSTs of the WAL, by rising ids.  At a
   gap it waits for the missing SST, even if later ones exist: it never shows a later write without
   an earlier one.
2. `refresh` reads the newest manifest, takes a new snapshot, and polls.
3. A snapshot protects the SSTs that the reader needs.  A `lazy` reader creates no snapshot, and
   writes nothing to the bucket: `poll` follows the newest manifest, and so does a read that finds
   an SST missing.  An old view of a lazy reader may raise UnavailableError.  Where nothing can be
   written, every reader is lazy.
"""

import errno
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, DiskFullError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.formats.sst import Rows, decode_sst
from holdfast.handle import Handle, status_html
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import Tail, layer_of
from holdfast.kv.names import wal_name
from holdfast.kv.opening import last_in_row, replay, see
from holdfast.kv.snapshots import Lease, Snapshots, active_ids
from holdfast.kv.status import KvStatus, measure_reads, status_of
from holdfast.kv.tables import CACHE_SIZE, Cache, Levels, differ
from holdfast.kv.verify import KvReport, Progress, verify_store
from holdfast.kv.view import TRIES_MAX, Current, PinnedView, Readable, View, too_fast
from holdfast.metrics import Metric
from holdfast.runtime import Runtime

_LOG = logging.getLogger("holdfast")


class Opened(Readable):
    """The reading part of Kv and KvReader.  Every call raises ClosedError after close."""

    _current: Current
    _tail: Tail

    def __init__(self, bucket: Bucket, name: str, runtime: Runtime | None) -> None:
        self.bucket, self.runtime = bucket, runtime or Runtime()
        self.store = ManifestStore(bucket, self.runtime)
        self._handle = Handle(f"{name} {bucket}")

    def _repr_html_(self) -> str:
        return repr(self) if self._handle.is_closed else status_html(self.status())

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key in the state that is shown now, durable or not; or None."""
        return self._current.get(key)

    @abstractmethod
    def view(self) -> PinnedView:
        """Return the state that is shown now; it stays readable while others are shown."""

    @property
    def manifest(self) -> Manifest:
        """Return the manifest whose levels are read."""
        self._handle.check_read()
        return self._current.view.levels.manifest

    @property
    def last_wal_id(self) -> int:
        """Return the id of the last SST of the WAL that is shown; all before it are shown too."""
        self._handle.check_read()
        return self._tail.last_id

    def status(self) -> KvStatus:
        """Return a summary of the bucket and the newest manifest.  Writes nothing."""
        self._handle.check_read()
        return status_of(self.bucket, self.runtime)

    def verify(self, on_progress: Progress = lambda done, total: None) -> KvReport:
        """Verify every object that the active manifests need.  Writes nothing."""
        self._handle.check_read()
        return verify_store(self.bucket, on_progress, self.runtime)

    def _rows(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[Rows]:
        """Yield the rows of a range; if an SST is missing at first, of the newest state."""
        for _ in range(TRIES_MAX):
            with self.view() as view:
                try:
                    yield from view.rows(start, stop, reverse)
                except FileNotFoundError as error:
                    self._current.replace(view.state, error)
                else:
                    return
        raise too_fast()


class KvReader(Opened):
    """A store open for reading: it shows one state; `poll` and `refresh` show a newer one.

    Any number of threads may use it.

    >>> from holdfast.doors import open_kv, read_kv
    >>> with open_kv("memory://read", create=True) as kv, read_kv("memory://read") as reader:
    ...     kv.put(b"key", b"value").result()
    ...     reader.get(b"key"), reader.poll(), reader.get(b"key")
    1
    (None, 1, b'value')
    """

    damage = recovered = ()  # a reader repairs nothing; see `verify`

    def __init__(
        self,
        bucket: Bucket,
        *,
        at: int | None = None,
        lazy: bool = False,
        snapshot_ttl_ms: int = 600_000,
        poll_ms: float | None = None,
        memory_bytes_max: int = 64 * 2**20,
        cache_bytes_max: int = CACHE_SIZE,
        runtime: Runtime | None = None,
    ) -> None:
        """See holdfast.doors.read_kv."""
        super().__init__(bucket, "the reader of the kv store", runtime)
        self._at, self._is_lazy = at, lazy
        self._current = Current(self._handle, self.runtime, self._refresh_to_get)
        self._cache = Cache(cache_bytes_max, self.runtime)
        self._memory_bytes, self._ttl_ms = memory_bytes_max, snapshot_ttl_ms
        self._workers = self.runtime.workers(8)
        self._lease = Lease(self.store, self.runtime, snapshot_ttl_ms)
        self._lock = self.runtime.lock()  # held by the thread that moves on
        self._showing = self.runtime.lock()  # held for an instant
        try:
            with self._lock:
                self._move(self._open_at(at) if at is not None else self._newest)
        except BaseException:
            self._workers.close()
            raise
        self._ticker = None
        if poll_ms is not None:
            self._ticker = self.runtime.ticker(poll_ms, self._tick)

    def __repr__(self) -> str:
        state = "closed" if self._handle.is_closed else f"manifest {self._current.manifest_id}"
        return f"<KvReader {self.bucket!r}: {state}>"

    def view(self) -> PinnedView:
        """Return the state that is shown now; it stays readable while others are shown."""
        self._handle.check_read()
        with self._showing:
            current = self._current
            return PinnedView(current.view, self._lease, current.manifest_id, self._handle)

    @property
    def manifest_id(self) -> int:
        """Return the id of the manifest whose levels are read."""
        self._handle.check_read()
        return self._current.manifest_id

    def poll(self) -> int:
        """Read new SSTs of the WAL; return how many there were, fences included."""
        self._handle.check_read()
        with self._lock:
            before = self._tail.last_id
            self._renew()
            if self._at is None:
                self._take_in()
            return self._tail.last_id - before

    def refresh(self) -> None:
        """Show the newest state: manifest, levels and WAL."""
        self._handle.check_read()
        with self._lock:
            if self._at is None:
                self._move(self._newest)
                self._take_in()
            elif self._lease.has_lapsed and not self._is_lazy:
                raise UnavailableError(f"the snapshot of manifest {self._at} expired")

    def metrics(self) -> list[Metric]:
        """Return counters and gauges of this reader since it was opened."""
        self._handle.check_read()
        return measure_reads(self._current, self._tail, self._cache)

    def close(self) -> None:
        """Stop reading, and release the snapshot.  After it every call raises ClosedError."""
        if not self._handle.close():
            return
        if self._ticker is not None:
            self._ticker.close()
        self._workers.close()
        self._writes(self._lease.release)  # else it expires

    def _refresh_to_get(self) -> None:
        if self._at is not None and self._at not in self._active_ids():
            raise UnavailableError(f"manifest {self._at} is no longer active")
        self.refresh()

    # With the lock held

    def _renew(self) -> None:
        """Extend the snapshot of the state that is shown, or show a newer state, if it is due."""
        if self._is_lazy or not self._lease.is_due:
            return
        if self._at is None:
            current = self.store.latest()
            if self._lease.has_lapsed or (
                current and differ(current[1], self._current.view.levels.manifest)
            ):
                self._move(self._newest)
                return
        try:
            self._writes(self._lease.renew)
        except FileNotFoundError:  # a process with a faster clock dropped it
            if self._at is not None:
                raise UnavailableError(f"the snapshot of manifest {self._at} expired") from None
            self._move(self._newest)

    def _writes(self, write: Callable[[], object]) -> bool:
        """Write to the bucket; if it cannot be written, be lazy from now on and return False."""
        try:
            write()
        except OSError as error:
            if not _refuses_writes(error):
                raise
            _LOG.info("%s: reading without a snapshot: %s", self.bucket, error)
            self._is_lazy = True
        return not self._is_lazy

    def _newest(self) -> tuple[int, Manifest, int]:
        """Read the manifest, then the WAL, then take the snapshot: else the WAL may be deleted by
        then.
        """
        kept: list[tuple[int, Manifest]] = []

        def list_wal(draft: Draft[Manifest], manifest: Manifest) -> None:
            see(draft, last_in_row(self.bucket, self.store, manifest))

        if not self._is_lazy and self._writes(lambda: kept.append(self._lease.move(list_wal))):
            manifest_id, manifest = kept[0]
            return manifest_id, manifest, manifest.wal_id_last_seen
        current = self.store.current()
        return *current, last_in_row(self.bucket, self.store, current[1])

    def _open_at(self, manifest_id: int) -> Callable[[], tuple[int, Manifest, int]]:
        def keep() -> tuple[int, Manifest, int]:
            if not self._is_lazy:
                self._writes(lambda: self._hold(manifest_id))
            if self._is_lazy and manifest_id not in self._active_ids():
                raise ValueError(f"manifest {manifest_id} is not active")
            try:
                manifest = self.store.get(manifest_id)
            except FileNotFoundError as error:
                if self._lease.keeps(manifest_id):
                    raise CorruptError(
                        str(error), 0, "missing, but a live snapshot needs it"
                    ) from error
                raise ValueError(f"manifest {manifest_id} is no longer active") from None
            return manifest_id, manifest, manifest.wal_id_last_seen

        return keep

    def _hold(self, manifest_id: int) -> None:
        made = Snapshots(self.store, self.runtime).create(self._ttl_ms, manifest_id=manifest_id)
        self._lease.hold(manifest_id, made.id)

    def _active_ids(self) -> set[int]:
        current = self.store.latest()
        return active_ids(*current, self.runtime.now_ms()) if current else set()

    def _move(self, choose: Callable[[], tuple[int, Manifest, int]]) -> None:
        """Load a state and show it."""
        for _ in range(TRIES_MAX):
            manifest_id, manifest, last_id = choose()
            first_id = manifest.wal_id_last_compacted + 1
            try:
                tail = replay(
                    self.bucket, self._cache, self._workers, first_id, last_id, self._memory_bytes
                )
            except FileNotFoundError as error:
                if self._lease.keeps(manifest_id):
                    raise CorruptError(
                        str(error), 0, "missing, but a live snapshot needs it"
                    ) from error
                continue  # compacted and collected while we looked
            if self._is_sound(manifest_id, first_id - 1):
                self._tail = tail
                self._show(manifest_id, Levels(manifest, self.bucket, self._cache))
                return
        raise UnavailableError("the WAL is deleted faster than it can be read; use a snapshot")

    def _take_in(self) -> None:
        """Read new SSTs of the WAL, up to the next gap."""
        after = self._tail.last_id
        while True:
            wal_id = self._tail.last_id + 1
            try:
                data = self.bucket.get(wal_name(wal_id))
            except FileNotFoundError:
                break
            info, rows = decode_sst(data, where=wal_name(wal_id))
            self._tail.add(layer_of(rows, wal_id), len(data), info.max_seq, info.writer_epoch)
        shown = self._current
        if not self._is_sound(shown.manifest_id, after):
            self._move(self._newest)
        elif self._is_lazy:
            self._follow()
        else:
            self._show(shown.manifest_id, shown.view.levels)

    def _follow(self) -> None:
        """Use the levels of the newest manifest: nothing keeps those of an older one."""
        manifest_id, manifest = self.store.current()
        levels = self._current.view.levels
        if manifest.wal_id_last_compacted > self._tail.last_id:
            self._move(self._newest)
            return
        if differ(manifest, levels.manifest):
            levels = Levels(manifest, self.bucket, self._cache)
            self._tail.drop(manifest.wal_id_last_compacted)
        self._show(manifest_id, levels)

    def _is_sound(self, manifest_id: int, after: int) -> bool:
        """Return whether the SSTs just read, after `after`, are those that the writer wrote there.

        After garbage collection has deleted an SST, a writer that was fenced long ago may create it
        again.  A snapshot prevents that; without one, compacted SSTs are not trusted.
        """
        if not self._is_lazy:
            return self._lease.keeps(manifest_id)
        current = self.store.latest()
        if current is None or self._at is not None:
            return manifest_id in self._active_ids()
        return current[1].wal_id_last_compacted <= after

    def _show(self, manifest_id: int, levels: Levels) -> None:
        view = View(self._tail.layers, self._tail.tables, levels)
        with self._showing:
            self._current.view, self._current.manifest_id = view, manifest_id

    def _tick(self) -> None:
        try:
            self.poll()
        except Exception as error:  # the state that was shown stays; this is tried again
            _LOG.warning("%s: could not keep up: %s", self.bucket, error)


def _refuses_writes(error: OSError) -> bool:
    """Return whether the bucket can be read but not written: read-only, forbidden or full."""
    return isinstance(error, PermissionError | DiskFullError) or error.errno == errno.EROFS
