"""Logs of the default format (raft-wal, plain payloads) and Shanghai logs beside other stores.

"holdfast" is the default.  The others are raw writes, SQLite, LMDB, RocksDB and LevelDB.
"""

import asyncio
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
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import plyvel
import rocksdict

import holdfast
from benchmarks.harness import Measure, race
from holdfast.logs.mark import MARK, REMEMBERED
from holdfast.logs.retention import Retention
from holdfast.testing import Explorer
from holdfast.testing.shanghai import ShanghaiSubject

Appender = Callable[[list[bytes]], object]
Contenders = dict[str, Callable[[], object]]
FORMATS = ("raft-wal", "shanghai")  # the first one is "holdfast"
RAW, RAW_ALLOCATED = "raw pwrite+fdatasync", "raw, in an allocated file"
_ALLOCATED_SIZE = 64 * 2**20


def create(path: Path, format: str, **options: Any) -> Any:
    """Create a log for plain payloads."""
    return holdfast.create_log(path, format=format, **options)


def label(format: str, formats: Sequence[str]) -> str:
    return "holdfast" if format == formats[0] else f"holdfast, {format}"


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (
        appends,
        owner_checks,
        marks,
        mixed_appends,
        threads,
        tasks,
        scans,
        random_reads,
        recovery,
        trimming,
        imports,
        simulator,
    ):
        if only in measure.__name__:
            yield from measure(scale)


class Peers:
    """Everything that appends durably, in a directory of its own."""

    def __init__(self, formats: Sequence[str] = FORMATS) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        self.logs = {
            label(format, formats): create(self.directory / format, format) for format in formats
        }
        flags = os.O_CREAT | os.O_RDWR
        self.raw = {name: os.open(self.directory / name, flags) for name in (RAW, RAW_ALLOCATED)}
        self.raw_at = dict.fromkeys(self.raw, 0)
        os.posix_fallocate(self.raw[RAW_ALLOCATED], 0, _ALLOCATED_SIZE)
        os.fsync(self.raw[RAW_ALLOCATED])
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

    def append_raw(self, name: str, payloads: list[bytes]) -> None:
        data = b"".join(payloads) + bytes(8 * len(payloads))  # as many bytes as a log writes
        if name == RAW_ALLOCATED and self.raw_at[name] + len(data) > _ALLOCATED_SIZE:
            self.raw_at[name] = 0
        os.pwrite(self.raw[name], data, self.raw_at[name])
        os.fdatasync(self.raw[name])
        self.raw_at[name] += len(data)

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
            **{name: log.append for name, log in self.logs.items()},
            **{name: partial(self.append_raw, name) for name in self.raw},
            "SQLite WAL FULL": self.append_sqlite,
            "LMDB": self.append_lmdb,
            "RocksDB": self.append_rocks,
            "LevelDB": self.append_level,
        }

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        for raw in self.raw.values():
            os.close(raw)
        self.sqlite.close()
        self.lmdb.close()
        self.rocks.close()
        self.level.close()
        shutil.rmtree(self.directory)


def appends(scale: float) -> Iterator[Measure]:
    peers = (RAW_ALLOCATED, "SQLite WAL FULL", "LMDB", "RocksDB", "LevelDB")
    aims = {
        1: (0.93, 1.8, 1.8, 1.1, 1.05),
        100: (0.87,),
        1000: (0.82, 4.5, 2, 2.2, 2.2),
    }
    for size, rounds in ((1, 600), (100, 300), (1000, 150)):
        stores = Peers()
        batch = [random.randbytes(128) for _ in range(size)]
        contenders = {name: partial(append, batch) for name, append in stores.all().items()}
        medians, spreads = race(contenders, rounds=int(rounds * scale) or 3, per=1e-6)
        hopes = dict(zip(peers, aims[size], strict=False))
        yield Measure(f"durable append, {size} × 128 B", "µs", medians, spreads, aims=hopes)
        stores.close()


def owner_checks(scale: float) -> Iterator[Measure]:
    """Measure the CPU time of checking, before each commit, that this process is the owner.

    Appends with and without the checks take turns.  Each waits for the disk, as every durable
    append does, so that the next one finds the caches as cold as they are in use.
    """
    for format in (*FORMATS, "file-log"):
        yield from _cost_of("_lock", _NoChecks(), "owner's checks", format, scale)


def marks(scale: float) -> Iterator[Measure]:
    """Measure the CPU time of moving the mark after each commit, in the same way."""
    for format in FORMATS:
        yield from _cost_of("_mark", _NoMark(), "moving the mark", format, scale)


