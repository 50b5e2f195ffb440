"""The compactor: moves what was written from the WAL into levels, and levels into fewer runs.

1. There is one compactor.  Opening one raises the manifest's compactor epoch, which ends the jobs
   of older ones: their commits are refused with FencedError.
2. A compaction is planned, split into tasks, merged and committed.  Only the commit changes the
   store, and readers see the same rows as before.
3. A commit replaces exactly the SSTs that were merged.  SSTs that the writer or a bulk load added
   meanwhile stay.  If the merged SSTs are no longer in the manifest, it raises LeaseLostError.
4. A failure before the commit leaves only garbage.  The page: docs/kv-maintenance.md

    compactor = Compactor(bucket)                   takes over
    compactor.step(), .run_until_quiet()            all in this process; or in parts:
    compaction = compactor.begin(compactor.plan())
    tasks = compactor.tasks(compaction)             each to merge_task(bucket, task), anywhere
    compactor.commit(compaction, merged)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, FencedError, LeaseLostError
from holdfast.formats.manifest import Draft, JobKind, Manifest
from holdfast.kv import jobs
from holdfast.kv.commits import checked, list_wal, put_into_l0, replace_units, still_there
from holdfast.kv.jobs import Job
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions, Plan, plan, plan_everything, plan_wal
from holdfast.kv.tasks import Merged, StoppedError, Task, cut, merge_task
from holdfast.runtime import Runtime

_STEP_TRIES = 5


@dataclass(frozen=True, slots=True)
class Compaction:
    """A plan that a job works on."""

    job: Job
    plan: Plan


class Compactor:
    """The one compactor of a store: opening another fences this one.

    `step` and `run_until_quiet` do all of it in this process; `plan`, `begin`, `tasks` and `commit`
    are its parts, for merges in other processes.  One thread at a time may use it.
    """

    def __init__(
        self,
        bucket: Bucket,
        runtime: Runtime | None = None,
        options: CompactionOptions | None = None,
        *,
        go_on: Callable[[], bool] = lambda: True,
        merge: Callable[[Sequence[Task]], Sequence[Merged]] | None = None,
    ) -> None:
        """`go_on` is called again and again during a step: StoppedError if it returns False.

        `merge` has tasks carried out elsewhere.
        """
        self._go_on, self._merge = go_on, merge or self._merge_here
        self._bucket, self._runtime = bucket, runtime or Runtime()
        self._options = options or CompactionOptions()
        self._store = ManifestStore(bucket, self._runtime)
        self._spare: Job | None = self._take_over()
        self.epoch = self._spare.epoch

    @property
    def spare_id(self) -> bytes | None:
        """Return the id of the job that is registered for the next compaction, if there is one."""
        return self._spare.id if self._spare else None

    def plan(self, options: CompactionOptions | None = None) -> Plan | None:
        """Return the next compaction, or None."""
        manifest = self._store.current()[1]
        return plan(manifest, list_wal(self._bucket, manifest), options or self._options)

    def begin(self, plan: Plan) -> Compaction:
        """Register a job for a plan, so that its SSTs can be written.  Several may run at once."""
        job, self._spare = self._spare, None
        return Compaction(job or self._new_job(), plan)

    def tasks(self, compaction: Compaction) -> list[Task]:
        """Cut the work into tasks for merge_task; all of them are needed."""
        return cut(compaction.job, compaction.plan, self._options, self._bucket, self._runtime)

    def commit(self, compaction: Compaction, merged: Sequence[Merged]) -> Manifest:
        """Add the SSTs of all tasks in one manifest; a repeat changes nothing.

        FencedError: a newer compactor has taken over.  LeaseLostError: plan again.
        """
        job, ssts = compaction.job, checked(compaction.plan, merged)
        next_id = self._runtime.new_id().bytes if self._spare in (None, job) else None

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if jobs.is_done(manifest, job):
                return None
            self._refuse_if_fenced(manifest)
            jobs.require(manifest, job)
            draft = manifest.edit()
            if compaction.plan.is_wal:
                put_into_l0(draft, compaction.plan, ssts)
            else:
                replace_units(draft, manifest, compaction.plan, ssts, run_id=job.base)
            jobs.finish(draft, job)
            if next_id is not None:  # so a compaction costs one manifest, not two
                jobs.begin(draft, next_id, JobKind.COMPACTION, self._runtime, epoch=self.epoch)
            return draft.freeze()

        _, manifest = self._store.update(change)
        if next_id is not None:
            self._spare = jobs.find(manifest, next_id)
        return manifest

    def step(self, options: CompactionOptions | None = None) -> Plan | None:
        """Compact once in this process; return the plan that was carried out, or None."""
        return self._carry_out(lambda: self.plan(options))

    def run_until_quiet(self) -> int:
        """Compact until there is nothing to do; return the number of steps."""
        count = 0
        while self.step() is not None:
            count += 1
        return count

    def compact_everything(self) -> int:
        """Merge the WAL and all levels into one run; return the number of steps."""
        manifest = self._store.current()[1]
        last = max([wal_id for wal_id, _ in list_wal(self._bucket, manifest)], default=0)
        eager = replace(self._options, wal_count=1)

        def wal() -> Plan | None:
            now = self._store.current()[1]
            due = [sst for sst in list_wal(self._bucket, now) if sst[0] <= last]
            return plan_wal(now.wal_id_last_compacted + 1, due, eager)

        count = 0
        while self._carry_out(wal) is not None:
            count += 1
        return count + (
            self._carry_out(lambda: plan_everything(self._store.current()[1])) is not None
        )

    def _carry_out(self, make_plan: Callable[[], Plan | None]) -> Plan | None:
        """Plan and carry it out; again, if other processes were faster."""
        for attempt in range(_STEP_TRIES):
            found = make_plan()
            if found is None:
                return None
            compaction = self.begin(found)
            try:
                self._merge_and_commit(compaction)
            except LeaseLostError:
                self._spare = jobs.find(self._store.current()[1], compaction.job.id)
                if attempt + 1 == _STEP_TRIES:
                    raise
            else:
                return found
        raise AssertionError("the last try returns or raises")

    def _merge_and_commit(self, compaction: Compaction) -> None:
        try:
            tasks = self.tasks(compaction)
            merged = self._merge(tasks)
        except FileNotFoundError as error:
            manifest = self._store.current()[1]
            self._refuse_if_fenced(manifest)
            if not still_there(manifest, compaction.plan):
                raise LeaseLostError("the planned SSTs no longer exist; plan again") from None
            raise CorruptError("levels", 0, f"an SST is missing: {error}") from error
        finally:
            self._spare = compaction.job  # until it is committed it can serve again
        self.commit(compaction, merged)

    def _merge_here(self, tasks: Sequence[Task]) -> list[Merged]:
        merged = []
        for task in tasks:
            if not self._go_on():
                raise StoppedError
            merged.append(merge_task(self._bucket, task, self._runtime, self._go_on))
        return merged

    def _take_over(self) -> Job:
        def raise_epoch(draft: Draft[Manifest]) -> None:
            draft.message.compactor_epoch += 1
            jobs.drop_live(draft, JobKind.COMPACTION)

        return self._register(raise_epoch)

    def _new_job(self) -> Job:
        def refuse_if_fenced(draft: Draft[Manifest]) -> None:
            if draft.message.compactor_epoch != self.epoch:
                raise self._fenced(draft.message.compactor_epoch)

        return self._register(refuse_if_fenced)

    def _register(self, prepare: Callable[[Draft[Manifest]], None]) -> Job:
        id = self._runtime.new_id().bytes

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if jobs.find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            prepare(draft)
            epoch = draft.message.compactor_epoch
            jobs.begin(draft, id, JobKind.COMPACTION, self._runtime, epoch=epoch)
            return draft.freeze()

        job = jobs.find(self._store.update(change)[1], id)
        if job is None:
            raise LeaseLostError("the job was ended before it began")
        return job

    def _refuse_if_fenced(self, manifest: Manifest) -> None:
        if manifest.compactor_epoch != self.epoch:
            raise self._fenced(manifest.compactor_epoch)

    def _fenced(self, by: int) -> FencedError:
        return FencedError(f"compactor {self.epoch} was fenced: compactor {by} has taken over")
