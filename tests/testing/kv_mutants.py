"""Bugs planted into the kv store's own code, one at a time: the simulation must notice each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.mutants import rewrite

from holdfast.bucket.retry import RetryingBucket
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import decode_sst
from holdfast.kv import gc, jobs, plans, snapshots
from holdfast.kv.cas.two_phase import TwoPhaseBucket
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.memtable import layer_of
from holdfast.kv.names import manifest_name, wal_ids, wal_name
from holdfast.kv.opening import Bump, TakeOver
from holdfast.kv.reader import KvReader
from holdfast.kv.snapshots import Lease
from holdfast.kv.wal import Fencing, Tenure
from holdfast.kv.write_queue import WriteQueue
from holdfast.kv.writes import WriteHandle
from holdfast.testing.kv_simulation import Knobs, Mode
from holdfast.testing.sim_bucket import Faults
from holdfast.testing.sim_records import SimRecords

Patch = Callable[[pytest.MonkeyPatch], None]


# Many writers, freezes of a minute, and no other trouble.
BUSY = Knobs(
    faults=Faults(slow=0.05),
    freezes=0.02,
    freeze_max_ms=60_000,
    kills=0.002,
    leaps=0.0,
    skew_ms=0,
    gc_min_age_ms=0,
    other_age_ms=0,
)
STORM = replace(BUSY, faults=Faults(refused=0.1, lost_answer=0.1, late=0.05, slow=0.05))
DYING = replace(BUSY, kills=0.03, roles=("compactor", "collector", "reader"))
CROWD = replace(BUSY, writers=1, roles=("compactor",) * 4 + ("collector",) * 2)
PEACE = replace(BUSY, freezes=0.0, kills=0.0, writers=2, roles=("compactor", "compactor"))
WAR = replace(BUSY, freezes=0.05, peace_ms=5000, roles=("reader",))
HASTE = replace(BUSY, peace_ms=2000, roles=("compactor", "collector", "collector"))
# Who sleeps has several writes in flight, and wakes up soon.
DOZING = replace(
    BUSY,
    faults=Faults(slow=0.2),
    parallel_max=6,
    freezes=0.1,
    freeze_max_ms=10_000,
    kills=0.0,
    writers=2,
    roles=(),
    steps=400,
    gc_min_age_ms=1_000_000,
)
# Who sleeps does so until its snapshot has expired, and its ids are collected.
ASLEEP = replace(HASTE, sleepers="writer", freeze_max_ms=100_000, snapshot_ttl_ms=10_000)
# The snapshots of readers last for two seconds, and their updates often take longer.
FORGETFUL = replace(
    BUSY,
    faults=Faults(slow=0.3, late=0.1),
    freezes=0.05,
    freeze_max_ms=20_000,
    kills=0.0,
    snapshot_ttl_ms=2000,
    peace_ms=1000,
    roles=("reader", "reader", "compactor", "collector"),
)
# The same, but fences are collected as well: only the second look is left.
UNFENCED = replace(ASLEEP, fence_age_ms=0)
# Clocks stand still while a process is frozen, and its ids are collected meanwhile.
STALLED = replace(
    HASTE,
    pauses=True,
    sleepers="writer",
    freezes=0.05,
    freeze_max_ms=200_000,
    snapshot_ttl_ms=10_000,
    gc_min_age_ms=5_000,
)
WATCHED = replace(
    DOZING, freezes=0.0, writers=1, peace_ms=1000, roles=("reader",) * 4, gc_min_age_ms=0
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`plant` breaks the code; in a world like `knobs` it is found within `seeds` seeds."""

    name: str
    plant: Patch
    mode: Mode = "native"
    knobs: Knobs = BUSY
    seeds: int = 60


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fencing, "run", lambda self: self.next_id - 1)


def _one_fence(patch: pytest.MonkeyPatch) -> None:
    init = Fencing.__init__

    def one(self: Fencing, *what: Any) -> None:
        init(self, *what)
        self._count = 1

    patch.setattr(Fencing, "__init__", one)


def _no_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The text's first version keeps the WAL only after the fence."""
    fence = TakeOver.fence

    def unprotected(self: TakeOver, bump: Bump) -> int:
        self._lease.release()
        return fence(self, bump)

    patch.setattr(TakeOver, "fence", unprotected)


