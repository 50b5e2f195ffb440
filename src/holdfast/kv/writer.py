"""A key-value store on a bucket, open for writing.  The page: docs/kv.md

1. A write is acknowledged when it is in the WAL durably: no crash, no other writer and no garbage
   collection removes it.
2. There is one writer.  Opening the store fences the writer before, which then gets FencedError.
   Nothing that it acknowledged is lost, and nothing that it writes later is seen.
3. A view never changes.  This writer's reads see its own writes at once.
4. After a failed write nothing more is written until the store is reopened; what was acknowledged
   can still be read.
"""

import logging
from contextlib import suppress
from uuid import UUID

from holdfast.bucket.bucket import Bucket, HasReserve, room
from holdfast.errors import CorruptError, FencedError, NotOwnerError, UnavailableError
from holdfast.forks import disown_in_children
from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.batches import Batch, columns_of
from holdfast.kv.holders import record_lease
from holdfast.kv.maintenance import Maintenance, MaintenanceOptions
from holdfast.kv.memtable import (
    KEY_SIZE_MAX,
    ROW_OVERHEAD,
    VALUE_SIZE_MAX,
    checked_key,
    checked_value,
)
from holdfast.kv.opening import TakeOver, replay, see
from holdfast.kv.options import Options
from holdfast.kv.reader import Opened
from holdfast.kv.snapshots import Lease, Snapshot, Snapshots
from holdfast.kv.status import measure_reads, measure_writes
from holdfast.kv.tables import Cache, Levels, differ
from holdfast.kv.view import Current, PinnedView, View
from holdfast.kv.wal import WalWriter
from holdfast.kv.write_queue import WriteQueue
from holdfast.kv.writes import Flush, WriteHandle
from holdfast.metrics import Metric
from holdfast.runtime import Runtime

_LOG = logging.getLogger("holdfast")
_TOO_SLOW = "opening took longer than a snapshot lasts; open again"


