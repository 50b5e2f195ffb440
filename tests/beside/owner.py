"""An owner that is always at work.  `python -m tests.beside.owner FORMAT PATH SECONDS`

A supervisor forks one child after the other.  Each child opens the store as its owner and appends,
rotates, truncates, compacts and reopens it, until it ends by itself or is killed.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.beside.bar_rows import BARS, SYMBOLS, TICKS, YEARS, bars_of, marker_of, ticks_of
from tests.beside.payloads import COUNTER, Counter, make

from holdfast.bars import BarStore
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.formats.raft_entry import RaftEntry
from holdfast.logs.file_log import FileLog, SyncMode
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal
from holdfast.logs.retention import Retention
from holdfast.logs.shanghai import ShanghaiLog

_SEGMENT_SIZE = 96 * 1024
_LOG_SIZE = 16 * _SEGMENT_SIZE


def main() -> None:
    kind, path, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    random, until, life = Random(kind), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        life += 1
        child = os.fork()
        if child == 0:
            live(kind, path, Random(f"{kind} {life}"))
        _watch(child, min(until, time.monotonic() + random.uniform(0.5, 4)))


def _watch(child: int, until: float) -> None:
    """Kill the child at that time, unless it ends by itself; end with it if it fails."""
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                sys.exit(f"the owner failed: {status:#x}")
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def live(kind: str, path: Path, random: Random) -> None:
    """One life, in a process of its own."""
    code = 1
    try:
        if kind == "bars":
            _write_bars(path, random)
        else:
            _Logger(kind, path, random).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Logger:
    """The owner of a log of any format."""

    def __init__(self, kind: str, path: Path, random: Random) -> None:
        self._kind, self._path, self._random = kind, path, random
        self._counter = Counter(path.parent / COUNTER)
        self._log = self._open()
        with self._counter.truncating() as self._generation:
            pass

    def run(self) -> None:
        steps: list[tuple[float, Callable[[], None]]] = [
            (0.02, self._compact),
            (0.01, self._truncate),
            (0.01, self._rotate),
            (0.01, self._reopen),
            (0.02, self._set_state),
            (1.0, self._append),
        ]
        for _ in range(self._random.randrange(100, 3000)):
            draw = self._random.random()
            next(step for share, step in steps if draw < share)()
            _rest(self._random)
        self._log.close()

    def _open(self) -> Any:
        disk = OsDisk(self._path)
        if self._kind == "shanghai":
            return ShanghaiLog(disk, segment_size_max=_SEGMENT_SIZE)
        if self._kind == "raft-wal":
            # Some tails are small, some have much unwritten space behind their entries.
            size = self._random.choice([_SEGMENT_SIZE, _SEGMENT_SIZE, 4 * 2**20])
            return RaftWal(disk, codec=RAFT_CODEC, segment_size_max=size, segment_fill_ms=None)
        mode: SyncMode = self._random.choice(["ordered", "original"])
        return FileLog(
            disk,
            capacity=256,
            segment_size_max=_SEGMENT_SIZE,
            sync_mode=mode,
            request_ttl_ms=50,  # else no file may go
        )

    def _append(self) -> None:
        random, first = self._random, self._log.last_index + 1
        count = 1 + int(random.expovariate(1 / 6))
        most = random.choice([64, 64, 1000, 1000, 9000, 9000, 100_000])
        payloads = [make(first + i, self._generation, random.randrange(most)) for i in range(count)]
        if self._kind == "raft-wal":
            numbered = enumerate(payloads, first)
            self._log.store_logs([RaftEntry(i, self._generation, 0, data) for i, data in numbered])
        else:
            self._log.append(payloads)

    def _compact(self) -> None:
        if self._kind == "file-log":  # only what a snapshot covers may go
            index = self._log.last_index - self._random.randrange(100, 1000)
            if index > self._log.snapshot.index:
                self._log.create_snapshot(index, b"state")
        limits = Retention(size_max=self._random.choice([_LOG_SIZE, _LOG_SIZE, _LOG_SIZE // 8]))
        self._log.trim(limits)
        if self._kind == "raft-wal" and self._random.random() < 0.1:
            self._log.truncate_head(self._log.last_index + 1 - self._random.randrange(3))

    def _truncate(self) -> None:
        if self._kind == "shanghai":
            return
        room = self._log.last_index + 1 - self._log.first_index
        gone = min(room, int(self._random.expovariate(1 / 40)))
        with self._counter.truncating() as self._generation:
            self._log.truncate_tail(self._log.last_index - gone)

    def _rotate(self) -> None:
        self._log.rotate()

    def _reopen(self) -> None:
        self._log.close()
        self._log = self._open()

    def _set_state(self) -> None:
        if self._kind == "raft-wal":
            for term in range(self._random.randrange(20)):
                self._log.set_uint64(b"CurrentTerm", term)


def _write_bars(path: Path, random: Random) -> None:
    """Groups that rewrite rows in place, new years, ticks, deletions, and write-backs."""
    counter = Counter(path.parent / COUNTER)
    for _ in range(random.randrange(1, 4)):
        with open_bars(
            path, create=True, flush_ms=random.choice([5, 50]), wal_size_max=1 << 16
        ) as store:
            for _ in range(random.randrange(20, 400)):
                with counter.truncating() as version:
                    _write_group(store, version, random)
                _rest(random)


def _rest(random: Random) -> None:
    """Leave the processor to the guests, now and then; else there is nobody to be beside."""
    if random.random() < 0.7:
        time.sleep(random.expovariate(1 / 0.006))


def _write_group(store: BarStore, version: int, random: Random) -> None:
    group = store.group()
    year = random.choice(YEARS)
    first, count = random.randrange(4000), int(random.expovariate(1 / 100))
    for symbol in SYMBOLS:
        group.write(marker_of(symbol, version), "1Min", BARS, symbol=symbol)
        rows = np.arange(first, first + count + 1)
        group.write(bars_of(symbol, year, rows, version), "1Min", BARS, symbol=symbol)
    ticks = np.arange(first, first + random.randrange(1, 20)) // 4
    symbol = random.choice(SYMBOLS)
    group.write(
        ticks_of(symbol, year, ticks, version), "1Min", TICKS, symbol=symbol, is_variable=True
    )
    group.commit()
    if random.random() < 0.02:
        with suppress(ValueError):  # this bucket is not there yet
            start, stop = f"{year}-01-05", f"{year}-01-05T00:01"
            store.delete(symbol, "1Min", random.choice([BARS, TICKS]), start=start, stop=stop)
    if random.random() < 0.02:
        store.flush()


if __name__ == "__main__":
    main()
