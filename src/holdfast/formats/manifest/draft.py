"""A manifest in the making: a private copy, the moves that keep its parts in step, and a check.

    draft = manifest.edit()
    draft.message.writer_epoch += 1                     scalars, and small lists, directly
    draft.add_snapshot(id, manifest_id, expire_time_s)  draft.drop_snapshot(id)
    base = draft.add_job(id, kind, ...)                 draft.drop_job(id)
    draft.add_l0(describe(sst_id, info))                the newest
    draft.remove_ssts(ids)                              wherever they are; empty runs go
    draft.add_run(run_id, ssts, at=0)                   a new run, newest unless `at` says otherwise
    draft.extend_run(run_id, ssts)                      into a run, where no key overlaps
    draft.set_transaction(query_id, batch_id)
    draft.freeze() -> Manifest                          ValueError if the rules do not hold

leveled_ssts and sorted_runs depend on each other: change them through these moves only.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from holdfast.formats.manifest.checks import BASE_STEP, Ids, flaw
from holdfast.formats.manifest.manifest_pb2 import JobKind, Manifest, SortedRun, SstInfo
from holdfast.formats.sst import Info

Frozen = TypeVar("Frozen")


def describe(sst_id: int, info: Info) -> SstInfo:
    """Return the entry of a manifest for an SST, from its footer."""
    return SstInfo(
        id=sst_id,
        first_key=info.first_key,
        last_key=info.last_key,
        filter_offset=info.filter_offset,
        filter_len=info.filter_len,
        block_meta_offset=info.block_meta_offset,
        block_meta_len=info.block_meta_len,
        size=info.size,
        row_count=info.row_count,
        max_seq=info.max_seq,
    )


class Draft(Generic[Frozen]):
    """A private copy of a manifest, until it is frozen."""

    def __init__(
        self, message: Manifest, ids: Ids, freeze: Callable[[Manifest, Ids], Frozen]
    ) -> None:
        self.message, self._ids, self._freeze = message, ids, freeze
        self._epochs = message.writer_epoch, message.compactor_epoch

    def add_snapshot(self, id: bytes, manifest_id: int, expire_time_s: int) -> None:
        """Keep this manifest's state readable until then; 0: without limit."""
        self.message.snapshots.add(
            id=id, manifest_id=manifest_id, snapshot_expire_time_s=expire_time_s
        )

    def drop_snapshot(self, id: bytes) -> bool:
        """Drop a snapshot; return whether it existed."""
        return _drop(self.message.snapshots, id)

    def add_job(
        self,
        id: bytes,
        kind: JobKind,
        *,
        started_ms: int,
        expires_ms: int,
        compactor_epoch: int = 0,
    ) -> int:
        """Register a job; return the base of its SST ids, which no other job gets."""
        base = self.message.next_sst_base
        self.message.next_sst_base = base + BASE_STEP
        self.message.jobs.add(
            id=id,
            base=base,
            kind=kind,
            compactor_epoch=compactor_epoch,
            started_ms=started_ms,
            expires_ms=expires_ms,
        )
        return base

    def drop_job(self, id: bytes) -> bool:
        """Drop a job; return whether it existed."""
        return _drop(self.message.jobs, id)

    def set_transaction(self, query_id: str, batch_id: int) -> None:
        """Record the last committed batch of a stream."""
        for transaction in self.message.transactions:
            if transaction.query_id == query_id:
                transaction.batch_id = batch_id
                return
        self.message.transactions.add(query_id=query_id, batch_id=batch_id)

    def add_l0(self, sst: SstInfo) -> None:
        """Put an SST before all others: it holds the newest rows."""
        self.message.leveled_ssts.insert(0, sst)
        self._ids = np.insert(self._ids, 0, np.uint64(sst.id))

    def remove_ssts(self, ids: Collection[int]) -> None:
        """Take these SSTs out of L0 and of all runs."""
        found = np.flatnonzero(np.isin(self._ids, np.array(list(ids), np.uint64)))
        if len(found) != len(set(ids)):
            raise ValueError(
                f"{len(set(ids)) - len(found)} of {len(set(ids))} SSTs are not in the manifest"
            )
        if not len(found):
            return
        owners = np.searchsorted(self._starts(), found, "right") - 1
        for owner in owners[owners >= 0].tolist():
            self.message.sorted_runs[owner].sst_count -= 1
        for places in reversed(np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)):
            del self.message.leveled_ssts[int(places[0]) : int(places[-1]) + 1]
        self._ids = np.delete(self._ids, found)
        for number in reversed(range(len(self.message.sorted_runs))):
            if not self.message.sorted_runs[number].sst_count:
                del self.message.sorted_runs[number]

    def add_run(self, run_id: int, ssts: Sequence[SstInfo], at: int = 0) -> None:
        """Insert a run at this place among the runs: those before it are newer."""
        if not ssts:
            raise ValueError("a run without SSTs")
        _check_order(ssts)
        place = [*self._starts(), len(self.message.leveled_ssts)][at]
        self.message.sorted_runs.insert(at, SortedRun(id=run_id))
        self._insert(at, place, ssts)

    def extend_run(self, run_id: int, ssts: Sequence[SstInfo]) -> None:
        """Put SSTs into a run, each where its keys belong; none may overlap with its neighbours."""
        number = [run.id for run in self.message.sorted_runs].index(run_id)
        there = self.message.leveled_ssts
        for sst in ssts:
            run = self._range(number)
            place = run.start + bisect_left(run, sst.first_key, key=lambda i: there[i].first_key)
            before = there[max(run.start, place - 1) : place]
            after = there[place : min(run.stop, place + 1)]
            _check_order([*before, sst, *after])
            self._insert(number, place, [sst])

    def freeze(self) -> Frozen:
        """Return the manifest of this draft.  The draft must not be used after that."""
        if len(self._ids) != len(self.message.leveled_ssts):
            raise ValueError("SSTs were changed without the methods of the draft")
        why = self._jump() or flaw(self.message, self._ids)
        if why:
            raise ValueError(f"invalid manifest: {why}")
        return self._freeze(self.message, self._ids)

    def _jump(self) -> str | None:
        """Check an epoch: it stays, or goes up by one."""
        now = self.message.writer_epoch, self.message.compactor_epoch
        for name, old, new in zip(("writer", "compactor"), self._epochs, now, strict=True):
            if new - old not in (0, 1):
                return f"{name} epoch {new} after {old}"
        return None

    def _starts(self) -> list[int]:
        """Return where each run begins in leveled_ssts."""
        counts = [run.sst_count for run in self.message.sorted_runs]
        stop = len(self.message.leveled_ssts)
        return [stop - sum(counts[i:]) for i in range(len(counts))]

    def _range(self, number: int) -> range:
        """Return which of leveled_ssts are in run `number`."""
        start = self._starts()[number]
        return range(start, start + self.message.sorted_runs[number].sst_count)

    def _insert(self, number: int, place: int, ssts: Sequence[SstInfo]) -> None:
        """Put SSTs into run `number`, from this place in leveled_ssts on."""
        there = self.message.leveled_ssts
        for i, sst in enumerate(ssts):
            there.insert(place + i, sst)
        self.message.sorted_runs[number].sst_count += len(ssts)
        self._ids = np.insert(self._ids, place, np.array([sst.id for sst in ssts], np.uint64))
        run = self._range(number)
        for bounded in range(max(run.start, place - 1), min(run.stop - 1, place + len(ssts))):
            there[bounded].ClearField("last_key")  # the next first key says enough


def _check_order(ssts: Sequence[SstInfo]) -> None:
    for sst, after in pairwise(ssts):
        if max(sst.first_key, sst.last_key) >= after.first_key:
            raise ValueError(
                f"SSTs {sst.id} and {after.id} of one run are not in order, or overlap"
            )


def _drop(messages: Any, id: bytes) -> bool:
    for place, message in enumerate(messages):
        if message.id == id:
            del messages[place]
            return True
    return False
