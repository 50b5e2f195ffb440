"""The FileLog beside zmq-raft itself, run by Node, and beside raw writes.

zmq-raft gets its commands through a pipe; its times include a round trip of about 0.05 ms.  Its
entries are made in its own process, so that no data goes through the pipe.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.interop.zmq_raft.node import Node, find_package

from benchmarks import logs
from benchmarks.harness import Measure, race
from holdfast import create_log, open_log, read_log

_THEIRS = "zmq-raft 0.5.0"


def run(scale: float, only: str) -> Iterator[Measure]:
    package, reason = find_package()
    if package is None:
        raise SystemExit(reason)
    node = Node(package)
    for measure in (appends, opening, scans):
        if only in measure.__name__:
            yield from measure(scale, node)
    for shared in (logs.threads, logs.random_reads):
        if only in shared.__name__:
            yield from shared(scale, ("file-log",))
    node.stop()


def appends(scale: float, node: Node) -> Iterator[Measure]:
    for size, rounds in ((1, 400), (100, 200), (1000, 100)):
        with _directory() as directory:
            node("open", directory=str(directory / "theirs"), capacity=16384)
            raw = os.open(directory / "raw", os.O_CREAT | os.O_RDWR)
            batch = [random.randbytes(128) for _ in range(size)]
            with create_log(directory / "ours", format="file-log") as log:
                contenders: dict[str, Callable[[], object]] = {
                    "holdfast": partial(log.append, batch),
                    _THEIRS: partial(node, "fill", count=size, size=128),
                    "raw pwrite+fdatasync": _raw(raw, 148 * size, 4 * size),
                }
                medians, spreads = race(contenders, rounds=int(rounds * scale) or 3, per=1e-6)
            os.close(raw)
            node("close")
        yield Measure(f"FileLog: durable append, {size} × 128 B", "µs", medians, spreads)


def opening(scale: float, node: Node) -> Iterator[Measure]:
    with _directory() as directory:
        _fill(directory, node, int(100_000 * scale), 100)

        def ours() -> None:
            open_log(directory / "ours").close()

        def theirs() -> None:
            node("open", directory=str(directory / "theirs"))
            node("close")

        medians, spreads = race({"holdfast": ours, _THEIRS: theirs}, rounds=5, per=1e-3)
    aims = {"holdfast": 100.0, _THEIRS: 10.0}
    yield Measure("FileLog: opening 100,000 entries", "ms", medians, spreads, aims=aims)


def scans(scale: float, node: Node) -> Iterator[Measure]:
    for size in (100, 1024):
        with _directory() as directory:
            count = max(1000, int(100_000 * scale) // 1000 * 1000)
            _fill(directory, node, count, size)
            node("open", directory=str(directory / "theirs"))

            def ours(path: Path = directory / "ours", count: int = count) -> None:
                with read_log(path) as reader:
                    assert sum(batch.num_rows for batch in reader.scan()) == count

            def theirs(count: int = count) -> None:
                assert node("scan") == count

            medians, spreads = race({"holdfast": ours, _THEIRS: theirs}, rounds=5)
            node("close")
        rates = {name: count * size / 1e9 / median for name, median in medians.items()}
        aims = {_THEIRS: 50.0} | ({"holdfast": 1.3} if size == 1024 else {})
        yield Measure(
            f"FileLog: opened and scanned, {size} B entries", "GB/s", rates, spreads,
            higher_is_better=True, aims=aims,
        )  # fmt: skip


def _fill(directory: Path, node: Node, count: int, size: int) -> None:
    node("open", directory=str(directory / "theirs"), capacity=16384)
    with create_log(directory / "ours", format="file-log") as log:
        for _ in range(0, count, 1000):
            node("fill", count=1000, size=size)
            log.append([b"x" * size] * 1000)
    node("close")


def _raw(file: int, data_size: int, slots_size: int) -> Callable[[], None]:
    """As many bytes as the log writes, in the same two places and with as many syncs."""
    data, slots, at = random.randbytes(data_size), random.randbytes(slots_size), [65536]

    def write() -> None:
        os.pwrite(file, data, at[0])
        os.fdatasync(file)
        os.pwrite(file, slots, 24)
        os.fdatasync(file)
        at[0] += len(data)

    return write


@contextmanager
def _directory() -> Iterator[Path]:
    """A new one on this disk, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path)
