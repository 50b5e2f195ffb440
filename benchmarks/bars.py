"""The bar store: commit, write-back and queries of ten thousand symbols, and the design's table."""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Measure, race
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.testing.bars import BarExplorer

START_NS, MINUTE_NS = 1_609_718_400 * 10**9, 60 * 10**9
PRICES = ("Open", "High", "Low", "Close")


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (commits, dense_years, files_at_once, simulator):
        if only in measure.__name__:
            yield from measure(scale)


def one_minute(names: "pa.Array", minute: int) -> pa.Table:
    random, count = np.random.default_rng(minute), len(names)
    times = np.full(count, START_NS + minute * MINUTE_NS)
    columns = {name: random.random(count).astype("f4") for name in PRICES}
    volume = random.integers(0, 50_000, count).astype("i4")
    stamps = pa.array(times).view(pa.timestamp("ns", "UTC"))
    return pa.table({"symbol": names, "time": stamps, **columns, "Volume": volume})


def spent(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return (time.perf_counter() - started) * 1e3


def measured(name: str, times: list[float], aim: float, unit: str = "ms") -> Measure:
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [median] * 3
    spread = (quartiles[2] - quartiles[0]) / 2 / median
    return Measure(name, unit, {"holdfast": median}, {"holdfast": spread}, aims={"holdfast": aim})


def commits(scale: float) -> Iterator[Measure]:
    for count in (10_000, 20_000):
        yield from minutes(max(100, int(count * scale)), count / 10_000)


def minutes(count: int, share: float) -> Iterator[Measure]:
    """A minute's bars of all symbols: durable; in the year files; and the last of each."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    names = pa.array([f"SYM{number:05}" for number in range(count)])
    with open_bars(directory, create=True) as store:
        first = one_minute(names, 0)
        begun = [spent(lambda: (store.write(first, "1Min", "OHLCV"), store.flush()))]
        durable, written = [], []
        for minute in range(1, 31):
            write = partial(store.write, one_minute(names, minute), "1Min", "OHLCV")
            durable.append(spent(write))
            written.append(durable[-1] + spent(store.flush))
        yield measured(f"first bar of {count} new symbols, written back", begun, 8100 * share)
        yield measured(f"durable commit of a bar for {count} symbols", durable, 40 * share)
        yield measured("the same, written back", written, 400 * share)
        symbols = names.to_pylist()
        times = [spent(lambda: store.latest(symbols, "1Min", "OHLCV")) for _ in range(3)]
        yield measured(f"latest bar of {count} symbols", times, 2000 * share)
    shutil.rmtree(directory)


def dense_years(scale: float) -> Iterator[Measure]:
    """A year of minutes of one symbol, beside Parquet with the same rows."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    count = 525_600
    times = pa.array(np.arange(count) * MINUTE_NS + 1_609_459_200 * 10**9)
    columns = {name: np.random.default_rng(1).random(count).astype("f4") for name in PRICES}
    stamps = times.view(pa.timestamp("ns", "UTC"))
    table = pa.table({"time": stamps, **columns, "Volume": np.arange(count, dtype="i4")})
    pq.write_table(table, directory / "year.parquet")
    with open_bars(directory / "root", create=True) as store:
        store.write(table, "1Min", "OHLCV", symbol="DENSE")
        store.flush()

        def query() -> None:
            assert len(store.query("DENSE", "1Min", "OHLCV")) == count

        contenders = {
            "holdfast": query,
            "Parquet": lambda: pq.read_table(directory / "year.parquet", use_threads=False),
        }
        medians, spreads = race(contenders, rounds=max(5, int(25 * scale)), per=1e-3)
        aims = {"holdfast": 15.0}
        yield Measure("a dense symbol-year to Arrow", "ms", medians, spreads, aims=aims)
        bulk = [
            spent(lambda: (store.write(table, "1Min", "OHLCV", symbol="DENSE"), store.flush()))
            for _ in range(3)
        ]
        yield measured("a dense symbol-year written, durable and written back", bulk, 3200)
    shutil.rmtree(directory)


def files_at_once(scale: float) -> Iterator[Measure]:
    """The table of the design: create, write and sync so many files; then write and sync again."""
    for count in (10, 100, 1000, 10_000, 100_000):
        if count > 100_000 * scale and count > 1000:
            continue
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        disk, record = OsDisk(directory), os.urandom(32)
        volume = disk.volume()

        def write(disk: OsDisk = disk, count: int = count, record: bytes = record) -> None:
            for number in range(count):
                file = disk.open(f"{number}", writable=True)
                file.write_at(37_024, record)
                file.close()

        def create(disk: OsDisk = disk, count: int = count) -> None:
            for number in range(count):
                disk.make(f"{number}").close()

        steps = {"create": create, "write": write, "sync": volume.sync}
        took = {name: spent(step) for name, step in steps.items()}
        took |= {"write again": spent(write), "sync again": spent(volume.sync)}
        for name, time_ms in took.items():
            yield Measure(f"{count} files, {name}", "ms", {"holdfast": time_ms}, {"holdfast": 0.0})
        volume.close()
        shutil.rmtree(directory)


def simulator(scale: float) -> Iterator[Measure]:
    """Crash images of whole stores per second of CPU."""
    explorer, rates = BarExplorer(images_per_point=12), []
    for sequence in list(explorer.sequences(2))[: max(5, int(60 * scale))]:
        started, seen = time.process_time(), explorer.images
        explorer.every_crash_point(sequence)
        if explorer.images > seen:
            rates.append((explorer.images - seen) / (time.process_time() - started))
    median = statistics.median(rates)
    quartiles = statistics.quantiles(rates, n=4)
    spreads = {"holdfast": (quartiles[2] - quartiles[0]) / 2 / median}
    name = "simulated crash images of stores per second of CPU"
    yield Measure(name, "1/s", {"holdfast": median}, spreads, higher_is_better=True)
