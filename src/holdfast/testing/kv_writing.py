"""The writers of a simulated kv store, and the last one, which checks what is left."""

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.doors import open_kv
from holdfast.errors import (
    ClosedError,
    FencedError,
    HoldfastError,
    PoisonedError,
    UnavailableError,
)
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.names import id_of
from holdfast.kv.options import KvOptions
from holdfast.kv.writes import WriteHandle
from holdfast.testing.actors import Process
from holdfast.testing.kv_ledger import Write
from holdfast.testing.kv_roles import KEYS, Kept, State, judge, pause, tolerated

if TYPE_CHECKING:
    from holdfast.testing.kv_simulation import Simulation as World

_DAYS_MS = 3 * 24 * 3600 * 1000


class _Writing:
    """The life of a writer; its acknowledged writes are in the ledger."""

    def __init__(self, world: "World", process: Process) -> None:
        self.world, self.process = world, process
        self.since = world.ledger.now()
        self.db = open_kv(
            world.bucket(process),
            create=True,
            **writer_options(world),
            runtime=world.scheduler.runtime(process),
            maintain=MaintenanceOptions(world.compaction, world.gc, 5000),
        )
        if self.db.epoch in world.epochs:
            world.broken("broken", f"two writers have epoch {self.db.epoch}")
        world.epochs.add(self.db.epoch)
        world.events["opened"] += 1
        self.pending: list[tuple[Write, WriteHandle]] = []
        self.own: list[Write] = []
        self.latest: dict[bytes, tuple[Write, WriteHandle]] = {}

    def live(self) -> None:
        steps = [self.write] * 8 + [self.settle] * 4
        steps += [self.flush, self.get, self.look, self.refresh, self.snapshot, self.wait]
        try:
            for _ in range(self.world.random.randrange(3, 80)):
                if self.world.is_over:
                    break
                self.world.random.choice(steps)()
        except FencedError:
            raise
        except (UnavailableError, PoisonedError):
            self.look()  # what was acknowledged can still be read
            raise
        if self.world.random.random() < 0.5:
            self.close()

    def write(self) -> None:
        random = self.world.random
        keys = random.sample(KEYS, random.choice([1, 1, 2, 4]))
        deleted = [key for key in keys if random.random() < 0.25]
        if random.random() < 0.3:  # a key that is never written again, which could hide a loss
            keys.append(b"u%d" % self.world.ledger.now())
        write = self.world.ledger.begin(
            [key for key in keys if key not in deleted], deleted, b"x" * random.randrange(40)
        )
        try:
            if len(keys) > 1:
                handle = self.db.write(write.rows)
            elif deleted:
                handle = self.db.delete(keys[0])
            else:
                handle = self.db.put(keys[0], write.rows[keys[0]] or b"")
        except HoldfastError:
            self.world.ledger.drop(write)
            raise
        write.order = self.db.epoch, handle.seq
        self.pending.append((write, handle))
        self.latest |= dict.fromkeys(keys, (write, handle))

    def settle(self) -> None:
        if not self.pending:
            return
        place = self.world.random.randrange(len(self.pending))
        _, handle = self.pending[place]
        try:
            handle.result(self.world.random.choice([None, None, 5.0]))
        except TimeoutError:
            self.world.events["not yet durable"] += 1
            return
        first = 0 if self.world.knobs.ordered_acks else place
        done, self.pending[first : place + 1] = self.pending[first : place + 1], []
        for write, handle in done:
            if not handle.done():
                self.world.broken("broken", "a later write was acknowledged before an earlier one")
            handle.result()
            self.acknowledge(write)

    def flush(self) -> None:
        self.db.flush()
        self.acknowledge_all()

    def close(self) -> None:
        try:
            self.db.close()
        except HoldfastError:
            self.check_closed()
            raise
        self.check_closed()
        self.acknowledge_all()
        self.world.events["closed"] += 1

    def check_closed(self) -> None:
        try:
            self.db.get(KEYS[0])
        except ClosedError:
            return
        self.world.broken("broken", f"{self.process.name}: a closed store can be read")

    def acknowledge(self, write: Write) -> None:
        self.world.ledger.acknowledge(write)
        self.own.append(write)

    def acknowledge_all(self) -> None:
        for write, _ in self.pending:
            self.acknowledge(write)
        self.pending.clear()

    def get(self) -> None:
        if self.latest:
            key = self.world.random.choice(list(self.latest))
            value = self.db.get(key)
            write, handle = self.latest[key]
            if handle.done():
                handle.result()  # if it has failed, it is not read any more, and this life ends
            self.world.ledger.judge_own(key, value, write, self.process.name)

    def look(self) -> None:
        durable_only = self.world.knobs.ordered_acks and self.world.random.random() < 0.5
        view = self.db.view(durable_only=durable_only)
        since = self.since
        judge(self.world, view, self.process, since=since, loads_since=since, own=list(self.own))

    def refresh(self) -> None:
        now = self.world.ledger.now()
        self.db.refresh()
        self.since = now

    def snapshot(self) -> None:
        ttl_ms = self.world.random.choice([None, 5_000, 10_000, 100_000])
        since, own = self.since, list(self.own)
        made = self.db.snapshot(ttl_ms)
        self.world.kept.append(Kept(made.manifest_id, ttl_ms is None, since, own))
        self.world.events["snapshot made"] += 1

    def wait(self) -> None:
        pause(self.world, 20_000)


def writer_options(world: "World") -> KvOptions:
    random = world.random
    return KvOptions(
        flush_ms=random.choice([None, 50.0, 1000.0]),
        watch_ms=random.choice([None, None, 3000.0]),
        flush_bytes=random.choice([1, 600, 4000]),
        skip_memtable_bytes=random.choice([500, 10_000]),
        unflushed_bytes_max=random.choice([1000, 2**20]),
        parallel_writes_max=random.choice(range(1, world.knobs.parallel_max + 1)),
        memory_bytes_max=random.choice([0, 2000, 2**20]),
        cache_bytes_max=random.choice([0, 2**20]),
        ordered_acks=world.knobs.ordered_acks,
        gc_min_age_ms=world.knobs.gc_min_age_ms,
        snapshot_ttl_ms=world.knobs.snapshot_ttl_ms,
    )


def writer(world: "World", process: Process) -> None:
    pause(world, world.random.choice([500, world.knobs.peace_ms]))
    with tolerated(world, process):
        _Writing(world, process).live()


def judge_at_last(world: "World", process: Process) -> None:
    """Open the store, compact it, collect garbage: no row may change, and no garbage may stay."""
    since = world.ledger.now()
    bucket, runtime = world.bucket(process), world.scheduler.runtime(process)
    db = open_kv(bucket, create=True, flush_ms=None, watch_ms=None, runtime=runtime, maintain=False)

    def look() -> State:
        return judge(world, db.view(), process, since=since, loads_since=since)

    state = look()
    compactor = Compactor(bucket, runtime, world.compaction)
    compactor.compact_everything()
    for _ in range(3):
        world.scheduler.ms += _DAYS_MS
        GarbageCollector(bucket, runtime, replace(world.gc, fence_age_ms=0)).collect()
        db.refresh()
        if look() != state:
            world.broken("lost", "compaction or collection has changed what is read")
    db.close()
    left = [info.name for info in world.truth.list("") if id_of(info.name)]
    garbage = [name for name in left if not world.truth.needs(name)]
    if len(garbage) > 10:
        world.broken("broken", f"{len(garbage)} objects are never collected: {garbage[:4]}")
