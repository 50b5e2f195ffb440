"""A store open for reading, beside a live writer or without one.  The page: docs/kv.md

A reader shows one state of the store, and moves on when it is asked to:

1. `poll` renews the snapshot when it is time, and takes in what the WAL has since, by rising
   ids.  At a gap it waits for the missing SST, however many there are behind it: it never shows a
   later write without an earlier one.
2. `refresh` moves on to the newest manifest, with a new snapshot, and polls.
3. A snapshot keeps what is read from being deleted.  A `lazy` reader writes none, and so nothing at
   all to the bucket; if an SST is gone it reads the newest manifest.  A view of it may end with
   UnavailableError when it grows old.
"""

import logging
from collections.abc import Callable

from holdfast.bucket.bucket import Bucket
from holdfast.bucket.open import connect
from holdfast.errors import CorruptError, PoisonedError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.formats.sst import decode_sst
from holdfast.kv.leases import Lease
from holdfast.kv.levels import Levels
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import layer_of
from holdfast.kv.names import wal_name
from holdfast.kv.opening import differ, last_in_row, replay, see
from holdfast.kv.reading import PinnedView, Reading
from holdfast.kv.snapshots import Snapshots, active_ids
from holdfast.kv.tables import CACHE_SIZE, Cache
from holdfast.kv.view import View
from holdfast.runtime import Closing, Runtime

_TRIES_MAX = 10
_LOG = logging.getLogger("holdfast")


