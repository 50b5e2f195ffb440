"""Jobs: they write SSTs that no manifest names yet, and one update adds these to a manifest.

1. A job is registered in a manifest before its first SST is written.  Ids from its base on are its
   own, with 32 random bits, so repeated or parallel tasks use different ids.
2. Garbage collection ignores every id from the smallest base of a live job on.
3. One update adds the SSTs to the manifest and marks the job as done.  A repeated commit finds the
   mark.
4. A job that is no longer registered cannot commit, and its SSTs are garbage: a newer compactor
   ended it, or it expired.
"""

from dataclasses import dataclass

from holdfast.errors import LeaseLostError
from holdfast.formats.manifest import BASE_STEP, Draft, JobKind, Manifest
from holdfast.formats.manifest import Job as Entry
from holdfast.runtime import Runtime

JOB_TTL_MS = 24 * 3600 * 1000
# Marks of done jobs are small, but a stream makes one for each batch.
_DONE_MAX = 64


@dataclass(frozen=True, slots=True)
class Job:
    """What a task needs to know of its job; ints and bytes only."""

    id: bytes
    base: int
    epoch: int  # the compactor's, or 0

    def new_sst_id(self, runtime: Runtime) -> int:
        """Return a new id; it is almost surely free, and creating the object proves it."""
        return self.base + 1 + runtime.new_id().int % (BASE_STEP - 1)


def begin(
    draft: "Draft[Manifest]", id: bytes, kind: JobKind, runtime: Runtime, *, epoch: int = 0
) -> None:
    """Register a job, unless it is registered: an update may run twice."""
    if any(entry.id == id for entry in draft.message.jobs):
        return
    now_ms = runtime.now_ms()
    draft.add_job(
        id, kind, started_ms=now_ms, expires_ms=now_ms + JOB_TTL_MS, compactor_epoch=epoch
    )


def find(manifest: Manifest, id: bytes) -> Job | None:
    """Return the job of this id, if it is registered and not done."""
    entry = _entry(manifest, id)
    return None if entry is None or entry.done else Job(id, entry.base, entry.compactor_epoch)


def is_known(manifest: Manifest, id: bytes) -> bool:
    """Return whether the job of this id is registered, or was committed a while ago."""
    return _entry(manifest, id) is not None


def is_done(manifest: Manifest, job: Job) -> bool:
    """Return whether the job's work is in this manifest, or was in one before it."""
    entry = _entry(manifest, job.id)
    return entry is not None and entry.done


def require(manifest: Manifest, job: Job) -> None:
    """Raise LeaseLostError unless the job may still commit."""
    found = find(manifest, job.id)
    if found is None or found.base != job.base:  # else it was ended, and another job has its id
        raise LeaseLostError("the job is no longer registered; start it again")


def finish(draft: "Draft[Manifest]", job: Job) -> None:
    """Mark as done; forget the oldest marks."""
    done = [entry for entry in draft.message.jobs if entry.done]
    for entry in done[: max(0, len(done) - _DONE_MAX + 1)]:
        draft.drop_job(entry.id)
    for entry in draft.message.jobs:
        if entry.id == job.id:
            entry.done = True


def drop_live(draft: "Draft[Manifest]", kind: JobKind) -> None:
    """End all jobs of a kind; those that are done keep their marks."""
    for entry in [entry for entry in draft.message.jobs if entry.kind == kind and not entry.done]:
        draft.drop_job(entry.id)


def first_live_id(manifest: Manifest) -> int:
    """Return the first SST id that may belong to a job that has not committed yet."""
    bases = [entry.base for entry in manifest.jobs if not entry.done]
    return min([*bases, manifest.next_sst_base])


def _entry(manifest: Manifest, id: bytes) -> Entry | None:
    return next((entry for entry in manifest.jobs if entry.id == id), None)