def _cost_of(part: str, nothing: Any, what: str, format: str, scale: float) -> Iterator[Measure]:
    """Measure the CPU time of a durable append with a part of the owner, and with `nothing`."""
    directory = tempfile.mkdtemp(prefix="bench-", dir=".")
    log = create(Path(directory, "log"), format)
    payload, real = [random.randbytes(128)], getattr(log, part)
    parts = {"holdfast": real, f"without {what}": nothing}
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(int(1500 * scale) or 3):
        for name in random.sample(list(parts), len(parts)):
            setattr(log, part, parts[name])
            started = time.thread_time_ns()
            log.append(payload)
            times[name].append((time.thread_time_ns() - started) / 1e3)
    setattr(log, part, real)
    log.close()
    shutil.rmtree(directory)
    times[f"{what} alone"] = [a - b for a, b in zip(*times.values(), strict=True)]
    medians = {name: statistics.median(found) for name, found in times.items()}
    quartiles = {name: statistics.quantiles(found, n=4) for name, found in times.items()}
    spreads = {name: (q[2] - q[0]) / 2 / medians[name] for name, q in quartiles.items()}
    yield Measure(f"CPU of a durable append, {format}", "µs", medians, spreads)
    alone = {"holdfast": medians[f"{what} alone"]}
    yield Measure(f"{what} in it, {format}", "µs", alone, {"holdfast": 0.0}, aims={"holdfast": 10})


class _NoChecks:
    is_ours = True

    def check(self) -> None:
        pass


class _NoMark:
    def advance(self, size: int, last_index: int, tail_crc: int, word: bytes) -> None:
        pass


def mixed_appends(scale: float) -> Iterator[Measure]:
    peers = Peers()
    batch = [random.randbytes(random.randrange(16, 240)) for _ in range(1000)]
    appenders = peers.all()
    wanted = (*peers.logs, RAW, RAW_ALLOCATED)
    contenders = {name: partial(appenders[name], batch) for name in wanted}
    medians, spreads = race(contenders, rounds=int(200 * scale) or 3, per=1e-6)
    name = "durable append, 1000 × 16..240 B"
    yield Measure(name, "µs", medians, spreads, aims={RAW_ALLOCATED: 0.72})
    peers.close()


def threads(scale: float, formats: Sequence[str] = FORMATS) -> Iterator[Measure]:
    peers, lock = Peers(formats), threading.Lock()
    payload = [random.randbytes(128)]

    def append_to_sqlite(payloads: list[bytes]) -> None:
        with lock:  # one connection has one transaction
            peers.append_sqlite(payloads)

    appenders = {
        **{name: log.append for name, log in peers.logs.items()},
        "SQLite WAL FULL": append_to_sqlite,
        "LMDB": peers.append_lmdb,
        "RocksDB": peers.append_rocks,
    }
    each = max(2, int(20 * scale))
    contenders = {
        name: partial(_in_threads, partial(append, payload), each)
        for name, append in appenders.items()
    }
    medians, spreads = race(contenders, rounds=5, per=64 * each * 1e-6)
    hopes = dict.fromkeys(("SQLite WAL FULL", "LMDB", "RocksDB"), 8.0)
    yield Measure("64 threads append 128 B each", "µs", medians, spreads, aims=hopes)
    peers.close()