class Reader(Reading, Closing):
    """A store open for reading: it shows one state, and moves on by `poll` and `refresh`.

    Any number of threads may use it.

    >>> from holdfast.kv import Db, Reader
    >>> with Db.open("memory://read") as db, Reader.open("memory://read") as reader:
    ...     db.put(b"key", b"value").result()
    ...     reader.get(b"key"), reader.poll(), reader.get(b"key")
    1
    (None, 1, b'value')
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        at: int | None = None,
        lazy: bool = False,
        snapshot_ttl_ms: int = 600_000,
        poll_ms: float | None = None,
        memory_bytes: int = 64 * 2**20,
        cache_bytes: int = CACHE_SIZE,
        runtime: Runtime | None = None,
    ) -> None:
        """`at`: read the state of this manifest for ever, and not the newest; it must be active."""
        self.bucket, self._at, self._is_lazy = bucket, at, lazy
        self.runtime = runtime or Runtime()
        self.store = ManifestStore(bucket, self.runtime)
        self._cache = Cache(cache_bytes, self.runtime)
        self._memory_bytes, self._ttl_ms = memory_bytes, snapshot_ttl_ms
        self._workers = self.runtime.workers(8)
        self._lease = Lease(self.store, self.runtime, snapshot_ttl_ms)
        self._lock = self.runtime.lock()  # who moves on, does so alone
        self._showing = self.runtime.lock()  # held for an instant
        self._is_closed = False
        try:
            with self._lock:
                self._move(self._open_at(at) if at is not None else self._open_newest())
        except BaseException:
            self._workers.close()
            raise
        self._ticker = None
        if poll_ms is not None:
            self._ticker = self.runtime.ticker(poll_ms, self._tick)

    @classmethod
    def open(
        cls,
        where: str | Bucket,
        *,
        at: int | None = None,
        lazy: bool = False,
        snapshot_ttl_ms: int = 600_000,
        poll_ms: float | None = None,
        memory_bytes: int = 64 * 2**20,
        cache_bytes: int = CACHE_SIZE,
        runtime: Runtime | None = None,
    ) -> "Reader":
        """Read the store at a URL, a path or in a bucket; with `poll_ms`, keep up by itself."""
        return cls(
            connect(where) if isinstance(where, str) else where,
            at=at,
            lazy=lazy,
            snapshot_ttl_ms=snapshot_ttl_ms,
            poll_ms=poll_ms,
            memory_bytes=memory_bytes,
            cache_bytes=cache_bytes,
            runtime=runtime,
        )

    def view(self) -> PinnedView:
        """The state that is shown now, to read at leisure while others are shown."""
        self._refuse_if_closed()
        with self._showing:
            return PinnedView(self._view, self._lease, self.manifest_id)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key in the state that is shown now; None if there is none."""
        self._refuse_if_closed()
        return super().get(key)

    @property
    def manifest(self) -> Manifest:
        """The manifest whose levels are read."""
        return self._view.levels.manifest

    @property
    def last_wal_id(self) -> int:
        """The last SST of the WAL that is shown."""
        return self._tail.last_id

    def poll(self) -> int:
        """Take in what the WAL has since; the number of SSTs that came, fences among them."""
        self._refuse_if_closed()
        with self._lock:
            before = self._tail.last_id
            self._renew()
            if self._at is None:
                self._take_in()
            return self._tail.last_id - before

    def refresh(self) -> None:
        """Show the newest state: manifest, levels and WAL."""
        self._refuse_if_closed()
        with self._lock:
            if self._at is None:
                self._move(self._open_newest())
                self._take_in()
            elif self._lease.has_lapsed and not self._is_lazy:
                raise UnavailableError(f"the snapshot of manifest {self._at} expired")

    def close(self) -> None:
        """Let go of what is kept."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.close()
        self._workers.close()
        self._lease.release()

    # With the lock held

    def _renew(self) -> None:
        """Keep what is shown from being deleted for another while, or move on, if it is time to."""
        if self._is_lazy or not self._lease.is_due:
            return
        if self._at is None:
            current = self.store.latest()
            if self._lease.has_lapsed or (current and differ(current[1], self.manifest)):
                self._move(self._keep)
                return
        try:
            self._lease.renew()
        except FileNotFoundError:  # it was dropped, by a clock before ours
            if self._at is not None:
                raise UnavailableError(f"the snapshot of manifest {self._at} expired") from None
            self._move(self._keep)

    def _open_newest(self) -> Callable[[], tuple[int, Manifest, int]]:
        return self._look if self._is_lazy else self._keep

    def _keep(self) -> tuple[int, Manifest, int]:
        """The manifest first, then the WAL, then the snapshot: else the WAL may be gone by then."""

        def list_wal(draft: Draft[Manifest], manifest: Manifest) -> None:
            see(draft, last_in_row(self.bucket, self.store, manifest))

        manifest_id, manifest = self._lease.move(list_wal)
        return manifest_id, manifest, manifest.wal_id_last_seen

    def _look(self) -> tuple[int, Manifest, int]:
        current = self.store.latest()
        if current is None:
            raise FileNotFoundError("no store here: it has no manifest")
        return *current, last_in_row(self.bucket, self.store, current[1])

    def _open_at(self, manifest_id: int) -> Callable[[], tuple[int, Manifest, int]]:
        def keep() -> tuple[int, Manifest, int]:
            if not self._is_lazy:
                snapshots = Snapshots(self.store, self.runtime)
                made = snapshots.create(self._ttl_ms / 1000, manifest_id=manifest_id)
                self._lease.hold(manifest_id, made.id)
            elif manifest_id not in self._active_ids():
                raise ValueError(f"manifest {manifest_id} is not active")
            try:
                manifest = self.store.get(manifest_id)
            except FileNotFoundError as error:
                if self._lease.proves_loss(manifest_id):
                    raise CorruptError(str(error), 0, "a snapshot keeps it") from error
                raise ValueError(f"manifest {manifest_id} is not active any more") from None
            return manifest_id, manifest, manifest.wal_id_last_seen

        return keep

    def _get_again(self, key: bytes) -> bytes | None:
        if self._at is not None and self._at not in self._active_ids():
            raise UnavailableError(f"manifest {self._at} is not active any more")
        return super()._get_again(key)

    def _active_ids(self) -> set[int]:
        current = self.store.latest()
        return active_ids(*current, self.runtime.now_ms()) if current else set()

    def _move(self, choose: Callable[[], tuple[int, Manifest, int]]) -> None:
        """Load a state and show it."""
        for _ in range(_TRIES_MAX):
            manifest_id, manifest, last_id = choose()
            first_id = manifest.wal_id_last_compacted + 1
            try:
                tail = replay(
                    self.bucket, self._cache, self._workers, first_id, last_id, self._memory_bytes
                )
            except FileNotFoundError as error:
                if self._lease.proves_loss(manifest_id):
                    raise CorruptError(str(error), 0, "a snapshot keeps it") from error
                continue  # compacted and collected while we looked
            if self._is_sound(manifest_id, first_id - 1):
                self._tail = tail
                self._show(manifest_id, Levels(manifest, self.bucket, self._cache))
                return
        raise UnavailableError("the WAL vanishes faster than it can be read; use a snapshot")

    def _take_in(self) -> None:
        """Read on in the WAL, up to the next gap."""
        after = self._tail.last_id
        while True:
            wal_id = self._tail.last_id + 1
            try:
                data = self.bucket.get(wal_name(wal_id))
            except FileNotFoundError:
                break
            info, rows = decode_sst(data, where=wal_name(wal_id))
            self._tail.add(layer_of(rows, wal_id), len(data), info.max_seq, info.writer_epoch)
        if self._is_sound(self.manifest_id, after):
            self._show(self.manifest_id, self._view.levels)
        else:
            self._move(self._open_newest())

    def _is_sound(self, manifest_id: int, after: int) -> bool:
        """Whether what was just read of the WAL behind `after` was what the writer wrote there.

        What is collected is not merely gone: a writer that was fenced long ago may wake up and
        write there again.  A snapshot prevents it; without one, what is compacted is not trusted.
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
            self._view, self.manifest_id = view, manifest_id

    def _tick(self) -> None:
        try:
            self.poll()
        except Exception as error:  # the state that was shown stays; this is tried again
            _LOG.warning("%r: could not keep up: %s", self.bucket, error)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise PoisonedError("the reader is closed")
