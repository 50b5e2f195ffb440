"""How written SSTs enter a manifest.  Each move keeps what every reader sees, or adds to its top.

L0 and the runs below it are one list of units, newest first, and an SST of L0 is a run of one.

    put_into_l0       the WAL's oldest SSTs, merged, become the newest unit
    replace_units     neighbours become one run in their place
    put_on_top        a bulk load becomes the newest unit, above all of the levels
"""

from collections.abc import Sequence
from itertools import accumulate

from holdfast.bucket.bucket import Bucket
from holdfast.errors import JobLostError
from holdfast.formats.manifest import Draft, Manifest, describe
from holdfast.kv.names import WAL, id_of, wal_name
from holdfast.kv.plans import Plan, WalSst
from holdfast.kv.tasks import Merged, SstMeta


def list_wal(bucket: Bucket, manifest: Manifest) -> list[WalSst]:
    """Ids and sizes of the WAL's SSTs that are not compacted."""
    found = bucket.list(WAL, after=wal_name(manifest.wal_id_last_compacted))
    return [(wal_id, info.size) for info in found if (wal_id := id_of(info.name)) is not None]


def checked(plan: Plan, merged: Sequence[Merged]) -> list[SstMeta]:
    """The SSTs in key order.  ValueError unless every task is there, once, with all rows."""
    in_order = sorted(merged, key=lambda task: task.number)
    count = in_order[0].count if in_order else 1
    if [task.number for task in in_order] != list(range(count)):
        raise ValueError(f"tasks {[task.number for task in in_order]} of {count}; each is needed")
    row_count = sum(task.row_count for task in in_order)
    if plan.row_count not in (None, row_count):
        raise ValueError(f"the tasks have read {row_count} rows of {plan.row_count}")
    return [sst for task in in_order for sst in task.ssts]


def put_into_l0(draft: Draft[Manifest], plan: Plan, ssts: Sequence[SstMeta]) -> None:
    """The WAL up to `plan.wal_last` is compacted.  No SSTs: it held nothing but fences."""
    message = draft.message
    if message.wal_id_last_compacted + 1 != plan.wal_first:
        raise JobLostError("the WAL was compacted by another; plan again")
    for sst in ssts:
        draft.add_l0(describe(sst.id, sst.info))
    message.wal_id_last_compacted = plan.wal_last
    message.wal_id_last_seen = max(message.wal_id_last_seen, plan.wal_last)
    message.last_seq = max([message.last_seq, *(sst.info.max_seq for sst in ssts)])


def still_there(manifest: Manifest, plan: Plan) -> bool:
    """Whether all that was to be merged is as it was."""
    if plan.is_wal:
        return manifest.wal_id_last_compacted + 1 == plan.wal_first
    return _place(manifest, plan) is not None


def replace_units(
    draft: Draft[Manifest], manifest: Manifest, plan: Plan, ssts: Sequence[SstMeta], *, run_id: int
) -> None:
    """One run, or none if no row is left, where the merged units were."""
    place = _place(manifest, plan)
    if place is None:
        raise JobLostError("the merged SSTs are not in the manifest as they were; plan again")
    newer_runs = sum(start < place for start in _run_starts(manifest)[:-1])
    draft.remove_ssts(plan.sst_ids)
    if ssts:
        draft.add_run(run_id, [describe(sst.id, sst.info) for sst in ssts], at=newer_runs)


def put_on_top(draft: Draft[Manifest], ssts: Sequence[SstMeta], *, run_id: int) -> None:
    """A run that is newer than all levels.  L0 stays below it, as runs of one SST each."""
    # Copies: what is removed from a message is gone.
    count = len(draft.message.leveled_ssts) - sum(r.sst_count for r in draft.message.sorted_runs)
    l0 = [
        type(sst).FromString(sst.SerializeToString()) for sst in draft.message.leveled_ssts[:count]
    ]
    draft.remove_ssts([sst.id for sst in l0])
    for sst in reversed(l0):
        draft.add_run(sst.id, [sst])
    draft.add_run(run_id, [describe(sst.id, sst.info) for sst in ssts])


def _place(manifest: Manifest, plan: Plan) -> int | None:
    """Where the planned SSTs begin in the manifest's list; None unless they are whole units."""
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
    """Where the runs begin in the manifest's list, and where the list ends."""
    return list(accumulate((len(run) for run in manifest.runs), initial=manifest.l0_count))