def _early_ack(patch: pytest.MonkeyPatch) -> None:
    def result(self: WriteHandle, timeout: float | None = None) -> int:
        assert isinstance(self._queue, WriteQueue)
        self._queue.tick()
        return self.seq

    patch.setattr(WriteHandle, "result", result)


def _no_second_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "confirm", lambda self: None)


def _no_fences_kept(patch: pytest.MonkeyPatch) -> None:
    """Fences are deleted as soon as other SSTs of the WAL."""
    patch.setattr(gc, "FENCE_SIZE", 0)


def _clocks_decide(patch: pytest.MonkeyPatch) -> None:
    """A manifest that was written in time, by our clock, is taken for the newest."""
    patch.setattr(ManifestStore, "_is_current", lambda self, name, manifest: True)


def _a_lapsed_lease_proves(patch: pytest.MonkeyPatch) -> None:
    """What is missing is called lost by our clock, without a look at our snapshot."""
    patch.setattr(Lease, "keeps", lambda self, manifest_id: not self.has_lapsed)


def _always_ours(patch: pytest.MonkeyPatch) -> None:
    """AlreadyExists is taken for the echo of an own write."""
    patch.setattr(RetryingBucket, "_is_ours", lambda self, name, data: True)


def _current_manifest_only(patch: pytest.MonkeyPatch) -> None:
    """The text's third rule of garbage collection."""

    def wal_first(active: dict[int, Manifest]) -> int:
        return active[max(active)].wal_id_last_compacted

    patch.setattr(gc, "wal_first", wal_first)


def _jobs_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gc, "first_live_id", lambda manifest: manifest.next_sst_base)


def _any_manifest(patch: pytest.MonkeyPatch) -> None:
    """A snapshot may name a manifest that is not active."""

    def active_ids(current_id: int, *rest: Any, **more: Any) -> set[int]:
        return set(range(1, current_id + 1))

    patch.setattr(snapshots, "active_ids", active_ids)


def _gaps(patch: pytest.MonkeyPatch) -> None:
    """A reader that does not wait for a missing SST."""

    def take_in(self: KvReader) -> None:
        for wal_id in wal_ids(self.bucket, after=self._tail.last_id):
            data = self.bucket.get(wal_name(wal_id))
            info, rows = decode_sst(data)
            self._tail.last_id = wal_id - 1
            self._tail.add(layer_of(rows, wal_id), len(data), info.max_seq, info.writer_epoch)
        self._show(self.manifest_id, self._current.view.levels)

    patch.setattr(KvReader, "_take_in", take_in)


def _tombstones(patch: pytest.MonkeyPatch) -> None:
    """Deletions are dropped while there is something below them to delete."""
    plan_of = plans._plan_of

    def dropping(*where: Any) -> plans.Plan:
        return replace(plan_of(*where), drop_tombstones=True)

    wal = plans.plan_wal

    def plan_wal(*what: Any) -> plans.Plan | None:
        found = wal(*what)
        return found and replace(found, drop_tombstones=True)

    patch.setattr(plans, "_plan_of", dropping)
    patch.setattr(plans, "plan_wal", plan_wal)


def _no_compare(patch: pytest.MonkeyPatch) -> None:
    """A manifest is written without regard to who was faster."""

    def update(self: ManifestStore, change: Any) -> tuple[int, Manifest]:
        current = self.latest()
        assert current is not None
        changed = change(*current)
        if changed is None:
            return current
        try:
            self._bucket.put_if_absent(manifest_name(current[0] + 1), self._signed(changed)[0])
        except FileExistsError:
            return current[0] + 1, changed
        return current[0] + 1, changed

    patch.setattr(ManifestStore, "update", update)


def _text_recovery(patch: pytest.MonkeyPatch) -> None:
    """The text's recovery: a record without a destination is deleted, though it was durable."""

    def recover(self: TwoPhaseBucket) -> int:
        records = self._patience.ask(self._records.uncommitted)
        shown = {info.name for info in self.list("")}
        for record in records:
            if record.destination in shown:
                self._finish(record)
            else:
                assert isinstance(self._records, SimRecords)
                self._records.records.pop(record.destination, None)
        return len(records)

    patch.setattr(TwoPhaseBucket, "recover", recover)


