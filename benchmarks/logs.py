"""The Shanghai log beside raw writes, SQLite, LMDB, RocksDB and LevelDB."""

import logging
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import plyvel
import rocksdict

from benchmarks.harness import Measure, race
from holdfast.disk import OsDisk
from holdfast.logs.open import FORMATS, create_log
from holdfast.logs.shanghai import Retention, ShanghaiGuest, ShanghaiLog
from holdfast.testing import Explorer
from holdfast.testing.shanghai import ShanghaiSubject

Appender = Callable[[list[bytes]], object]


@dataclass(frozen=True)
class Kind:
    """A format: how its logs are opened, and what is hoped of it."""

    owner: Callable[..., Any]
    guest: Callable[[OsDisk], Any]
    scan_aims: dict[int, dict[str, float]]  # by the size of entries
    recovery_aim_ms: float
    remove_head: Callable[[Any, int], object]
    forget: Callable[[Path], object]  # what would spare recovery its work
    raw_size: int = 0  # of the file that raw writes go to, if it is allocated before
    options: Mapping[str, Any] = field(default_factory=dict)  # of a log that is appended to


SHANGHAI = Kind(
    owner=ShanghaiLog,
    guest=ShanghaiGuest,
    scan_aims={100: {"SQLite": 1.0}, 1024: {}},
    recovery_aim_ms=300,
    remove_head=lambda log, first: log.compact(Retention(before=first)),
    forget=lambda directory: (directory / "metadata.json").unlink(),
    options={"segment_size_max": 1 << 40},
)


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (
        appends,
        owner_checks,
        mixed_appends,
        threads,
        scans,
        random_reads,
        recovery,
        compaction,
        imports,
        simulator,
    ):
        if only in measure.__name__:
            yield from measure(scale)


