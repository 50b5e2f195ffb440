"""The processes of the service: its owner with many threads, and guests.  Each is a fork."""

import gc
import os
import resource
import shutil
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Any

from tests.service.entries import BATCH_MAX, THREADS, Ledger, Seen, key_of, make

from holdfast.doors.logs import convert_log, create_log, log_replicas, open_log, read_log
from holdfast.errors import ChangedError
from holdfast.logs.log import Log
from holdfast.logs.opening import FORMATS
from holdfast.logs.replicas import Follower
from holdfast.logs.retention import Retention

SEGMENT_SIZE, LOG_SIZE = 16 * 1024, 24 * 16 * 1024
DESCRIPTORS_MAX = 80  # of the owner, however many segments it has
MEMORY_GROWTH_MAX = 64 << 20
REPLICA = "copy"
GUESTS = ("tail", "scan", "verify", "replicate", "convert")


class Shared:
    """Counters that all processes see: what each guest did, and whether it is to stop."""

    def __init__(self) -> None:
        self._memory, self._pid = mmap(-1, 4096), os.getpid()

    def did(self, role: str) -> None:
        at = 8 * (1 + GUESTS.index(role))
        self._memory[at : at + 8] = (self.done(role) + 1).to_bytes(8, "little")

    def done(self, role: str) -> int:
        at = 8 * (1 + GUESTS.index(role))
        return int.from_bytes(self._memory[at : at + 8], "little")

    def stop(self) -> None:
        self._memory[0:1] = b"\1"

    @property
    def is_over(self) -> bool:
        """Whether the processes end; they do so too if the one that started them has ended."""
        return self._memory[0:1] == b"\1" or os.getppid() != self._pid