def _no_help(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwoPhaseBucket, "_help", lambda self, record: None)


def _greedy_sweep(patch: pytest.MonkeyPatch) -> None:
    """The text's second rule: any other file that is old enough goes, whoever needs it."""

    def sweep(self: TwoPhaseBucket, before_ms: int) -> int:
        names = [info.name for info in self._bucket.list("") if info.name.count(".") == 3]
        self._bucket.delete(*names)
        return len(names)

    patch.setattr(TwoPhaseBucket, "sweep", sweep)


def _no_watermark(patch: pytest.MonkeyPatch) -> None:
    """Records are forgotten, and so is that their names were ever taken."""
    retire = SimRecords.retire

    def forget(self: SimRecords, directory: str, boundary: str) -> None:
        retire(self, directory, boundary)
        self.watermarks.clear()

    patch.setattr(SimRecords, "retire", forget)


def _any_compactor(patch: pytest.MonkeyPatch) -> None:
    """A compaction is committed whatever has become of its job and its compactor."""
    patch.setattr(Compactor, "_refuse_if_fenced", lambda self, manifest: None)
    patch.setattr(jobs, "require", lambda manifest, job: None)


def _no_boundary(patch: pytest.MonkeyPatch) -> None:
    """What to delete is judged by a manifest that was read, and may be outdated."""

    def collect(self: gc.GarbageCollector, on_progress: object = None) -> gc.GcReport:
        found = self._plan()
        self._bucket.delete(*(garbage.name for garbage in found.garbage))
        return gc._report(found.manifest_id, found.garbage, 0, gc._Expired(), 0)

    patch.setattr(gc.GarbageCollector, "collect", collect)


def _old_numbers(patch: pytest.MonkeyPatch) -> None:
    """A writer numbers its rows without regard to the writers before it."""
    init = WriteQueue.__init__

    def anew(self: WriteQueue, *what: Any, **more: Any) -> None:
        init(self, *what, **(more | {"last_seq": 0}))

    patch.setattr(WriteQueue, "__init__", anew)


def _late_lease(step: str) -> Patch:
    """The time of a lease is taken after the update, though its snapshot counts from before."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        bug = "self._renewed_ms = before_ms", "self._renewed_ms = self._runtime.monotonic_ms()"
        rewrite(patch, snapshots.Lease, step, *bug)

    return plant


MUTANTS = [
    Mutant("no fence", _no_fence, knobs=WAR),
    Mutant("one fence for several writes in flight", _one_fence, knobs=DOZING),
    Mutant("no snapshot before the fence", _no_snapshot, knobs=HASTE),
    Mutant("acknowledged before it is written", _early_ack),
    Mutant("no second look after a slow write", _no_second_look, knobs=UNFENCED),
    Mutant("fences are collected", _no_fences_kept, knobs=STALLED),
    Mutant("manifests written in time are current", _clocks_decide, knobs=STALLED),
    Mutant("a lease that lapsed proves a loss", _a_lapsed_lease_proves, knobs=STALLED),
    Mutant("what exists is always ours", _always_ours, knobs=STORM),
    Mutant("collection by the current manifest only", _current_manifest_only),
    Mutant("collection without regard to jobs", _jobs_unseen),
    Mutant("collection without a boundary", _no_boundary),
    Mutant("snapshots of manifests that are not active", _any_manifest),
    Mutant("readers skip gaps", _gaps, knobs=WATCHED),
    Mutant("the time of a new lease is taken too late", _late_lease("move"), knobs=FORGETFUL),
    Mutant(
        "the time of a renewal is taken too late", _late_lease("renew"), knobs=FORGETFUL, seeds=200
    ),
    Mutant("tombstones dropped too early", _tombstones, knobs=PEACE),
    Mutant("a fenced compactor commits", _any_compactor, knobs=CROWD),
    Mutant("a writer numbers its rows anew", _old_numbers),
    Mutant("manifests not compared and swapped", _no_compare),
    Mutant("the text's recovery", _text_recovery, "two-phase"),
    Mutant("losers do not help", _no_help, "two-phase", DYING),
    Mutant("the text's rule for other files", _greedy_sweep, "two-phase"),
    Mutant("no watermark", _no_watermark, "two-phase"),
]
