"""A kv service as users run it, for seconds or minutes, compared with a ledger.

Threads and an asyncio loop put; readers poll here and in another process; files are loaded in bulk;
the writer compacts and collects with small thresholds, and is taken over again and again.

Each key has one author, who sets it to rising numbers.  So a reader must show at least the last
number that was acknowledged before it looked, and at most the last one that was begun.
"""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.parse import urlencode

from tests.fault_proxy import FaultProxy
from tests.servers import free_port, make_s3_bucket, program, running, s3_options

from holdfast.doors import manage_kv, open_kv, read_kv
from holdfast.errors import FencedError, HoldfastError, PoisonedError, UnavailableError
from holdfast.formats.sst import Rows
from holdfast.kv import Kv
from holdfast.kv.gc import GcOptions
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.wal import FENCE_SIZE
from holdfast.testing.explorer import BrokenPromiseError

_SMALL = MaintenanceOptions(
    CompactionOptions(wal_count=8, unit_count=3), GcOptions(clock_skew_max_ms=0), 500
)
_GC_AGE_MS = 500
_KEYS = 4  # of each author
_WAL_MAX, _MANIFESTS_MAX, _LEVELS_MAX = 400, 400, 60
_ELSEWHERE = """
import sys
from holdfast.doors import read_kv
with read_kv(sys.argv[1], lazy=sys.argv[2] == "lazy") as reader:
    for line in sys.stdin:  # one look for each
        reader.poll()
        print(*(f"{key.decode()}={value.decode()}" for key, value in reader.items()), flush=True)
"""


