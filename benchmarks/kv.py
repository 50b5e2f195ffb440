"""The kv store beside SlateDB, RocksDB, LMDB and SQLite.

Each store is a process of its own, see kv_stores.py, and pays for the CPU of all its threads.
Keys have 16 bytes, values 100.  Nothing that is timed includes making them.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Measure, race
from benchmarks.kv_stores import (
    Contender,
    DurableCreate,
    HastySlateDb,
    Holdfast,
    Lmdb,
    Pairs,
    RocksDb,
    SlateDb,
    Sqlite,
    cpu,
    wall,
)
from holdfast.bucket import MemoryBucket
from holdfast.doors import open_kv
from holdfast.formats.manifest import Manifest, decode_manifest, describe, encode_manifest
from holdfast.formats.sst import Rows, SstWriter
from holdfast.kv import BulkLoad, Compactor, merge_task, write_sorted
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import level_name
from holdfast.kv.plans import plan_everything
from holdfast.runtime import Runtime

STORES: dict[str, type[Any]] = {
    "holdfast": Holdfast,
    "SlateDB": SlateDb,
    "RocksDB": RocksDb,
    "LMDB": Lmdb,
    "SQLite": Sqlite,
}
_VALUES = [random.randbytes(100) for _ in range(1000)]


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (writes, durable_puts, reads, opening, manifest, compaction):
        if only in measure.__name__:
            yield from measure(scale)


def key_of(number: int) -> bytes:
    return b"%016d" % number


def pairs_of(numbers: list[int]) -> Pairs:
    return [(key_of(number), random.choice(_VALUES)) for number in numbers]


@contextmanager
def contenders(kinds: Mapping[str, type[Any]]) -> Iterator[dict[str, Contender]]:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    found = {name: Contender(kind, directory / name) for name, kind in kinds.items()}
    try:
        for contender in found.values():
            contender("open")
        yield found
        for contender in found.values():
            contender("close")
    finally:
        for contender in found.values():
            contender.stop()
        shutil.rmtree(directory)


def compete(
    stores: Mapping[str, Contender],
    verb: str,
    work: Callable[[], Any],
    *,
    rounds: int,
    per: float,
    clock: Callable[[Iterable[Contender]], float] = cpu,
) -> tuple[dict[str, float], dict[str, float]]:
    """All of them do new work of one kind in every round; what answers is as it must be."""

    def call(contender: Contender) -> None:
        contender(verb, work())

    calls = {name: partial(call, contender) for name, contender in stores.items()}
    return race(calls, rounds=rounds, per=per, clock=lambda: clock(stores.values()))


def writes(scale: float) -> Iterator[Measure]:
    count = max(1000, int(10_000 * scale))

    def some() -> Pairs:
        return pairs_of(random.sample(range(10**12), count))

    with contenders(STORES) as stores:
        for verb, name, aim in (
            ("put", f"put, one of {count:,}, then a flush (CPU)", 20.0),
            ("batch", f"row in batches of 1000, one of {count:,}, then a flush (CPU)", 30.0),
        ):
            medians, spreads = compete(stores, verb, some, rounds=5, per=count * 1e-6)
            yield Measure(name, "µs", medians, spreads, aims={"SlateDB": aim})
        count = 1000
        medians, spreads = compete(stores, "batch", some, rounds=15, per=count * 1e-6)
        yield Measure("row in one durable batch of 1000 (CPU)", "µs", medians, spreads)


def durable_puts(scale: float) -> Iterator[Measure]:
    count = max(10, int(40 * scale))
    kinds = {
        "holdfast": Holdfast,
        "one durable create": DurableCreate,
        "SlateDB, without a sync": HastySlateDb,
        "RocksDB": RocksDb,
        "LMDB": Lmdb,
        "SQLite": Sqlite,
    }
    with contenders(kinds) as stores:
        medians, spreads = compete(
            stores,
            "put_durably",
            lambda: pairs_of(random.sample(range(10**12), count)),
            rounds=9,
            per=count * 1e-6,
            clock=wall,
        )
    yield Measure("durable put", "µs", medians, spreads, aims={"one durable create": 0.5})


def reads(scale: float) -> Iterator[Measure]:
    count = max(10_000, int(100_000 * scale))
    numbers = random.sample(range(count), count)  # keys are the even ones
    wanted = max(500, int(4000 * scale))
    with contenders(STORES) as stores:
        for contender in stores.values():
            for start in range(0, count, 10_000):
                contender("batch", pairs_of([2 * i for i in numbers[start : start + 10_000]]))
            contender("settle")
            # Every block comes into the cache; of SlateDB's, each has some thirty rows.
            contender("get", [key_of(2 * i) for i in range(0, count, 16)])

        def present() -> list[bytes]:
            return [key_of(2 * random.randrange(count)) for _ in range(wanted)]

        def missing() -> list[bytes]:
            return [key_of(2 * random.randrange(count) + 1) for _ in range(wanted)]

        for contender in stores.values():
            assert contender("get", present()) == wanted
            assert contender("get", missing()) == 0
            assert contender("scan") == count
        for name, keys, aim in (("cached", present, 10.0), ("missing", missing, 20.0)):
            medians, spreads = compete(stores, "get", keys, rounds=7, per=wanted * 1e-6)
            aims = {"SlateDB": aim}
            yield Measure(f"get of a {name} key (CPU)", "µs", medians, spreads, aims=aims)
        medians, spreads = compete(stores, "scan", lambda: None, rounds=5, per=count * 1e-6)
        yield Measure("scan, a row (CPU)", "µs", medians, spreads, aims={"SlateDB": 10.0})


def opening(scale: float) -> Iterator[Measure]:
    """Of a store with a thousand rows in its log besides those that are settled."""
    count = max(10_000, int(100_000 * scale))
    with contenders(STORES) as stores:
        for contender in stores.values():
            for start in range(0, count, 10_000):
                contender("batch", pairs_of(list(range(start, start + 10_000))))
            contender("settle")
            contender("batch", pairs_of(list(range(1000))))

        def again(contender: Contender) -> None:
            contender("close")
            before = contender.cpu, contender.wall
            contender("open")
            opened.append((contender.cpu - before[0], contender.wall - before[1]))

        opened: list[tuple[float, float]] = []
        for place, what in enumerate(("CPU", "wall")):
            clock = partial(_sum, opened, place)
            calls = {name: partial(again, contender) for name, contender in stores.items()}
            medians, spreads = race(calls, rounds=7, per=1e-3, clock=clock)
            yield Measure(f"open, {count:,} rows ({what})", "ms", medians, spreads)


def _sum(opened: list[tuple[float, float]], place: int) -> float:
    return sum(took[place] for took in opened)


def manifest(scale: float) -> Iterator[Measure]:
    count = int(100_000 * scale)
    draft = Manifest.create(created_ms=1, gc_min_age_ms=1).edit()
    writer = SstWriter(writer_epoch=1, unique_id=bytes(16))
    writer.add(Rows.from_pairs([(b"k" * 16, b"v" * 100, 1)]))
    _, info = writer.finish()
    ssts = [describe(i + 1, info) for i in range(count)]
    for i, sst in enumerate(ssts):
        sst.first_key = sst.last_key = key_of(i)
    draft.add_run(1, ssts[:-1])
    data = encode_manifest(draft.freeze(), bytes(16))

    def update() -> None:
        changed = decode_manifest(data).edit()
        changed.add_l0(ssts[-1])
        encode_manifest(changed.freeze(), bytes(16))

    medians, spreads = race({"holdfast": update}, rounds=9, per=1e-3, clock=time.process_time)
    name = f"a manifest of {count:,} SSTs: decode, add one, encode (CPU)"
    yield Measure(name, "ms", medians, spreads, aims={"holdfast": 250.0})


def compaction(scale: float) -> Iterator[Measure]:
    """Rows read in a second of CPU, from eight sorted runs; a third of the keys are in several."""
    count = max(20_000, int(1_000_000 * scale))
    bucket = MemoryBucket()
    open_kv(bucket, create=True, maintain=False).close()
    for _ in range(8):
        pairs = pairs_of(sorted(random.sample(range(count), count // 8)))
        load = BulkLoad(bucket)
        rows = Rows.from_pairs([(key, value, 0) for key, value in pairs])
        load.commit(write_sorted(bucket, load.job, [rows]))
    compactor = Compactor(bucket)
    current = ManifestStore(bucket, Runtime()).latest()
    plan = plan_everything(current[1]) if current else None
    assert plan is not None
    tasks = compactor.tasks(compactor.begin(plan))

    def merge() -> None:
        merged = [merge_task(bucket, task) for task in tasks]
        bucket.delete(*(level_name(sst.id) for found in merged for sst in found.ssts))

    medians, spreads = race({"holdfast": merge}, rounds=5, clock=time.process_time)
    rates = {name: (plan.row_count or 0) / 1e6 / median for name, median in medians.items()}
    name = f"compaction of {count:,} rows in this process (CPU)"
    aims = {"holdfast": 2.0}
    yield Measure(name, "Mrow/s", rates, spreads, higher_is_better=True, aims=aims)