class Kv(Opened):
    """The writer of a store.  Any number of threads may use it.

    >>> from holdfast.doors import open_kv
    >>> with open_kv("memory://example", create=True) as kv:
    ...     kv.put(b"user/1", b"Ada").result()
    ...     kv.write({b"user/2": b"Bob", b"user/1": None}).result()
    ...     list(kv.items(prefix=b"user/"))
    1
    3
    [(b'user/2', b'Bob')]
    """

    damage: tuple[str, ...] = ()  # a damaged store raises CorruptError; see `verify`
    recovered: tuple[str, ...] = ()  # what opening did

    def __init__(
        self,
        bucket: Bucket,
        options: Options | None = None,
        *,
        runtime: Runtime | None = None,
        maintain: MaintenanceOptions | bool = True,
        take_over: bool = True,
    ) -> None:
        """See holdfast.doors.open_kv."""
        super().__init__(bucket, "the kv store", runtime)
        self.options = options or Options()
        self._current = Current(self._handle, self.runtime, self.refresh)
        self._cache = Cache(self.options.cache_bytes_max, self.runtime)
        self._workers = self.runtime.workers(max(8, self.options.parallel_writes_max))
        self._lease = Lease(
            self.store, self.runtime, self.options.snapshot_ttl_ms, self._record_lease
        )
        self._refreshing = self.runtime.lock()
        self._maintenance: Maintenance | None = None
        if maintain:
            chosen = maintain if isinstance(maintain, MaintenanceOptions) else None
            self._maintenance = Maintenance(bucket, self.runtime, chosen)
        try:
            with room(bucket):
                self._take_over(guarded=not take_over)
            if isinstance(bucket, HasReserve):
                bucket.keep_reserve()
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
                self._tickers.append(self.runtime.ticker(self.options.watch_ms, self._maintain))

    def __repr__(self) -> str:
        refusal = self._handle.refusal
        state = f"writer {self._writer.tenure.epoch}" if refusal is None else str(refusal)
        return f"<Kv {self.bucket!r}: {state}>"

    # Writing

    def put(self, key: bytes, value: bytes) -> WriteHandle:
        """Set a key.  It can be read at once; it is durable when the handle's `result` returns."""
        if type(key) is not bytes or not 0 < len(key) <= KEY_SIZE_MAX:
            checked_key(key)
        if type(value) is not bytes or len(value) > VALUE_SIZE_MAX:
            checked_value(value)
        return self._queue.put(key, value, len(key) + len(value) + ROW_OVERHEAD)

    def delete(self, key: bytes) -> WriteHandle:
        """Delete a key; a missing one is fine."""
        return self._queue.put(checked_key(key), None, len(key) + ROW_OVERHEAD)

    def write(self, rows: Batch) -> WriteHandle:
        """Set several keys, and delete those whose value is None: all of it survives, or nothing.

        `rows` is a mapping, pairs of key and value, or anything with `__arrow_c_stream__` that has
        columns key and value, of a binary or string type.
        """
        return self._queue.put_all(*columns_of(rows))

    def flush(self, timeout: float | None = None) -> None:
        """Return when all earlier writes are durable; TimeoutError after `timeout` seconds."""
        self._queue.flush(timeout)

    # Reading

    def view(self, *, durable_only: bool = False) -> PinnedView:
        """Return a view of the current state; with `durable_only`, only of acknowledged writes."""
        with self._queue.lock:
            self._handle.check_read()
            self._queue.freeze()
            view = self._current.view
            skipped = len(self._queue.unwritten()) if durable_only else 1  # the active one
            kept = View(view.layers[skipped:], view.tables, view.levels)
            return PinnedView(kept, self._lease, self._current.manifest_id, self._handle)

    # Snapshots, and what is known of the store

    @property
    def snapshots(self) -> Snapshots:
        """Return the snapshots of this store, to list, extend and drop."""
        self._handle.check_read()
        return Snapshots(self.store, self.runtime)

    def snapshot(self, ttl_ms: float | None = 3_600_000) -> Snapshot:
        """Flush, and keep this state readable for `ttl_ms`; None keeps it until it is dropped."""
        self.flush()
        seen = self.last_wal_id
        return self.snapshots.create(ttl_ms, edit=lambda draft, _: see(draft, seen))

    @property
    def epoch(self) -> int:
        """Return the epoch of this writer; that of the next one is higher."""
        self._handle.check_read()
        return self._writer.tenure.epoch

    @property
    def wal_count(self) -> int:
        """Return how many SSTs of the WAL are not compacted, as far as this writer knows."""
        self._handle.check_read()
        return self._tail.wal_count

    def metrics(self) -> list[Metric]:
        """Return counters and gauges of this writer since it was opened."""
        refusal = self._handle.refusal
        if self._handle.is_closed or isinstance(refusal, NotOwnerError):
            self._handle.check_read()  # the numbers of a fenced writer can be read
        with self._queue.lock:
            epoch, written = self._writer.tenure.epoch, self._queue.seq - self._first_seq
            found = measure_writes(epoch, written, self._queue, self._tail, refusal)
            return [*found, *measure_reads(self._current, self._tail, self._cache)]

    def refresh(self) -> None:
        """Read the newest manifest and use its levels; FencedError if there is a new writer."""
        self._handle.check_read()
        with self._refreshing:
            before_ms = self.runtime.monotonic_ms()
            current = self.store.latest()
            self._compare(current and current[1].writer_epoch, before_ms)
            if (
                current
                and not differ(current[1], self._current.view.levels.manifest)
                and not self._lease.has_lapsed
            ):
                if not self._lease.is_due:
                    return
                with suppress(FileNotFoundError):  # a process with a faster clock dropped it
                    self._lease.renew()
                    return
            seen = self._tail.last_id
            manifest_id, manifest = self._lease.move(lambda draft, _: see(draft, seen))
            self._compare(manifest.writer_epoch, before_ms)
            self._show(manifest_id, manifest)

    def maintain(self) -> None:
        """Compact, and at times collect garbage.  A thread calls this every `watch_ms`, if enabled.

        An error is logged, and the work is tried again later; writes and reads continue.
        """
        self._handle.check_read()
        self._maintain()

    def _maintain(self) -> None:
        if self._maintenance is None or self._handle.refusal is not None:
            return
        try:
            while self._handle.refusal is None:
                with self._queue.lock:
                    manifest_id = self._current.manifest_id
                    manifest = self._current.view.levels.manifest
                    wal = self._tail.wal_count, self._tail.wal_bytes
                with room(self.bucket):
                    if not self._maintenance.step(manifest_id, manifest, *wal):
                        return
                self.refresh()
        except Exception as error:
            _LOG.warning("%s: could not compact or collect: %s", self.bucket, error)

    def close(self, *, maintain: bool = True) -> None:
        """Flush and close.  Raises if rows could not be flushed.  Afterwards: ClosedError.

        All rows are durable before this compacts for the next writer, if the WAL is long.  With
        `maintain=False`, or if this writer does no maintenance, it does not compact.
        """
        handle = self._handle
        if handle.is_closed:
            return
        if isinstance(handle.refusal, NotOwnerError):  # a fork: the parent closes the store
            handle.close()
            return
        try:
            if handle.refusal is None:
                self._queue.flush()
        finally:
            failure = handle.refusal
            self._queue.close()
            if self._maintenance is not None:
                self._maintenance.stop()
            for ticker in self._tickers:
                ticker.close()
            self._workers.close()
            if failure is None:
                try:
                    if maintain:
                        self._maintain_at_last()
                finally:
                    self._give_back()
            elif isinstance(failure, FencedError):
                self._give_back()  # else its snapshot keeps garbage until it expires
        if self._queue.has_lost and failure is not None:
            raise failure

    # Opening

    def _take_over(self, *, guarded: bool) -> None:
        options = self.options
        opening = TakeOver(
            self.bucket,
            self.store,
            self.runtime,
            self._lease,
            options.parallel_writes_max,
            guarded=guarded,
        )
        bump = opening.bump()
        last_id = opening.fence(bump)
        first_id = bump.manifest.wal_id_last_compacted + 1
        try:
            self._tail = replay(
                self.bucket, self._cache, self._workers, first_id, last_id, options.memory_bytes_max
            )
        except FileNotFoundError as error:
            if self._lease.keeps(bump.manifest_id):
                raise CorruptError(
                    str(error), 0, "missing, but a live snapshot needs it"
                ) from error
            raise UnavailableError(_TOO_SLOW) from error
        if not self._lease.keeps(bump.manifest_id):  # the ids that were read may be used again
            raise UnavailableError(_TOO_SLOW)
        opening.settle(bump)
        self._writer = WalWriter(self.bucket, self.runtime, bump.tenure)
        self._current.manifest_id = bump.manifest_id
        self._levels = Levels(bump.manifest, self.bucket, self._cache)
        self._queue = WriteQueue(
            options,
            self.runtime,
            self._handle,
            self._workers,
            first_id=last_id + 1,
            last_seq=max(bump.manifest.last_seq, self._tail.last_seq),
            write=self._writer.write,
            landed=self._landed,
            changed=self._rebuild,
        )
        self._first_seq = self._queue.seq
        if self._tail.layers or self._tail.tables:
            self.recovered = (f"read {self._tail.wal_count} SSTs of the WAL, up to {last_id}",)
        self._rebuild()

    # With the queue's lock held

    def _rebuild(self) -> None:
        layers = (*self._queue.unwritten(), *self._tail.layers)
        self._current.view = View(layers, self._tail.tables, self._levels)

    def _landed(self, flush: Flush) -> None:
        self._tail.add(flush.layer, flush.sst_size, flush.last_seq, self._writer.tenure.epoch)
        compacted = self._levels.manifest.wal_id_last_compacted
        if flush.wal_id <= compacted:  # the compactor was faster than our reply
            self._tail.drop(compacted)

    def disown(self) -> None:
        """See holdfast.forks."""
        if not self._handle.is_closed:
            why = "was opened by the process that this one is a fork of"
            advice = "open a reader here, or open the store again, which takes it over"
            self._queue.disown(NotOwnerError(f"{self._handle.name} {why}; {advice}"))

    # Keeping up

    def _record_lease(self, draft: Draft[Manifest], id: UUID) -> None:
        is_open = hasattr(self, "_writer")  # else this is the update that raises the epoch
        epoch = self._writer.tenure.epoch if is_open else draft.message.writer_epoch
        record_lease(draft, epoch, id)

    def _compare(self, epoch: int | None, before_ms: int) -> None:
        try:
            self._writer.tenure.compare(epoch, before_ms)
        except FencedError as error:
            self._queue.refuse(error)
            raise

    def _show(self, manifest_id: int, manifest: Manifest) -> None:
        levels = Levels(manifest, self.bucket, self._cache)
        with self._queue.lock:
            self._current.manifest_id, self._levels = manifest_id, levels
            self._tail.drop(manifest.wal_id_last_compacted)
            self._rebuild()

    def _watch(self) -> None:
        if self._handle.refusal is not None:
            return
        try:
            self.refresh()
        except Exception as error:  # it is tried again
            _LOG.warning("%s: could not refresh: %s", self.bucket, error)

    def _maintain_at_last(self) -> None:
        if self._maintenance is None or not self._maintenance.options.on_close:
            return
        try:
            with room(self.bucket):
                self._maintenance.finish(self._tail.wal_count)
        except Exception as error:  # the rows are durable, and the next writer compacts them
            _LOG.warning("%s: could not compact or collect: %s", self.bucket, error)

    def _give_back(self) -> None:
        job = self._maintenance.spare_id if self._maintenance else None

        def leave(draft: Draft[Manifest], manifest: Manifest) -> None:
            if manifest.writer_epoch == self._writer.tenure.epoch:
                see(draft, self._tail.last_id)
            if job is not None:
                draft.drop_job(job)

        try:
            with room(self.bucket):
                self._lease.release(leave)
        except UnavailableError as error:  # it will expire
            _LOG.warning("%s: a snapshot is left to expire: %s", self.bucket, error)