class Ledger:
    """The last number of each key that was begun, and the last that was acknowledged."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}

    def judge(self, floor: dict[str, int], state: dict[str, int], who: str) -> None:
        """Compare a state with what was acknowledged before it was read."""
        for key, number in floor.items():
            if state.get(key, 0) < number:
                what = f"{who} shows {key}={state.get(key)}, and {number} was acknowledged"
                raise BrokenPromiseError("lost", what)
        for key, number in state.items():
            if number > self.begun.get(key, 0):
                raise BrokenPromiseError("invented", f"{who} shows {key}={number}")


class KvService:
    """One run.  `counts` says what it did."""

    def __init__(self, url: str, cas: str | None, seed: int, seconds: float) -> None:
        self._url, self._cas, self._random = url, cas, Random(seed)
        self._stop = time.monotonic() + seconds
        self.ledger, self.counts = Ledger(), Counter[str]()
        self._failure: BaseException | None = None
        self._writer = self._open()

    def run(self) -> Counter[str]:
        """Run all of it, then check the store; BrokenPromiseError if a promise is broken."""
        roles: list[Callable[[], None]] = [
            lambda: self._author("a"),
            lambda: self._author("b"),
            self._tasks,
            self._loader,
            lambda: self._reader(lazy=True),
            lambda: self._reader(lazy=False),
            lambda: self._reader_elsewhere("lazy"),
            self._rivals,
        ]
        threads = [threading.Thread(target=self._guarded, args=(role,)) for role in roles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with suppress(FencedError, PoisonedError, UnavailableError):
            self._writer.close()
        if self._failure is not None:
            raise self._failure
        self._check_at_last()
        return self.counts

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._stop or self._failure is not None

    def _guarded(self, role: Callable[[], None]) -> None:
        try:
            role()
        except BaseException as error:
            self._failure = self._failure or error

    def _open(self) -> Kv:
        return open_kv(
            self._url,
            create=True,
            cas=self._cas,
            gc_min_age_ms=_GC_AGE_MS,
            watch_ms=100.0,
            snapshot_ttl_ms=20_000,
            parallel_writes_max=2,
            maintain=_SMALL,
        )

    # Those who write

    def _author(self, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            key, kv = f"{name}{number % _KEYS}", self._writer
            self.ledger.begun[key] = number
            try:
                kv.put(key.encode(), b"%d" % number).result()
            except HoldfastError:  # fenced, closed or poisoned: whether it survives is unknown
                self.counts["put failed"] += 1
                time.sleep(0.02)
            else:
                self.ledger.acknowledged[key] = number
                self.counts["acknowledged"] += 1

    def _tasks(self) -> None:
        async def author(name: str) -> None:
            number = 0
            while not self._is_over:
                number += 1
                self.ledger.begun[name] = number
                try:
                    await self._writer.put(name.encode(), b"%d" % number)
                except HoldfastError:
                    self.counts["await failed"] += 1
                    await asyncio.sleep(0.02)
                else:
                    self.ledger.acknowledged[name] = number
                    self.counts["awaited"] += 1

        async def all_of_them() -> None:
            await asyncio.gather(*(author(f"t{number}") for number in range(_KEYS)))

        asyncio.run(all_of_them())

    def _loader(self) -> None:
        number = 0
        while not self._is_over:
            number += 1
            keys = [f"l{place}" for place in range(3)]
            self.ledger.begun |= dict.fromkeys(keys, number)
            rows = Rows.from_pairs([(key.encode(), b"%d" % number, 0) for key in keys])
            try:
                admin = manage_kv(self._url, cas=self._cas)
                admin.load([rows], transaction=("service", number))
            except HoldfastError:
                self.counts["load failed"] += 1
            else:
                self.ledger.acknowledged |= dict.fromkeys(keys, number)
                self.counts["loaded"] += 1
            time.sleep(0.2)

    def _rivals(self) -> None:
        """Open the store again and again: the writer before is fenced, closed or left alone."""
        while not self._is_over:
            time.sleep(0.5 + self._random.random())
            before = self._writer
            with suppress(UnavailableError, FencedError):
                if self._random.random() < 0.4:
                    before.close()
                self._writer = self._open()
                self.counts["taken over"] += 1
            with suppress(HoldfastError):
                before.close()

    # Those who read

    def _reader(self, *, lazy: bool) -> None:
        name = "the lazy reader" if lazy else "the reader"
        with read_kv(self._url, lazy=lazy, snapshot_ttl_ms=20_000) as reader:
            while not self._is_over:
                # Only a lazy reader follows the levels, and so the loads, when it polls.
                floor = self._floor(loads=lazy)
                try:
                    reader.poll()
                    state = {key.decode(): int(value) for key, value in reader.items()}
                except UnavailableError:
                    self.counts["read again"] += 1
                    continue
                self.ledger.judge(floor, state, name)
                self.counts["compared"] += 1
                time.sleep(0.02)

    def _reader_elsewhere(self, kind: str) -> None:
        command = [sys.executable, "-c", _ELSEWHERE, self._url, kind]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin
            assert process.stdout
            assert process.stderr
            while not self._is_over:
                floor = self._floor(loads=True)
                process.stdin.write("look\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:  # a scan that was overtaken, or no answer for a minute
                    problem = process.stderr.read()
                    if "UnavailableError" not in problem:
                        raise BrokenPromiseError("broken", problem[-2000:])
                    self.counts["reader elsewhere gave up"] += 1
                    return
                state = {
                    pair.partition("=")[0]: int(pair.partition("=")[2]) for pair in line.split()
                }
                self.ledger.judge(floor, state, "the reader in another process")
                self.counts["compared elsewhere"] += 1
            process.stdin.close()
            process.wait(60)

    def _floor(self, *, loads: bool) -> dict[str, int]:
        known = dict(self.ledger.acknowledged)
        return {key: number for key, number in known.items() if loads or not key.startswith("l")}

    # The end

    def _check_at_last(self) -> None:
        with self._open() as kv:
            state = {key.decode(): int(value) for key, value in kv.items()}
            self.ledger.judge(self._floor(loads=True), state, "the last writer")
            time.sleep(2 * _GC_AGE_MS / 1000)
            kv.maintain()
            found = kv.bucket.list("")
        rows = [info for info in found if info.size > FENCE_SIZE]
        sizes = Counter(info.name.partition("/")[0] for info in rows)
        self.counts |= Counter({f"{name} left": count for name, count in sizes.items()})
        limits = {"wal": _WAL_MAX, "manifest": _MANIFESTS_MAX, "levels": _LEVELS_MAX}
        for name, most in limits.items():
            if sizes[name] > most:
                raise BrokenPromiseError("broken", f"{sizes[name]} objects are left in {name}")
        admin = manage_kv(self._url, cas=self._cas)
        if (report := admin.verify()).verdict != "clean":
            raise BrokenPromiseError("broken", f"verify says {report.verdict}: {report.problems}")


def serve(
    proxy: FaultProxy, place: Path, seed: int, seconds: float, cas: str | None
) -> Counter[str]:
    """Run a service in the bucket behind a proxy; memory and descriptors stay bounded."""
    query = urlencode(s3_options(proxy.port))
    url = f"s3://holdfast/{place.name}-{seed}-{time.monotonic_ns()}?{query}"
    before = _resources()
    counts = KvService(url, cas, seed, seconds).run()
    gc.collect()
    files, memory = (now - then for now, then in zip(_resources(), before, strict=True))
    if files > 40 or memory > 300 << 20:
        raise BrokenPromiseError("broken", f"{files} more files are open, {memory:,} more bytes")
    return counts + Counter({f"proxy {fault}": times for fault, times in proxy.fired.items()})


def _resources() -> tuple[int, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(list(Path("/proc/self/fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bucket_server(directory: Path) -> Iterator[int]:
    """Run an object store; return its port."""
    server, port = program("moto_server", "pip install 'moto[server]'"), free_port()
    command = [server, "-H", "127.0.0.1", "-p", str(port)]
    with running(command, lambda: make_s3_bucket(port), directory):
        yield port
