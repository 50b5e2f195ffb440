"""Jobs: who writes SSTs that no manifest names yet, and how their work enters it, once.

1. A job is registered in a manifest before its first SST is written.  Ids from its base on are its
   own: 32 bits of chance, so tasks that are repeated, or run twice at once, never meet.
2. Garbage collection leaves alone every id from the smallest base of a live job on.
3. The work enters the manifest in one update, which also marks the job as done.  Whoever repeats
   the commit finds the mark.
4. A job that is not registered any more cannot commit, and what it wrote is garbage: a newer
   compactor ended it, or it expired.
"""

from dataclasses import dataclass

from holdfast.errors import JobLostError
from holdfast.formats.manifest import BASE_STEP, Draft, JobKind, Manifest
from holdfast.formats.manifest import Job as Entry
from holdfast.runtime import Runtime

JOB_TTL_MS = 24 * 3600 * 1000
# Marks of done jobs are small, but a stream makes one for each batch.
_DONE_MAX = 64


@dataclass(frozen=True, slots=True)
class Job:
    """What tasks need to know of the job they work for; ints and bytes only."""

    id: bytes
    base: int
    epoch: int  # the compactor's, or 0

    def new_sst_id(self, runtime: Runtime) -> int:
        """An id that hardly anybody else has taken; creating the object tells."""
        return self.base + 1 + runtime.new_id().int % (BASE_STEP - 1)


def begin(
    draft: "Draft[Manifest]", id: bytes, kind: JobKind, runtime: Runtime, *, epoch: int = 0
) -> None:
    """Register a job, unless it is there: an update may be made twice."""
    if any(entry.id == id for entry in draft.message.jobs):
        return
    now_ms = runtime.now_ms()
    draft.add_job(
        id, kind, started_ms=now_ms, expires_ms=now_ms + JOB_TTL_MS, compactor_epoch=epoch
    )


def find(manifest: Manifest, id: bytes) -> Job | None:
    """The job of this id, if it is registered and not done."""
    entry = _entry(manifest, id)
    return None if entry is None or entry.done else Job(id, entry.base, entry.compactor_epoch)


def is_known(manifest: Manifest, id: bytes) -> bool:
    """Whether the job of this id is registered, or was committed a while ago."""
    return _entry(manifest, id) is not None


def is_done(manifest: Manifest, job: Job) -> bool:
    """Whether the job's work is in this manifest, or was in one before it."""
    entry = _entry(manifest, job.id)
    return entry is not None and entry.done


def require(manifest: Manifest, job: Job) -> None:
    """JobLostError unless the job may still commit."""
    found = find(manifest, job.id)
    if found is None or found.base != job.base:  # else it was ended, and another took its name
        raise JobLostError("the job is not registered any more; begin it again")


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
    """SSTs from this id on may belong to a job that has yet to commit."""
    bases = [entry.base for entry in manifest.jobs if not entry.done]
    return min([*bases, manifest.next_sst_base])


def _entry(manifest: Manifest, id: bytes) -> Entry | None:
    return next((entry for entry in manifest.jobs if entry.id == id), None)