class Peers:
    """Everyone who appends durably, in a directory of its own."""

    def __init__(self, kind: Kind) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        self.log = kind.owner(OsDisk(self.directory / "holdfast"), **kind.options)
        self.raw = os.open(self.directory / "raw", os.O_CREAT | os.O_RDWR)
        self.raw_at, self.raw_size = 0, kind.raw_size
        if self.raw_size:
            os.posix_fallocate(self.raw, 0, self.raw_size)
            os.fsync(self.raw)
        self.sqlite = sqlite3.connect(
            self.directory / "sqlite", isolation_level=None, check_same_thread=False
        )
        self.sqlite.execute("pragma journal_mode=wal")
        self.sqlite.execute("pragma synchronous=full")
        self.sqlite.execute("create table log (i integer primary key, payload blob)")
        self.lmdb = lmdb.open(str(self.directory / "lmdb"), map_size=1 << 34)
        self.rocks = rocksdict.Rdict(
            str(self.directory / "rocks"), rocksdict.Options(raw_mode=True)
        )
        self.rocks_sync = rocksdict.WriteOptions()
        self.rocks_sync.sync = True
        self.level = plyvel.DB(str(self.directory / "level"), create_if_missing=True)
        self.count = 0

    def key(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(8, "big")

    def append_raw(self, payloads: list[bytes]) -> None:
        data = b"".join(payloads) + bytes(8 * len(payloads))  # as many bytes as the log writes
        if self.raw_size and self.raw_at + len(data) > self.raw_size:
            self.raw_at = 0
        os.pwrite(self.raw, data, self.raw_at)
        os.fdatasync(self.raw)
        self.raw_at += len(data)

    def append_sqlite(self, payloads: list[bytes]) -> None:
        self.sqlite.execute("begin immediate")
        self.sqlite.executemany("insert into log (payload) values (?)", [(p,) for p in payloads])
        self.sqlite.execute("commit")

    def append_lmdb(self, payloads: list[bytes]) -> None:
        with self.lmdb.begin(write=True) as transaction:
            for payload in payloads:
                transaction.put(self.key(), payload, append=True)

    def append_rocks(self, payloads: list[bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for payload in payloads:
            batch.put(self.key(), payload)
        self.rocks.write(batch, self.rocks_sync)

    def append_level(self, payloads: list[bytes]) -> None:
        with self.level.write_batch(sync=True) as batch:
            for payload in payloads:
                batch.put(self.key(), payload)

    def all(self) -> dict[str, Appender]:
        return {
            "holdfast": self.log.append,
            "raw pwrite+fdatasync": self.append_raw,
            "SQLite WAL FULL": self.append_sqlite,
            "LMDB": self.append_lmdb,
            "RocksDB": self.append_rocks,
            "LevelDB": self.append_level,
        }

    def close(self) -> None:
        self.log.close()
        os.close(self.raw)
        self.sqlite.close()
        self.lmdb.close()
        self.rocks.close()
        self.level.close()
        shutil.rmtree(self.directory)


def appends(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    aims = {
        1: (0.93, 1.8, 1.8, 1.1, 1.05),
        100: (0.87,),
        1000: (0.82, 4.5, 2, 2.2, 2.2),
    }
    for size, rounds in ((1, 600), (100, 300), (1000, 150)):
        peers = Peers(kind)
        batch = [random.randbytes(128) for _ in range(size)]
        contenders = {name: partial(append, batch) for name, append in peers.all().items()}
        medians, spreads = race(contenders, rounds=int(rounds * scale) or 3, per=1e-6)
        names = [name for name in medians if name != "holdfast"]
        hopes = dict(zip(names, aims[size], strict=False))
        yield Measure(f"durable append, {size} × 128 B", "µs", medians, spreads, aims=hopes)
        peers.close()


def owner_checks(scale: float) -> Iterator[Measure]:
    """What it costs, in CPU, to be sure before each commit that this process is the owner.

    Appends with and without the checks take turns.  Each waits for the disk, as every durable
    append does, so that the next one finds the caches as cold as they are in use.
    """
    for format in FORMATS:
        directory = tempfile.mkdtemp(prefix="bench-", dir=".")
        log: Any = create_log(f"{directory}/log", format)
        commits, payload = log._commits, [random.randbytes(128)]
        locks = {"holdfast": commits._lock, "without these checks": _NoChecks()}
        times: dict[str, list[float]] = {name: [] for name in locks}
        for _ in range(int(1500 * scale) or 3):
            for name in random.sample(list(locks), len(locks)):
                commits._lock = locks[name]
                started = time.thread_time_ns()
                log.append(payload)
                times[name].append((time.thread_time_ns() - started) / 1e3)
        commits._lock = locks["holdfast"]
        log.close()
        shutil.rmtree(directory)
        times["the checks alone"] = [a - b for a, b in zip(*times.values(), strict=True)]
        medians = {name: statistics.median(found) for name, found in times.items()}
        quartiles = {name: statistics.quantiles(found, n=4) for name, found in times.items()}
        spreads = {name: (q[2] - q[0]) / 2 / medians[name] for name, q in quartiles.items()}
        yield Measure(f"CPU of a durable append, {format}", "µs", medians, spreads)
        alone = {"holdfast": medians["the checks alone"]}
        name = f"owner's checks in it, {format}"
        yield Measure(name, "µs", alone, {"holdfast": 0.0}, aims={"holdfast": 10})


class _NoChecks:
    is_ours = True

    def check(self) -> None:
        pass


def mixed_appends(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    peers = Peers(kind)
    batch = [random.randbytes(random.randrange(16, 240)) for _ in range(1000)]
    contenders = {
        "holdfast": lambda: peers.log.append(batch),
        "raw pwrite+fdatasync": lambda: peers.append_raw(batch),
    }
    medians, spreads = race(contenders, rounds=int(200 * scale) or 3, per=1e-6)
    name = "durable append, 1000 × 16..240 B"
    yield Measure(name, "µs", medians, spreads, aims={"raw pwrite+fdatasync": 0.72})
    peers.close()


def threads(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    peers, lock = Peers(kind), threading.Lock()
    payload = [random.randbytes(128)]

    def locked(append: Appender) -> Appender:
        def call(payloads: list[bytes]) -> None:
            with lock:
                append(payloads)

        return call

    appenders = {
        "holdfast": peers.log.append,
        "SQLite WAL FULL": locked(peers.append_sqlite),  # one connection has one transaction
        "LMDB": peers.append_lmdb,
        "RocksDB": peers.append_rocks,
    }
    each = max(2, int(20 * scale))

    def together(append: Appender) -> None:
        def work() -> None:
            for _ in range(each):
                append(payload)

        running = [threading.Thread(target=work) for _ in range(64)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    contenders = {name: partial(together, append) for name, append in appenders.items()}
    medians, spreads = race(contenders, rounds=5, per=64 * each * 1e-6)
    hopes = dict.fromkeys([name for name in medians if name != "holdfast"], 8.0)
    yield Measure("64 threads append 128 B each", "µs", medians, spreads, aims=hopes)
    peers.close()


class Filled:
    """The same entries in a sealed log, SQLite and LMDB."""

    def __init__(self, kind: Kind, count: int, size: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        self.count, self.size = count, size
        payloads = [random.randbytes(size) for _ in range(1000)]
        with kind.owner(OsDisk(self.directory / "log")) as log:
            self.sqlite = sqlite3.connect(self.directory / "sqlite", isolation_level=None)
            self.sqlite.execute("pragma journal_mode=wal")
            self.sqlite.execute("pragma synchronous=off")
            self.sqlite.execute("create table log (i integer primary key, payload blob)")
            self.lmdb = lmdb.open(str(self.directory / "lmdb"), map_size=1 << 34, sync=False)
            for start in range(0, count, 1000):
                log.append(payloads)
                self.sqlite.execute("begin")
                self.sqlite.executemany(
                    "insert into log (payload) values (?)", [(p,) for p in payloads]
                )
                self.sqlite.execute("commit")
                with self.lmdb.begin(write=True) as transaction:
                    for i, payload in enumerate(payloads, start + 1):
                        transaction.put(i.to_bytes(8, "big"), payload, append=True)
            log.rotate()

    def close(self) -> None:
        self.sqlite.close()
        self.lmdb.close()
        shutil.rmtree(self.directory)


def scans(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    for count, size in ((600_000, 100), (100_000, 1024)):
        filled = Filled(kind, int(count * scale) // 1000 * 1000, size)

        def ours(filled: Filled = filled) -> None:
            guest = kind.guest(OsDisk(filled.directory / "log"))
            rows = sum(batch.num_rows for batch in guest.scan())
            assert rows == filled.count

        def sqlite(filled: Filled = filled) -> None:
            rows = filled.sqlite.execute("select i, payload from log").fetchall()
            assert len(rows) == filled.count

        def through_lmdb(filled: Filled = filled) -> None:
            with filled.lmdb.begin() as transaction:
                assert sum(1 for _ in transaction.cursor()) == filled.count

        contenders = {"holdfast": ours, "SQLite": sqlite, "LMDB": through_lmdb}
        gigabytes = filled.count * size / 1e9
        medians, spreads = race(contenders, rounds=7, clock=time.process_time)
        rates = {name: gigabytes / median for name, median in medians.items()}
        name, hopes = f"scan with every checksum, {size} B entries (CPU)", kind.scan_aims[size]
        yield Measure(name, "GB/s", rates, spreads, higher_is_better=True, aims=hopes)
        filled.close()


def random_reads(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    filled = Filled(kind, 200_000, 100)
    guest = kind.guest(OsDisk(filled.directory / "log"))
    wanted = [random.randrange(1, filled.count) for _ in range(max(100, int(20_000 * scale)))]
    guest.read(1)

    def ours() -> None:
        for index in wanted:
            guest.read(index)

    def sqlite() -> None:
        for index in wanted:
            filled.sqlite.execute("select payload from log where i=?", (index,)).fetchone()

    def through_lmdb() -> None:
        for index in wanted:
            with filled.lmdb.begin() as transaction:
                transaction.get(index.to_bytes(8, "big"))

    contenders = {"holdfast": ours, "SQLite": sqlite, "LMDB": through_lmdb}
    medians, spreads = race(contenders, rounds=9, per=len(wanted) * 1e-6)
    yield Measure("random read of 100 B", "µs", medians, spreads, aims={"LMDB": 2, "SQLite": 6})
    filled.close()


def recovery(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    log = kind.owner(OsDisk(directory))
    payloads = [random.randbytes(100) for _ in range(1000)]
    while log.segments()[-1].size < 64e6 * scale:
        log.append(payloads)
    (segment,) = log.segments()
    log.close()

    def open_it() -> None:
        kind.forget(directory)
        kind.owner(OsDisk(directory)).close()

    def read_it() -> None:
        (directory / segment.name).read_bytes()

    medians, spreads = race({"holdfast": open_it, "reading the bytes": read_it}, rounds=7, per=1e-3)
    name = "recovery of a full 64 MiB tail, 100 B entries"
    yield Measure(name, "ms", medians, spreads, aims={"holdfast": kind.recovery_aim_ms})
    shutil.rmtree(directory)


def compaction(scale: float, kind: Kind = SHANGHAI) -> Iterator[Measure]:
    times: list[float] = []
    for _ in range(3):
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        log = kind.owner(OsDisk(directory))
        batch = [random.randbytes(1024) for _ in range(1000)]
        for _ in range(max(20, int(200 * scale))):
            log.append(batch)
        started = time.perf_counter()
        kind.remove_head(log, int(log.last_index * 0.95) + 1)
        times.append((time.perf_counter() - started) * 1e3)
        log.close()
        shutil.rmtree(directory)
    medians, spreads = (
        {"holdfast": sorted(times)[1]},
        {"holdfast": (max(times) - min(times)) / 2 / sorted(times)[1]},
    )
    name = "removing 190,000 of 200,000 × 1 KiB "
    yield Measure(name, "ms", medians, spreads, aims={"holdfast": 50})


def imports(scale: float) -> Iterator[Measure]:
    def start(code: str) -> Any:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    contenders = {"holdfast": start("import holdfast"), "python alone": start("pass")}
    medians, spreads = race(contenders, rounds=15, per=1e-3)
    yield Measure("import holdfast", "ms", medians, spreads)


def simulator(scale: float) -> Iterator[Measure]:
    """Crash images per second of CPU: drawn, and of these the distinct ones, which are judged."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # it would tell of each recovery
    explorer = Explorer(ShanghaiSubject(), images_per_point=22)
    sequences = list(explorer.sequences(3))
    random.shuffle(sequences)
    rates: dict[str, list[float]] = {"holdfast": [], "of these distinct": []}
    for sequence in sequences[: max(5, int(60 * scale))]:
        started, drawn, judged = time.process_time(), explorer.drawn, explorer.images
        explorer.every_crash_point(sequence)
        spent = time.process_time() - started
        rates["holdfast"].append((explorer.drawn - drawn) / spent)
        rates["of these distinct"].append((explorer.images - judged) / spent)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    quartiles = {name: statistics.quantiles(found, n=4) for name, found in rates.items()}
    spreads = {name: (q[2] - q[0]) / 2 / medians[name] for name, q in quartiles.items()}
    name, aims = "simulated crash images per second of CPU", {"holdfast": 5000.0}
    yield Measure(name, "1/s", medians, spreads, higher_is_better=True, aims=aims)
