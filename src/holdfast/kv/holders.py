"""Who writes to a store now, for those who do not want to take it over from a live writer.

A writer records itself in the manifest when it opens the store, with the snapshot that it renews.
It has ended if that snapshot was dropped or has expired, or if its process on this machine is dead.
A release that does not know this field can still take a store over: the guard protects from
programs that know it.
"""

from collections.abc import Iterable
from uuid import UUID

from holdfast.errors import LockedError
from holdfast.formats.manifest import Draft, Manifest, Writer
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.snapshots import Snapshot, listed
from holdfast.runtime import Runtime, to_rfc3339

CLOCK_SKEW_MAX_MS = 3600 * 1000  # the holder's clock may be behind ours


def record(draft: Draft[Manifest], runtime: Runtime) -> None:
    """Record this process as the writer of the manifest's epoch."""
    pid = runtime.process_id()
    draft.message.writer.CopyFrom(
        Writer(
            epoch=draft.message.writer_epoch,
            host=runtime.hostname(),
            pid=pid,
            process=runtime.process_mark(pid) or "",
            program=runtime.program(),
            opened_ms=runtime.now_ms(),
        )
    )


def record_lease(draft: Draft[Manifest], epoch: int, id: UUID) -> None:
    """Record which snapshot the writer of this epoch renews."""
    if draft.message.writer.epoch == epoch == draft.message.writer_epoch:
        draft.message.writer.lease = id.bytes


def refuse_if_held(store: ManifestStore, manifest: Manifest, runtime: Runtime) -> None:
    """Raise LockedError if a live writer has this store."""
    since_s = (runtime.now_ms() - CLOCK_SKEW_MAX_MS) / 1000
    live = [snapshot for snapshot in listed(manifest) if snapshot.expires_s >= since_s]
    writer = manifest.writer
    if writer is None:
        lease = _raised_epoch(store, manifest, live)
        who = "perhaps written by a process of an older release"
    else:
        lease = next((found for found in live if found.id.bytes == writer.lease), None)
        opened = to_rfc3339(writer.opened_ms // 1000 * 1000)
        who = f"written by pid {writer.pid} on {writer.host} ({writer.program}) since {opened}"
        if _is_dead(writer, runtime):
            return
    if lease is not None:
        free = to_rfc3339(lease.expires_s * 1000 + CLOCK_SKEW_MAX_MS)
        raise LockedError(
            f"the kv store is {who}; take_over=True or --take-over ends that writer; "
            f"the store is free when it closes, and at {free} at the latest"
        )


def _is_dead(writer: Writer, runtime: Runtime) -> bool:
    """Return whether the process is one of this machine that does not run any more."""
    here = (runtime.process_mark(runtime.process_id()) or "").rpartition(" ")[0]
    is_here = bool(here) and writer.process.rpartition(" ")[0] == here
    return is_here and runtime.process_mark(writer.pid) != writer.process


def _raised_epoch(
    store: ManifestStore, manifest: Manifest, live: Iterable[Snapshot]
) -> Snapshot | None:
    """Return a snapshot of the manifest in which the current epoch began: that of its writer."""
    for snapshot in live:
        try:
            before, after = store.get(snapshot.manifest_id - 1), store.get(snapshot.manifest_id)
        except FileNotFoundError:
            continue
        if before.writer_epoch < after.writer_epoch == manifest.writer_epoch:
            return snapshot
    return None
