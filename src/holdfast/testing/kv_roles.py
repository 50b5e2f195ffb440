"""The roles in the simulation of a kv store: one function for the life of each process.

A role uses the store as a program would, records in the ledger what was promised, and checks every
state that it reads.  It may be killed or frozen at any call; errors that the store is allowed to
raise end its life, all others end the simulation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.bucket import Bucket
from holdfast.doors import read_kv
from holdfast.errors import (
    FencedError,
    LeaseLostError,
    LockedError,
    PoisonedError,
    UnavailableError,
)
from holdfast.formats.sst import Rows
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.cas.two_phase import TwoPhaseBucket
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.reader import KvReader
from holdfast.kv.snapshots import Snapshots
from holdfast.kv.view import PinnedView
from holdfast.runtime import Runtime
from holdfast.testing.actors import Process
from holdfast.testing.kv_ledger import Write

if TYPE_CHECKING:
    from holdfast.testing.kv_simulation import Simulation as World

State = dict[bytes, bytes]
KEYS = [b"k%d" % number for number in range(8)]
LOADED_KEYS = [b"l%d" % number for number in range(4)] + KEYS[:2]


@dataclass(slots=True)
class Kept:
    """A snapshot that a role has created, and what it must hold."""

    manifest_id: int
    is_permanent: bool
    since: int
    own: list[Write] = field(default_factory=list)


Role = Callable[["World", Process], None]


@contextmanager
def tolerated(world: "World", process: Process) -> Iterator[None]:
    """Tolerate the errors that a store may raise because of the network or another process."""
    try:
        yield
    except FencedError:
        world.events["fenced"] += 1
        if process.thaws:
            world.events["zombie refused"] += 1
    except LeaseLostError:
        world.events["job lost"] += 1
    except (UnavailableError, PoisonedError, LockedError) as error:
        world.events[f"gave up: {type(error).__name__}"] += 1


def wait_for_store(world: "World") -> None:
    """Wait until there is a manifest."""
    while world.truth.manifest is None:
        world.scheduler.sleep(200)
        if world.is_over:
            world.broken("broken", "no store was ever created")


def pause(world: "World", most_ms: float = 3000) -> None:
    world.scheduler.sleep(world.random.random() ** 2 * most_ms)


def judge(world: "World", view: PinnedView | KvReader, process: Process, **known: object) -> State:
    """Read everything, and compare it with the ledger."""
    state = dict(view.items())
    world.events["judged"] += 1
    world.ledger.judge(state, process.name, **known)  # type: ignore[arg-type]
    for key in world.random.sample(KEYS, 2):
        if view.get(key) != state.get(key) and isinstance(view, PinnedView):
            world.broken("broken", f"{process.name}: get and scan differ in {key!r}")
    return state


class _Reading:
    """The life of a reader: rows that it has shown stay, and views never change."""

    def __init__(self, world: "World", process: Process) -> None:
        self.world, self.process = world, process
        self.since = self.loads_since = world.ledger.now()
        self.is_lazy = world.random.random() < 0.3
        self.reader = read_kv(
            world.bucket(process),
            lazy=self.is_lazy,
            snapshot_ttl_ms=world.knobs.snapshot_ttl_ms,
            memory_bytes_max=world.random.choice([0, 2000, 2**20]),
            cache_bytes_max=world.random.choice([0, 2**20]),
            runtime=world.scheduler.runtime(process),
        )
        self.views: list[tuple[PinnedView, State]] = []

    def live(self) -> None:
        self.look()
        for _ in range(self.world.random.randrange(2, 10)):
            if self.world.is_over:
                break
            step = self.world.random.choice(
                [self.poll, self.poll, self.refresh, self.look_again, self.look_again, self.wait]
            )
            step()
            self.world.truth.check_lease(self.reader._lease, self.reader.runtime.now_ms())
        self.reader.close()

    def wait(self) -> None:
        pause(self.world, 20_000)

    def poll(self) -> None:
        self.since = self.world.ledger.now()
        self.reader.poll()
        self.look()

    def refresh(self) -> None:
        self.since = self.loads_since = self.world.ledger.now()
        self.reader.refresh()
        self.look()

    def look(self) -> None:
        view = self.reader.view()
        # Without order an acknowledged SST may have a gap before it, at which readers wait.
        since = self.since if self.world.knobs.ordered_acks else None
        state = judge(self.world, view, self.process, since=since, loads_since=self.loads_since)
        self.world.ledger.see(state)
        self.views.append((view, state))

    def look_again(self) -> None:
        view, state = self.world.random.choice(self.views)
        try:
            found = dict(view.items())
        except UnavailableError:
            self.world.events["view too old"] += 1
            return
        self.world.events["view read again"] += 1
        if found != state:
            self.world.broken("broken", f"a view of {self.process.name} has changed")
        if len(self.views) > 2:
            self.views.remove((view, state))
            view.close()


def reader(world: "World", process: Process) -> None:
    wait_for_store(world)
    pause(world)
    with tolerated(world, process):
        _Reading(world, process).live()


def historian(world: "World", process: Process) -> None:
    """Read snapshots repeatedly, drop some, and try to keep states that are deleted."""
    wait_for_store(world)
    with tolerated(world, process):
        bucket, runtime = world.bucket(process), world.scheduler.runtime(process)
        store = ManifestStore(bucket, runtime)
        snapshots = Snapshots(store, runtime)
        for _ in range(world.random.randrange(2, 8)):
            pause(world, 10_000)
            if world.random.random() < 0.3:
                _keep_again(world, snapshots)
            if world.kept:
                _read_kept(world, process, bucket, runtime, snapshots)
            if world.is_over:
                return


def _keep_again(world: "World", snapshots: Snapshots) -> None:
    manifest_id = world.random.randint(1, world.truth.manifest_id)
    try:
        made = snapshots.create(60_000, manifest_id=manifest_id)
    except ValueError:
        world.events["inactive manifest refused"] += 1
        return
    world.events["active manifest kept again"] += 1
    world.kept.append(Kept(made.manifest_id, False, 0))


def _read_kept(
    world: "World", process: Process, bucket: Bucket, runtime: Runtime, snapshots: Snapshots
) -> None:
    kept = world.random.choice(world.kept)
    choice = world.random.choice
    try:
        with read_kv(
            bucket,
            at=kept.manifest_id,
            lazy=choice([False, True]),
            memory_bytes_max=choice([0, 2**20]),
            cache_bytes_max=choice([0, 2**20]),
            runtime=runtime,
        ) as found:
            known = {"since": kept.since, "loads_since": kept.since, "own": kept.own}
            state = judge(world, found, process, **known)
    except ValueError as error:
        if kept.is_permanent and kept in world.kept:
            world.broken("lost", f"a snapshot without limit: {error}")
        world.events["snapshot expired"] += 1
        if kept in world.kept:
            world.kept.remove(kept)
        return
    world.events["snapshot read"] += 1
    if world.contents.setdefault(kept.manifest_id, state) != state:
        world.broken("broken", f"the snapshot of manifest {kept.manifest_id} has changed")
    if world.random.random() < 0.3:
        _extend(world, snapshots, kept)
    if kept.is_permanent and world.random.random() < 0.5:
        entries = [s for s in snapshots.list() if s.manifest_id == kept.manifest_id]
        world.kept = [one for one in world.kept if one.manifest_id != kept.manifest_id]
        snapshots.drop(*(entry.id for entry in entries))


def _extend(world: "World", snapshots: Snapshots, kept: Kept) -> None:
    of_kept = (s for s in snapshots.list() if s.manifest_id == kept.manifest_id)
    entry = next((s for s in of_kept if (s.expires_s == 0) is kept.is_permanent), None)
    if entry is None:
        return
    try:
        snapshots.extend(entry.id, None if kept.is_permanent else 200_000)
        world.events["snapshot extended"] += 1
    except KeyError:
        world.events["snapshot deleted before it was extended"] += 1


def compactor(world: "World", process: Process) -> None:
    wait_for_store(world)
    pause(world)
    with tolerated(world, process):
        compactor = Compactor(
            world.bucket(process), world.scheduler.runtime(process), world.compaction
        )
        for _ in range(world.random.randrange(2, 12)):
            if world.random.random() < 0.2:
                compactor.compact_everything()
                world.events["compacted everything"] += 1
            elif compactor.step() is not None:
                world.events["compacted"] += 1
            pause(world, 5000)
            if world.is_over:
                return


def collector(world: "World", process: Process) -> None:
    wait_for_store(world)
    with tolerated(world, process):
        collector = GarbageCollector(
            world.bucket(process), world.scheduler.runtime(process), world.gc
        )
        for _ in range(world.random.randrange(2, 12)):
            pause(world, 4000)
            report = collector.collect()
            for rule, count in report.counts.items():
                world.events[f"collected {rule}"] += count
            world.events["snapshots expired"] += report.expired_snapshots
            world.events["jobs expired"] += report.expired_jobs
            if world.is_over:
                return


def loader(world: "World", process: Process) -> None:
    """Load the batches of a stream, each once, whichever process dies."""
    wait_for_store(world)
    with tolerated(world, process):
        bucket, runtime = world.bucket(process), world.scheduler.runtime(process)
        while not world.is_over:
            pause(world, 30_000)
            batch = world.batch
            load = BulkLoad(bucket, runtime, world.compaction, transaction=("stream", batch))
            write = world.loads.get(batch)
            if not load.is_committed:
                write = _load(world, bucket, runtime, load, batch)
            if write is None:
                world.broken("invented", f"batch {batch} is there, and was never loaded")
                return
            world.ledger.acknowledge(write)
            world.events["loaded"] += 1
            world.batch = max(world.batch, batch + 1)


def _load(world: "World", bucket: Bucket, runtime: Runtime, load: BulkLoad, batch: int) -> Write:
    write = world.loads.get(batch)
    if write is None:
        keys = world.random.sample(LOADED_KEYS, 4)
        write = world.ledger.begin(keys[:3], keys[3:], b"x" * 20, load=True)
        write.order = 0, batch
        world.loads[batch] = write
        write.began = -1  # known when it is first committed
    pairs = [(key, write.rows[key], 0) for key in sorted(write.rows)]
    ssts = []
    for part in (pairs[:2], pairs[2:]):
        ssts += write_sorted(bucket, load.job, [Rows.from_pairs(part)], runtime)
        pause(world, 1000)
    if write.began < 0:
        write.began = world.ledger.now()
    load.commit(ssts)
    return write


def recoverer(world: "World", process: Process) -> None:
    """Finish and clean up the unfinished writes of two-phase writers."""
    with tolerated(world, process):
        bucket = world.bucket(process)
        assert isinstance(bucket, TwoPhaseBucket)
        while not world.is_over:
            pause(world, 10_000)
            world.events["recovered"] += bucket.recover()
            if world.random.random() < 0.3:
                world.events["swept"] += bucket.sweep(2**60)
