"""Add written SSTs to a manifest.  Each change keeps the rows that readers see, or adds newer ones.

L0 and the runs below it are one list of units, newest first, and an SST of L0 is a run of one.

    put_into_l0       the WAL's oldest SSTs, merged, become the newest unit
    replace_units     neighbours become one run in their place
    put_on_top        a bulk load becomes the newest unit, above all of the levels
"""

from collections.abc import Sequence
from itertools import accumulate

from holdfast.bucket.bucket import Bucket
from holdfast.errors import LeaseLostError
from holdfast.formats.manifest import Draft, Manifest, describe
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import WAL, contiguous, id_of, wal_name
from holdfast.kv.plans import Plan, WalSst
from holdfast.kv.tasks import Merged, SstMeta


def list_wal(bucket: Bucket, manifest: Manifest) -> list[WalSst]:
    """Return ids and sizes of the WAL's SSTs that are not compacted."""
    found = bucket.list(WAL, after=wal_name(manifest.wal_id_last_compacted))
    return [(wal_id, info.size) for info in found if (wal_id := id_of(info.name)) is not None]


def newest_wal(bucket: Bucket, store: ManifestStore) -> tuple[Manifest, list[WalSst]]:
    """Return a manifest that was current, and the WAL above it, up to its first gap.

    All that was acknowledged, in order, is in them.  A list that was made after a newer manifest
    may begin with a gap, where garbage collection was: it would look as if the WAL had ended there.
    """
    manifest = store.current()[1]
    while True:
        first = manifest.wal_id_last_compacted + 1
        wal = list_wal(bucket, manifest)
        before, manifest = manifest, store.current()[1]
        if manifest.wal_id_last_compacted == before.wal_id_last_compacted:
            last = contiguous(first, (wal_id for wal_id, _ in wal))
            return manifest, wal[: last - first + 1]


def checked(plan: Plan, merged: Sequence[Merged]) -> list[SstMeta]:
    """Return the SSTs in key order.  ValueError unless every task is there once, with all rows."""
    in_order = sorted(merged, key=lambda task: task.number)
    count = in_order[0].count if in_order else 1
    if [task.number for task in in_order] != list(range(count)):
        raise ValueError(f"tasks {[task.number for task in in_order]} of {count}; each is needed")
    row_count = sum(task.row_count for task in in_order)
    if plan.row_count not in (None, row_count):
        raise ValueError(f"the tasks have read {row_count} rows of {plan.row_count}")
    return [sst for task in in_order for sst in task.ssts]


def put_into_l0(draft: Draft[Manifest], plan: Plan, ssts: Sequence[SstMeta]) -> None:
    """Mark the WAL up to `plan.wal_last` as compacted.  No SSTs: it held only fences."""
    message = draft.message
    if message.wal_id_last_compacted + 1 != plan.wal_first:
        raise LeaseLostError("another compactor has compacted the WAL; plan again")
    for sst in ssts:
        draft.add_l0(describe(sst.id, sst.info))
    message.wal_id_last_compacted = plan.wal_last
    message.wal_id_last_seen = max(message.wal_id_last_seen, plan.wal_last)
    message.last_seq = max([message.last_seq, *(sst.info.max_seq for sst in ssts)])


def still_there(manifest: Manifest, plan: Plan) -> bool:
    """Return whether all SSTs of the plan are still in the manifest."""
    if plan.is_wal:
        return manifest.wal_id_last_compacted + 1 == plan.wal_first
    return _place(manifest, plan) is not None


def replace_units(
    draft: Draft[Manifest], manifest: Manifest, plan: Plan, ssts: Sequence[SstMeta], *, run_id: int
) -> None:
    """Put one run, or none if no row is left, where the merged units were."""
    place = _place(manifest, plan)
    if place is None:
        raise LeaseLostError("the merged SSTs are no longer in the manifest; plan again")
    newer_runs = sum(start < place for start in _run_starts(manifest)[:-1])
    draft.remove_ssts(plan.sst_ids)
    if ssts:
        draft.add_run(run_id, [describe(sst.id, sst.info) for sst in ssts], at=newer_runs)


def put_on_top(draft: Draft[Manifest], ssts: Sequence[SstMeta], *, run_id: int) -> None:
    """Add a run that is newer than all levels.  L0 stays below it, as runs of one SST each."""
    # Copies: an object that is removed from a message is no longer valid.
    count = len(draft.message.leveled_ssts) - sum(r.sst_count for r in draft.message.sorted_runs)
    l0 = [
        type(sst).FromString(sst.SerializeToString()) for sst in draft.message.leveled_ssts[:count]
    ]
    draft.remove_ssts([sst.id for sst in l0])
    for sst in reversed(l0):
        draft.add_run(sst.id, [sst])
    draft.add_run(run_id, [describe(sst.id, sst.info) for sst in ssts])


def _place(manifest: Manifest, plan: Plan) -> int | None:
    """Return where the planned SSTs begin in the manifest; None unless they are whole units."""
    ids: list[int] = manifest.sst_ids.tolist()
    if not plan.sst_ids or plan.sst_ids[0] not in ids:
        return None
    start = ids.index(plan.sst_ids[0])
    stop = start + len(plan.sst_ids)
    starts = _run_starts(manifest)
    begins_unit = start < manifest.l0_count or start in starts
    whole = begins_unit and stop in starts and ids[start:stop] == list(plan.sst_ids)
    return start if whole else None


def _run_starts(manifest: Manifest) -> list[int]:
    """Return where the runs begin in the manifest's list, and where the list ends."""
    return list(accumulate((len(run) for run in manifest.runs), initial=manifest.l0_count))