def _in_threads(append: Callable[[], object], each: int) -> None:
    def work() -> None:
        for _ in range(each):
            append()

    running = [threading.Thread(target=work) for _ in range(64)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def _run(step: Callable[[Any], Coroutine[Any, Any, None]], log: Any) -> None:
    asyncio.run(step(log))


def tasks(scale: float) -> Iterator[Measure]:
    """Compare 64 asyncio tasks that await `submit` with 64 threads that call `append`."""
    peers, payload = Peers(), [random.randbytes(128)]
    each = max(2, int(20 * scale))

    async def work(log: Any) -> None:
        for _ in range(each):
            await log.submit(payload)

    async def together(log: Any) -> None:
        await asyncio.gather(*(work(log) for _ in range(64)))

    contenders: Contenders = {}
    for name, log in peers.logs.items():
        contenders[name] = partial(_run, together, log)
        contenders[f"{name}, 64 threads"] = partial(_in_threads, partial(log.append, payload), each)
    medians, spreads = race(contenders, rounds=5, per=64 * each * 1e-6)
    yield Measure("64 asyncio tasks submit 128 B each", "µs", medians, spreads)
    peers.close()


class Filled:
    """The same entries in sealed logs, SQLite and LMDB."""

    def __init__(self, formats: Sequence[str], count: int, size: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        self.count, self.size = count, size
        self.logs = {label(format, formats): self.directory / format for format in formats}
        payloads = [random.randbytes(size) for _ in range(1000)]
        with ExitStack() as stack:
            logs = [stack.enter_context(create(self.directory / name, name)) for name in formats]
            self.sqlite = sqlite3.connect(self.directory / "sqlite", isolation_level=None)
            self.sqlite.execute("pragma journal_mode=wal")
            self.sqlite.execute("pragma synchronous=off")
            self.sqlite.execute("create table log (i integer primary key, payload blob)")
            self.lmdb = lmdb.open(str(self.directory / "lmdb"), map_size=1 << 34, sync=False)
            for start in range(0, count, 1000):
                for log in logs:
                    log.append(payloads)
                self.sqlite.execute("begin")
                self.sqlite.executemany(
                    "insert into log (payload) values (?)", [(p,) for p in payloads]
                )
                self.sqlite.execute("commit")
                with self.lmdb.begin(write=True) as transaction:
                    for i, payload in enumerate(payloads, start + 1):
                        transaction.put(i.to_bytes(8, "big"), payload, append=True)
            for log in logs:
                log.rotate()

    def close(self) -> None:
        self.sqlite.close()
        self.lmdb.close()
        shutil.rmtree(self.directory)


def scans(scale: float) -> Iterator[Measure]:
    for count, size in ((600_000, 100), (100_000, 1024)):
        filled = Filled(FORMATS, max(1000, int(count * scale) // 1000 * 1000), size)

        def scan(path: Path, filled: Filled = filled) -> None:
            with holdfast.read_log(path) as reader:
                assert sum(batch.num_rows for batch in reader.scan()) == filled.count

        def sqlite(filled: Filled = filled) -> None:
            rows = filled.sqlite.execute("select i, payload from log").fetchall()
            assert len(rows) == filled.count

        def through_lmdb(filled: Filled = filled) -> None:
            with filled.lmdb.begin() as transaction:
                assert sum(1 for _ in transaction.cursor()) == filled.count

        ours = {name: partial(scan, path) for name, path in filled.logs.items()}
        contenders: Contenders = {**ours, "SQLite": sqlite, "LMDB": through_lmdb}
        gigabytes = filled.count * size / 1e9
        medians, spreads = race(contenders, rounds=7, clock=time.process_time)
        rates = {name: gigabytes / median for name, median in medians.items()}
        name, hopes = (
            f"scan with every checksum, {size} B entries (CPU)",
            {"SQLite": 6, "LMDB": 2.5},
        )
        yield Measure(name, "GB/s", rates, spreads, higher_is_better=True, aims=hopes)
        filled.close()


def random_reads(scale: float, formats: Sequence[str] = FORMATS) -> Iterator[Measure]:
    filled = Filled(formats, 200_000, 100)
    readers = {name: holdfast.read_log(path) for name, path in filled.logs.items()}
    wanted = [random.randrange(1, filled.count) for _ in range(max(100, int(20_000 * scale)))]

    def read(log: holdfast.LogReader) -> None:
        for index in wanted:
            log.read(index)

    def sqlite() -> None:
        for index in wanted:
            filled.sqlite.execute("select payload from log where i=?", (index,)).fetchone()

    def through_lmdb() -> None:
        for index in wanted:
            with filled.lmdb.begin() as transaction:
                transaction.get(index.to_bytes(8, "big"))

    ours = {name: partial(read, log) for name, log in readers.items()}
    contenders: Contenders = {**ours, "SQLite": sqlite, "LMDB": through_lmdb}
    medians, spreads = race(contenders, rounds=9, per=len(wanted) * 1e-6)
    yield Measure("random read of 100 B", "µs", medians, spreads, aims={"LMDB": 2, "SQLite": 6})
    for log in readers.values():
        log.close()
    filled.close()


def recovery(scale: float) -> Iterator[Measure]:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    payloads = [random.randbytes(100) for _ in range(1000)]
    contenders: Contenders = {}
    for format in FORMATS:
        path = directory / format
        with create(path, format, segment_size_max=2**27) as log:
            while log.segments()[-1].size < 64e6 * scale:
                log.append(payloads)

        def open_it(path: Path = path) -> None:
            for name in ("metadata.json", MARK, REMEMBERED):  # the mark spares some of the work
                (path / name).unlink(missing_ok=True)
            holdfast.open_log(path).close()

        contenders[label(format, FORMATS)] = open_it
    newest = max((directory / "shanghai").glob("segment_*"))
    contenders["reading the bytes"] = newest.read_bytes
    medians, spreads = race(contenders, rounds=7, per=1e-3)
    name = "recovery of a full 64 MiB tail, 100 B entries"
    yield Measure(name, "ms", medians, spreads, aims={"holdfast": 60})
    shutil.rmtree(directory)


def trimming(scale: float) -> Iterator[Measure]:
    times: dict[str, list[float]] = {label(format, FORMATS): [] for format in FORMATS}
    for format in FORMATS * 3:
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        batch = [random.randbytes(1024) for _ in range(1000)]
        with create(directory / "log", format) as log:
            for _ in range(max(20, int(200 * scale))):
                log.append(batch)
            started = time.perf_counter()
            log.trim(Retention(before=int(log.last_index * 0.95) + 1))
            times[label(format, FORMATS)].append((time.perf_counter() - started) * 1e3)
        shutil.rmtree(directory)
    medians = {name: statistics.median(found) for name, found in times.items()}
    spreads = {name: (max(t) - min(t)) / 2 / medians[name] for name, t in times.items()}
    name = "trimming 190,000 of 200,000 × 1 KiB"
    yield Measure(name, "ms", medians, spreads, aims={"holdfast": 50})


def imports(scale: float) -> Iterator[Measure]:
    def start(code: str) -> Any:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    contenders = {"holdfast": start("import holdfast"), "python alone": start("pass")}
    medians, spreads = race(contenders, rounds=15, per=1e-3)
    yield Measure("import holdfast", "ms", medians, spreads)


def simulator(scale: float) -> Iterator[Measure]:
    """Crash images per second of CPU: drawn, and of these the distinct ones, which are judged."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # it reports each recovery
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
