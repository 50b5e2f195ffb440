"""Bulk loads: SSTs that tasks write in any process, and that one commit adds to the store.

1. Tasks write sorted rows (a null value deletes) as SSTs of a registered job.  Readers do not see
   them.
2. The commit puts them on top of all levels, in one manifest: as one run, or as several where
   they overlap.  So a reader sees all of the load or nothing of it.
3. A write that was acknowledged before the commit started is older than the load.  A write that is
   acknowledged after the commit has returned is newer.  A write in between is newer if its SST is
   not among the contiguous ids of the WAL when the commit starts.  For that the commit first moves
   these SSTs into L0, and L0 below the load: the order of sources decides, and the WAL is above all
   levels.
4. Loaded rows have the sequence number that the levels had reached when the load began.  It is
   below those of the WAL, so a load uses no number of the writer.
5. With a transaction (a stream's name and a batch's number) the same manifest records the batch.
   A recorded batch, or an older one, changes nothing: a replayed batch is loaded once.

    load = BulkLoad(bucket, transaction=("query", 7))
    if not load.is_committed:
        ssts = write_sorted(bucket, load.job, chunks)       in any process, for disjoint ranges
        load.commit(ssts)

In a load of many processes, each opens BulkLoad(bucket, id=ID) with the same id, and the first
registers it.  One process collects the SSTs of all and commits with BulkLoad(bucket, job=JOB).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, LeaseLostError
from holdfast.formats.manifest import Draft, JobKind, Manifest
from holdfast.formats.sst import Rows
from holdfast.formats.sst.block import Compression
from holdfast.formats.sst.rows import numbers
from holdfast.kv import jobs
from holdfast.kv.commits import checked, list_wal, newest_wal, put_into_l0, put_on_top
from holdfast.kv.jobs import Job
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions, Plan, plan_wal
from holdfast.kv.tasks import SstMeta, SstSink, cut, merge_task
from holdfast.runtime import Runtime

Flush = list[tuple[Plan, tuple[SstMeta, ...]]]
_FLUSHES_MAX = 100


@dataclass(frozen=True, slots=True)
class BulkJob:
    """What a task needs to write for a load; ints, bytes and texts."""

    job: Job
    seq: int
    sst_size: int
    block_size: int
    compression: Compression


class _WalMovedError(Exception):
    """Another compactor has compacted the WAL, but not far enough."""


def write_sorted(
    bucket: Bucket, job: BulkJob, chunks: Iterable[Rows], runtime: Runtime | None = None
) -> list[SstMeta]:
    """Write rows whose keys rise over all chunks; durable, and invisible until the commit.

    This assigns sequence numbers; those of the rows are ignored.  ValueError if keys do not rise.
    """
    sink = SstSink(
        bucket, job.job, runtime or Runtime(), job.sst_size, job.block_size, job.compression
    )
    for rows in chunks:
        sink.add(Rows(rows.keys, rows.values, numbers(np.full(len(rows), job.seq, np.uint64))))
    return sink.finish()


def abandon(bucket: Bucket, id: bytes, runtime: Runtime) -> None:
    """Abandon the load of this id, if it is registered and not committed."""

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        if jobs.find(manifest, id) is None:
            return None
        draft = manifest.edit()
        draft.drop_job(id)
        return draft.freeze()

    ManifestStore(bucket, runtime).update(change)


class BulkLoad:
    """A load: registered here, written in any process, committed once.

    It expires after a day; then its commit raises LeaseLostError.
    """

    def __init__(
        self,
        bucket: Bucket,
        runtime: Runtime | None = None,
        options: CompactionOptions | None = None,
        *,
        transaction: tuple[str, int] | None = None,
        id: bytes | None = None,
        job: BulkJob | None = None,
    ) -> None:
        """`id` (16 bytes) is for a load that several processes share; `job` continues a registered
        one.
        """
        self._bucket, self._runtime = bucket, runtime or Runtime()
        self._options, self._transaction = options or CompactionOptions(), transaction
        self._store = ManifestStore(bucket, self._runtime)
        self._job = job or self._register(id or self._runtime.new_id().bytes)

    @property
    def is_committed(self) -> bool:
        """Return whether the store had the batch before this load; then write nothing."""
        return self._job is None

    @property
    def job(self) -> BulkJob:
        """Return the job, for write_sorted."""
        if self._job is None:
            raise ValueError("this batch is in the store already")
        return self._job

    def commit(self, ssts: Iterable[SstMeta]) -> bool:
        """Commit the load; return whether it changed anything.  A repeat changes nothing.

        False: the store had the batch already.  LeaseLostError: the load has expired.
        """
        return self.commit_runs([ssts])

    def commit_runs(self, runs: Iterable[Iterable[SstMeta]]) -> bool:
        """Commit several runs, the newest first: if a key is in two runs, the newer row stays."""
        if self._job is None:
            return False
        in_order = [found for run in runs if (found := _in_order(run))]
        manifest, wal = newest_wal(self._bucket, self._store)
        last = wal[-1][0] if wal else manifest.wal_id_last_compacted
        for _ in range(_FLUSHES_MAX):
            try:
                return self._commit(in_order, self._flush(manifest, last), last)
            except _WalMovedError:
                manifest = self._store.current()[1]
        raise LeaseLostError("the WAL was compacted again and again during the commit; load again")

    def abandon(self) -> None:
        """Abandon the load, unless it is committed; its SSTs are garbage then."""
        if self._job is not None:
            abandon(self._bucket, self._job.job.id, self._runtime)

    def _commit(self, runs: Sequence[Sequence[SstMeta]], flushes: Flush, last: int) -> bool:
        job, applied = self.job.job, False

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            nonlocal applied
            applied = jobs.is_done(manifest, job)
            if applied or self._is_noted(manifest):
                return None
            jobs.require(manifest, job)
            draft = manifest.edit()
            self._put(draft, manifest, runs, flushes, last)
            applied = True
            return draft.freeze()

        self._store.update(change)
        if not applied:
            self.abandon()
        return applied

    def _put(
        self,
        draft: Draft[Manifest],
        manifest: Manifest,
        runs: Sequence[Sequence[SstMeta]],
        flushes: Flush,
        last: int,
    ) -> None:
        """Add the WAL up to `last`, then the load, unless that much is compacted already."""
        if manifest.wal_id_last_compacted < last:
            if not flushes or flushes[0][0].wal_first != manifest.wal_id_last_compacted + 1:
                raise _WalMovedError
            for plan, flushed in flushes:
                put_into_l0(draft, plan, flushed)
        for ssts in reversed(runs):
            put_on_top(draft, ssts, run_id=ssts[0].id)
        if self._transaction is not None:
            draft.set_transaction(*self._transaction)
        jobs.finish(draft, self.job.job)

    def _flush(self, manifest: Manifest, last: int) -> Flush:
        """Merge the WAL up to `last` into SSTs for L0, the oldest first."""
        eager = replace(self._options, wal_count=1)
        wal = [sst for sst in list_wal(self._bucket, manifest) if sst[0] <= last]
        flushes: Flush = []
        while (plan := plan_wal(_next(manifest, flushes), wal, eager)) is not None:
            tasks = cut(self.job.job, plan, eager, self._bucket, self._runtime)
            try:
                merged = [merge_task(self._bucket, task, self._runtime) for task in tasks]
            except FileNotFoundError as error:
                if self._store.current()[1].wal_id_last_compacted > manifest.wal_id_last_compacted:
                    raise _WalMovedError from None  # compacted and collected while we read
                raise CorruptError("wal", 0, f"an SST is missing: {error}") from error
            flushes.append((plan, tuple(checked(plan, merged))))
            wal = [sst for sst in wal if sst[0] > plan.wal_last]
        return flushes

    def _register(self, id: bytes) -> BulkJob | None:
        options = self._options

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if self._is_noted(manifest) or jobs.is_known(manifest, id):
                return None
            draft = manifest.edit()
            jobs.begin(draft, id, JobKind.BULK_LOAD, self._runtime)
            return draft.freeze()

        _, manifest = self._store.update(change)
        job = jobs.find(manifest, id)
        if job is None:
            return None
        return BulkJob(
            job, manifest.last_seq, options.sst_size, options.block_size, options.compression
        )

    def _is_noted(self, manifest: Manifest) -> bool:
        """Return whether the store has the batch of the transaction, or a later one."""
        if self._transaction is None:
            return False
        query_id, batch_id = self._transaction
        return any(
            noted.query_id == query_id and noted.batch_id >= batch_id
            for noted in manifest.transactions
        )


def _in_order(ssts: Iterable[SstMeta]) -> list[SstMeta]:
    found = sorted(ssts, key=lambda sst: sst.info.first_key)
    for sst, after in pairwise(found):
        if sst.info.last_key >= after.info.first_key:
            raise ValueError(
                f"two SSTs of the load have key {after.info.first_key!r}; "
                "the ranges of its tasks must not overlap"
            )
    return found


def _next(manifest: Manifest, flushes: Flush) -> int:
    return (flushes[-1][0].wal_last if flushes else manifest.wal_id_last_compacted) + 1
