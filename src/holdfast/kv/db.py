"""A key-value store on a bucket, open for writing.  The page: docs/kv.md

1. A write is acknowledged when it is in the WAL for good: no crash, no other writer and no garbage
   collection takes it away again.
2. There is one writer.  Who opens the store takes it over; the writer before gets FencedError, and
   nothing that it acknowledged is lost, nothing that it writes later is seen.
3. A view never changes.  This writer's reads see its own writes at once.
4. After a failed write nothing more is written until the store is reopened; what was acknowledged
   can still be read.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias

from holdfast.bucket.bucket import Bucket
from holdfast.bucket.open import open_bucket
from holdfast.errors import (
    CorruptError,
    FencedError,
    HoldfastError,
    NotOwnerError,
    PoisonedError,
    UnavailableError,
)
from holdfast.forks import disown_in_children
from holdfast.formats.manifest import Manifest
from holdfast.kv.flushes import Flush
from holdfast.kv.handles import WriteHandle
from holdfast.kv.leases import Lease
from holdfast.kv.levels import Levels
from holdfast.kv.maintenance import Maintenance, MaintenanceOptions
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import (
    KEY_SIZE_MAX,
    ROW_OVERHEAD,
    VALUE_SIZE_MAX,
    checked_key,
    checked_value,
)
from holdfast.kv.metrics import Counts, Metrics, measure
from holdfast.kv.opening import TakeOver, differ, replay, see
from holdfast.kv.options import Options
from holdfast.kv.reading import PinnedView, Reading
from holdfast.kv.snapshots import Snapshot, Snapshots
from holdfast.kv.tables import Cache
from holdfast.kv.view import View
from holdfast.kv.wal import WalWriter
from holdfast.kv.write_queue import WriteQueue
from holdfast.runtime import Runtime, cannot_be_sent

Batch: TypeAlias = "Mapping[bytes, bytes | None] | Iterable[tuple[bytes, bytes | None]]"

BATCH_SIZE_MAX = 2**30
_LOG = logging.getLogger("holdfast")


class Db(Reading):
    """The writer of a store.  Any number of threads may use it.

    >>> from holdfast.kv import Db
    >>> with Db.open("memory://example") as db:
    ...     db.put(b"user/1", b"Ada").result()
    ...     db.write({b"user/2": b"Bob", b"user/1": None}).result()
    ...     list(db.items(prefix=b"user/"))
    1
    3
    [(b'user/2', b'Bob')]
    """

    def __init__(
        self,
        bucket: Bucket,
        options: Options | None = None,
        *,
        create: bool = True,
        runtime: Runtime | None = None,
        maintain: MaintenanceOptions | bool = True,
    ) -> None:
        self.bucket, self.options = bucket, options or Options()
        self.runtime = runtime or Runtime()
        self.store = ManifestStore(bucket, self.runtime)
        self._cache = Cache(self.options.cache_bytes, self.runtime)
        self._workers = self.runtime.workers(max(8, self.options.max_parallel_writes))
        self._lease = Lease(self.store, self.runtime, self.options.snapshot_ttl_ms)
        self._refreshing = self.runtime.lock()
        self._maintenance: Maintenance | None = None
        if maintain:
            chosen = maintain if isinstance(maintain, MaintenanceOptions) else None
            self._maintenance = Maintenance(bucket, self.runtime, chosen)
        self._is_closed = False
        if create and self.store.latest() is None:
            self.store.create(self._first_manifest())
        try:
            self._take_over()
        except BaseException:
            self._workers.close()
            raise
        self._tickers = []
        disown_in_children(self)
        if self.options.flush_ms is not None:
            self._tickers.append(self.runtime.ticker(self.options.flush_ms, self._queue.tick))
        if self.options.watch_ms is not None:
            self._tickers.append(self.runtime.ticker(self.options.watch_ms, self._watch))
            if self._maintenance is not None:
                self._tickers.append(self.runtime.ticker(self.options.watch_ms, self.maintain))

    @classmethod
    def open(
        cls,
        where: str | Bucket,
        options: Options | None = None,
        *,
        create: bool = True,
        runtime: Runtime | None = None,
        maintain: MaintenanceOptions | bool = True,
        **settings: Any,
    ) -> "Db":
        """Take the store at a URL, a path or in a bucket over; with `create`, make it if need be.

        `settings` are fields of Options.  With `maintain`, this process also compacts the store
        and collects garbage, in a thread of its own, unless `watch_ms` is None.
        """
        bucket = open_bucket(where) if isinstance(where, str) else where
        chosen = replace(options or Options(), **settings)
        return cls(bucket, chosen, create=create, runtime=runtime, maintain=maintain)

    __reduce__ = cannot_be_sent

    # Writing

    def put(self, key: bytes, value: bytes) -> WriteHandle:
        """Set a key.  It can be read at once; it is durable when the handle's `result` returns."""
        if type(key) is not bytes or not 0 < len(key) <= KEY_SIZE_MAX:
            checked_key(key)
        if type(value) is not bytes or len(value) > VALUE_SIZE_MAX:
            checked_value(value)
        return self._queue.put(key, value, len(key) + len(value) + ROW_OVERHEAD)

    def delete(self, key: bytes) -> WriteHandle:
        """Remove a key, whether or not it is there."""
        return self._queue.put(checked_key(key), None, len(key) + ROW_OVERHEAD)

    def write(self, batch: Batch) -> WriteHandle:
        """Set several keys, remove those whose value is None: all of it survives, or nothing."""
        rows = list(batch.items() if isinstance(batch, Mapping) else batch)
        if not rows:
            raise ValueError("a batch without rows")
        size = _checked_size(rows)
        if size > BATCH_SIZE_MAX:
            raise ValueError(f"a batch of {size} bytes; the most is {BATCH_SIZE_MAX}")
        return self._queue.put_all(rows, size)

    def flush(self, timeout: float | None = None) -> None:
        """Return when all that was written before is durable."""
        self._queue.flush(timeout)

    # Reading

    def get(self, key: bytes) -> bytes | None:
        """The value of a key as it is now, durable or not; None if there is none."""
        if self._queue.refusal is not None:
            self._refuse_if_useless()
        self._counts.gets += 1
        return super().get(key)

    def view(self, *, durable_only: bool = False) -> PinnedView:
        """The store as it is now, to read at leisure; with `durable_only`, what is acknowledged."""
        with self._queue.lock:
            self._refuse_if_useless()
            self._queue.freeze()
            view = self._view
            skipped = len(self._queue.unwritten()) if durable_only else 1  # the active one
            kept = View(view.layers[skipped:], view.tables, view.levels)
            return PinnedView(kept, self._lease, self._manifest_id)

    # Snapshots, and keeping up

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of this store, to list, extend and drop."""
        return Snapshots(self.store, self.runtime)

    def snapshot(self, ttl_s: float | None = 3600) -> Snapshot:
        """Flush, and keep this state readable for so long; for ever if None."""
        self.flush()
        seen = self.last_wal_id
        return self.snapshots.create(ttl_s, edit=lambda draft, _: see(draft, seen))

    @property
    def last_wal_id(self) -> int:
        """The last SST of the WAL up to which all are written."""
        return self._tail.last_id

    @property
    def epoch(self) -> int:
        return self._writer.tenure.epoch

    @property
    def manifest(self) -> Manifest:
        """The manifest whose levels are read."""
        return self._view.levels.manifest

    @property
    def wal_count(self) -> int:
        """How many SSTs of the WAL are not compacted, as far as this writer knows."""
        return self._tail.wal_count

    def metrics(self) -> Metrics:
        """What this writer has done so far, and holds."""
        with self._queue.lock:
            return measure(self.epoch, self._counts, self._queue, self._tail, self._cache)

    def refresh(self) -> None:
        """Look at the newest manifest: read what was compacted from there, notice a new writer."""
        if isinstance(self._queue.refusal, NotOwnerError):
            raise self._queue.refusal
        with self._refreshing:
            before_ms = self.runtime.monotonic_ms()
            current = self.store.latest()
            self._compare(current and current[1].writer_epoch, before_ms)
            if current and not differ(current[1], self.manifest) and not self._lease.has_lapsed:
                if not self._lease.is_due:
                    return
                with suppress(FileNotFoundError):  # it was dropped, by a clock before ours
                    self._lease.renew()
                    return
            seen = self.last_wal_id
            manifest_id, manifest = self._lease.move(lambda draft, _: see(draft, seen))
            self._compare(manifest.writer_epoch, before_ms)
            self._show(manifest_id, manifest)

    def maintain(self) -> None:
        """Compact what has gathered, and now and then collect garbage; done by itself, if it is on.

        What fails is told in the log and tried again: it keeps nobody from writing or reading.
        """
        if self._maintenance is None or self._queue.refusal is not None:
            return
        try:
            with self._queue.lock:
                known = self.manifest, self._tail.wal_count, self._tail.wal_bytes
            if self._maintenance.step(*known):
                self.refresh()
        except Exception as error:
            _LOG.warning("%r: could not compact or collect: %s", self.bucket, error)

    def close(self) -> None:
        """Flush, and let the store go.  What could not be flushed is an error."""
        if self._is_closed:
            return
        if isinstance(self._queue.refusal, NotOwnerError):  # a fork: the parent closes the store
            self._is_closed = True
            return
        try:
            if self._queue.refusal is None:
                self._queue.flush()
        finally:
            failure = self._queue.refusal
            self._is_closed = True
            self._queue.refuse(PoisonedError("the store is closed"))
            if self._maintenance is not None:
                self._maintenance.stop()
            for ticker in self._tickers:
                ticker.close()
            self._workers.close()
            if failure is None:
                self._give_back()
        if self._queue.has_lost and failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except HoldfastError:
            if error is None:  # else the error that ended the block is the one to tell
                raise

    # Opening

    def _take_over(self) -> None:
        options = self.options
        opening = TakeOver(
            self.bucket, self.store, self.runtime, self._lease, options.max_parallel_writes
        )
        bump = opening.bump()
        last_id = opening.fence(bump)
        first_id = bump.manifest.wal_id_last_compacted + 1
        try:
            self._tail = replay(
                self.bucket, self._cache, self._workers, first_id, last_id, options.memory_bytes
            )
        except FileNotFoundError as error:
            if not self._lease.has_lapsed:
                raise CorruptError(str(error), 0, "a snapshot keeps it, but it is gone") from error
        if self._lease.has_lapsed:  # what we read may be collected, and ids of it written again
            raise UnavailableError("opening took longer than a snapshot lasts; open again")
        opening.settle(bump)
        self._writer = WalWriter(self.bucket, self.runtime, bump.tenure)
        self._manifest_id = bump.manifest_id
        self._levels = Levels(bump.manifest, self.bucket, self._cache)
        self._queue = WriteQueue(
            options,
            self.runtime,
            self._workers,
            first_id=last_id + 1,
            last_seq=max(bump.manifest.last_seq, self._tail.last_seq),
            write=self._writer.write,
            landed=self._landed,
            changed=self._rebuild,
        )
        self._counts = Counts(self._queue.seq)
        self._rebuild()

    def _first_manifest(self) -> Manifest:
        return Manifest.create(
            created_ms=self.runtime.now_ms(), gc_min_age_ms=self.options.gc_min_age_ms
        )

    # With the queue's lock held

    def _rebuild(self) -> None:
        layers = (*self._queue.unwritten(), *self._tail.layers)
        self._view = View(layers, self._tail.tables, self._levels)

    def _landed(self, flush: Flush) -> None:
        self._counts.add_flush(flush.sst_size)
        self._tail.add(flush.layer, flush.sst_size, flush.last_seq, self.epoch)
        compacted = self._levels.manifest.wal_id_last_compacted
        if flush.wal_id <= compacted:  # the compactor was faster than the reply to us
            self._tail.drop(compacted)

    def _refuse_if_useless(self) -> None:
        """What was acknowledged can be read from a poisoned store, not from one that moved on."""
        refusal = self._queue.refusal
        is_final = isinstance(refusal, FencedError | NotOwnerError)
        if refusal is not None and (is_final or self._is_closed):
            raise refusal

    def disown(self) -> None:
        """See holdfast.forks."""
        why = "was opened by the process that this one is a fork of"
        advice = "open a reader here, or open the store again, which takes it over"
        self._queue.disown(NotOwnerError(f"{self.bucket!r} {why}; {advice}"))

    # Keeping up

    def _compare(self, epoch: int | None, before_ms: int) -> None:
        try:
            self._writer.tenure.compare(epoch, before_ms)
        except FencedError as error:
            self._queue.refuse(error)
            raise

    def _show(self, manifest_id: int, manifest: Manifest) -> None:
        levels = Levels(manifest, self.bucket, self._cache)
        with self._queue.lock:
            self._manifest_id, self._levels = manifest_id, levels
            self._tail.drop(manifest.wal_id_last_compacted)
            self._rebuild()

    def _watch(self) -> None:
        if self._queue.refusal is not None:
            return
        try:
            self.refresh()
        except Exception as error:  # puts and gets tell their own; this one is tried again
            _LOG.warning("%r: could not look after the store: %s", self.bucket, error)

    def _give_back(self) -> None:
        try:
            self._lease.release(lambda draft, _: see(draft, self.last_wal_id))
        except UnavailableError as error:  # it will expire
            _LOG.warning("%r: a snapshot is left to expire: %s", self.bucket, error)


def _checked_size(rows: Sequence[tuple[bytes, bytes | None]]) -> int:
    """What the rows take in memory, if every one of them can be written."""
    size = ROW_OVERHEAD * len(rows)
    for key, value in rows:
        if type(key) is not bytes or not 0 < len(key) <= KEY_SIZE_MAX:
            checked_key(key)
        size += len(key)
        if value is not None:
            if type(value) is not bytes or len(value) > VALUE_SIZE_MAX:
                checked_value(value)
            size += len(value)
    return size