def options_of(kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {"segment_size_max": SEGMENT_SIZE}
    if kind == "raft-wal":
        options["segment_fill_ms"] = None
    if kind == "file-log":  # else no file may go
        options |= {"request_ttl_ms": None, "requests_max": 50, "capacity": 256}
    return options


def fork(step: Callable[[], None]) -> int:
    """Run `step` in a process of its own; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        step()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Service:
    """The owner: 16 threads append, and this one rotates and trims."""

    def __init__(self, kind: str, place: Path, shared: Shared, life: int, seed: int) -> None:
        self._kind, self._path, self._shared, self._life = kind, place / "log", shared, life
        self._random = Random(f"{kind} {seed} {life}")
        self._ledger = Ledger(place / f"ledger-{life}")
        self._errors: list[str] = []

    def run(self) -> None:
        self._log: Log = open_log(self._path, **options_of(self._kind))
        threads = [
            threading.Thread(target=self._append, args=[number, self._random.random()])
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        sizes: list[int] = []
        while not self._shared.is_over and not self._errors:
            self._keep_small()
            sizes.append(self._measure())
            time.sleep(self._random.random() * 0.05)
        for thread in threads:
            thread.join()
        self._log.close()
        quarter = len(sizes) // 4
        if quarter > 10 and min(sizes[-quarter:]) - max(sizes[:quarter]) > MEMORY_GROWTH_MAX:
            self._errors.append(f"memory grew from {sizes[quarter]} to {sizes[-1]} bytes")
        if self._errors:
            raise AssertionError(self._errors[0])

    def _append(self, thread: int, seed: float) -> None:
        random, number = Random(seed), 0
        try:
            while not self._shared.is_over and not self._errors:
                count = random.randint(1, BATCH_MAX)
                key = key_of(self._life, thread, number)
                last = self._log.append([make(key + i) for i in range(count)])
                self._ledger.acknowledge(last + 1 - count, key, count)
                number += count
                if random.random() < 0.3:
                    time.sleep(random.random() * 0.01)
        except BaseException:
            self._errors.append(traceback.format_exc())

    def _keep_small(self) -> None:
        if self._random.random() < 0.1:
            self._log.rotate()
        if self._kind == "file-log":  # only what a snapshot covers may go
            acknowledged = [one.acknowledged for one in log_replicas(self._path).list()]
            index = min([*acknowledged, self._log.last_index - 800])
            if index > self._log.snapshot.index + 800:  # type: ignore[attr-defined]
                self._log.create_snapshot(index, b"state")  # type: ignore[attr-defined]
        if sum(segment.size for segment in self._log.segments()) > 2 * LOG_SIZE:
            self._log.trim(Retention(size_max=LOG_SIZE))

    def _measure(self) -> int:
        found = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        if found > DESCRIPTORS_MAX:
            gc.collect()
            found = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        if found > DESCRIPTORS_MAX:
            segments = len(self._log.segments())
            self._errors.append(f"{found} descriptors with {segments} segments")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()


class Guests:
    """Readers in other processes.  Only ChangedError is allowed, and never two times in a row
    for long.
    """

    def __init__(self, kind: str, place: Path, shared: Shared, seed: int) -> None:
        self._kind, self._place, self._shared = kind, place, shared
        self._path, self._random, self._seen = place / "log", Random(seed), Seen()

    def run(self, role: str) -> None:
        step: Callable[[], None] = getattr(self, role)
        while not self._shared.is_over:
            with suppress(ChangedError):
                step()
                self._shared.did(role)
            time.sleep(self._random.random() * 0.1)  # leave the processor to the others
        self._seen.save(self._place / f"seen-{role}-{os.getpid()}")

    def tail(self) -> None:
        """Follow the end of the log with one reader."""
        with read_log(self._path) as guest:
            start = guest.first_index
            for _ in range(10):
                self._refuse_damage(guest)
                start = max(start, guest.first_index)
                for batch in guest.scan(start):
                    self._seen.add(batch)
                    start += batch.num_rows
                if start != guest.last_index + 1:
                    raise AssertionError(f"scanned to {start - 1} of {guest.last_index}")
                if self._shared.is_over:
                    break
                time.sleep(self._random.random() * 0.02)
                guest.refresh()

    def scan(self) -> None:
        """Open the log, scan all of it, and read some entries."""
        with read_log(self._path) as guest:
            self._refuse_damage(guest)
            for batch in guest.scan():
                self._seen.add(batch)
            for _ in range(20):
                if guest.first_index <= guest.last_index:
                    index = self._random.randint(guest.first_index, guest.last_index)
                    key = self._seen.keys[index]
                    if guest.read(index) != make(key):
                        raise AssertionError(f"entry {index} was read otherwise than scanned")

    def verify(self) -> None:
        with read_log(self._path) as guest:
            report, status = guest.verify(), guest.status()
        for one in (report, status):
            if one.verdict not in ("clean", "torn tail"):  # torn: it was killed a moment ago
                raise AssertionError(f"a sound log is called damaged: {one}")

    def replicate(self) -> None:
        """Copy some batches; the copy is a log of the same format."""
        with (
            read_log(self._path) as guest,
            open_log(self._place / "copy", **options_of(self._kind)) as copy,
        ):
            follower = Follower(guest, copy, log_replicas(self._path), REPLICA)
            for _ in range(10):
                if not follower.step(64 * 1024):
                    if self._shared.is_over:
                        break
                    time.sleep(0.01)

    def convert(self) -> None:
        """Convert to any format.  What a killed conversion has left is continued."""
        format = self._random.choice(list(FORMATS))
        target = self._place / f"converted-{format}"
        shutil.rmtree(target, ignore_errors=True)
        replicas, is_held = log_replicas(self._path), self._random.random() < 0.5
        if is_held:  # then nothing is trimmed, but for a trim that has begun
            replicas.register("conversion")
        try:
            done = convert_log(self._path, target, format)
        except ChangedError as error:
            if is_held:
                raise AssertionError("entries that a replica needs were removed") from error
            raise
        if "conversion" in replicas.names():
            replicas.forget("conversion")
        with read_log(target) as copy:
            for batch in copy.scan():
                self._seen.add(batch)
            if (copy.first_index, copy.last_index) != (done.first_index, done.last_index):
                raise AssertionError(f"the copy holds {copy!r}, not {done}")
        shutil.rmtree(target)

    def _refuse_damage(self, guest: Any) -> None:
        if guest.damage:
            raise AssertionError(f"a sound log is called damaged: {guest.damage}")


def prepare(kind: str, place: Path) -> None:
    """Create the log, its copy, and the copy's position."""
    create_log(place / "log", format=kind, **options_of(kind)).close()
    create_log(place / "copy", format=kind, **options_of(kind)).close()
    log_replicas(place / "log").register(REPLICA)


def catch_up(kind: str, place: Path) -> None:
    """Copy the rest.  Nobody else is at work."""
    with (
        read_log(place / "log") as guest,
        open_log(place / "copy", **options_of(kind)) as copy,
    ):
        follower = Follower(guest, copy, log_replicas(place / "log"), REPLICA)
        while follower.step():
            pass
