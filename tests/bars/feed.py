"""A bars feed with its guests and its killer, compared with a ledger.

    python -m tests.bars.feed PLACE SECONDS SEED [BUG]

Threads write, correct and delete bars and ticks; guests and the CLI read in other processes; the
feed is killed or closed again and again.  It runs until the time is over and every role has done
enough.  Then one JSON object is printed.  Exit code 1 if a promise was broken.
"""

import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from mmap import mmap
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from tests.bars.feed_book import BARS, TICKS, WRITERS, Book, Shown, carry_out, shown_in
from tests.bars.feed_bugs import BUGS
from tests.service.roles import fork

from holdfast.bars import BarReader, BarStore
from holdfast.doors import open_bars, read_bars
from holdfast.errors import ChangedError

ROLES = ("follow", "open", "query", "verify")  # the last two are processes of the CLI
WAL_SIZE = 1 << 14
LOGS_MAX = 256  # while the disk is busy, write-back may lag behind; see _check_at_last
DESCRIPTORS_MAX = 80
MEMORY_GROWTH_MAX = 64 << 20
KILLS_MIN, LATE_S = 2, 120.0


class Shared:
    """Numbers that all processes see.  Each is written by one process at a time."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        cells = np.frombuffer(mmap(-1, 4096), np.int64)
        self.begun, self.acknowledged = cells[0:WRITERS], cells[WRITERS : 2 * WRITERS]
        self.done = cells[16 : 16 + len(ROLES)]
        self.seen = cells[64 : 64 + WRITERS * len(ROLES)].reshape(len(ROLES), WRITERS)
        self.state = cells[32:40]  # over, life to close, kills, kills at the last recovery, opening

    @property
    def is_over(self) -> bool:
        """Whether the processes end; they do so too if the one that started them has ended."""
        return bool(self.state[0]) or os.getppid() != self._pid

    def floor(self, writer: int) -> int:
        """Return the last step that was acknowledged, or shown by a guest."""
        return max(int(self.acknowledged[writer]), int(self.seen[:, writer].max()))

    @property
    def total(self) -> int:
        return int(self.acknowledged.sum())


class Feeder:
    """The owner: each thread takes its steps, and this one measures."""

    def __init__(self, root: Path, shared: Shared, seed: int, life: int) -> None:
        self._root, self._shared, self._seed, self._life = root, shared, seed, life
        self._random, self._errors = Random(f"{seed} {life}"), list[str]()

    def run(self) -> None:
        kills, self._shared.state[4] = int(self._shared.state[2]), self._life
        with open_bars(self._root, create=True, flush_ms=5, wal_size_max=WAL_SIZE) as store:
            for tgid in store.undecided:
                store.resolve(tgid, commit=self._random.random() < 0.5)
            books = settle(store, self._shared, self._seed)
            self._shared.state[3] = kills
            threads = [threading.Thread(target=self._write, args=(store, book)) for book in books]
            for thread in threads:
                thread.start()
            sizes = list[int]()
            while not self._is_over:
                sizes.append(self._measure())
                time.sleep(self._random.random() * 0.05)
            for thread in threads:
                thread.join()
        quarter = len(sizes) // 4
        if quarter > 10 and min(sizes[-quarter:]) - max(sizes[:quarter]) > MEMORY_GROWTH_MAX:
            self._errors.append(f"memory grew from {sizes[quarter]} to {sizes[-1]} bytes")
        if self._errors:
            raise AssertionError(self._errors[0])

    @property
    def _is_over(self) -> bool:
        is_closing = self._shared.state[1] >= self._life
        return bool(is_closing or self._shared.is_over or self._errors)

    def _write(self, store: BarStore, book: Book) -> None:
        writer, random = int(book.symbols[0][1:-1]), Random(f"{self._life} {book.symbols}")
        try:
            while not self._is_over:
                step = book.next()
                self._shared.begun[writer] = step.number
                carry_out(store, step, book.symbols)
                self._shared.acknowledged[writer] = step.number
                book.advance()
                time.sleep(random.random() * 0.02)
        except BaseException:
            self._errors.append(traceback.format_exc())

    def _measure(self) -> int:
        if len(os.listdir("/proc/self/fd")) > DESCRIPTORS_MAX:  # noqa: PTH208
            gc.collect()
            if (count := len(os.listdir("/proc/self/fd"))) > DESCRIPTORS_MAX:  # noqa: PTH208
                self._errors.append(f"{count} descriptors are open")
        if (count := len(logs_in(self._root))) > LOGS_MAX:
            self._errors.append(f"{count} logs are left")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()


class Guest:
    """A reader in another process, or one that starts the CLI.  Only ChangedError is allowed."""

    def __init__(self, root: Path, shared: Shared, seed: int, role: str) -> None:
        self._root, self._shared, self._role = root, shared, role
        self._number, self._random = ROLES.index(role), Random(f"{seed} {role}")
        self._books = [Book(seed, writer) for writer in range(WRITERS)]
        self._reader: BarReader | None = None

    def run(self) -> None:
        step: Callable[[], None] = getattr(self, f"_{self._role}")
        while not self._shared.is_over:
            try:
                step()
                self._shared.done[self._number] += 1
            except ChangedError:
                pass
            time.sleep(self._random.random() * (1 if self._number > 1 else 0.05))

    def _follow(self) -> None:
        """Look at one writer with the same reader again and again."""
        if self._reader is None:
            self._reader = read_bars(self._root)
        reader, writer = self._reader, self._random.randrange(WRITERS)
        symbols = self._books[writer].symbols
        for attributes in (BARS, TICKS):  # of one group: the second is not older than the first
            self._look([writer], attributes, partial(reader.query, symbols, "1Min", attributes))
        self._refuse_damage(reader)

    def _open(self) -> None:
        """Look at all writers at once with a new reader."""
        with read_bars(self._root) as reader:
            for attributes in (BARS, TICKS):
                look = partial(reader.query, "*", "1Min", attributes)
                self._look(range(WRITERS), attributes, look)
            self._refuse_damage(reader)

    def _query(self) -> None:
        attributes = self._random.choice((BARS, TICKS))
        self._look(range(WRITERS), attributes, lambda: self._queried(attributes))

    def _queried(self, attributes: str) -> pa.Table:
        done = self._cli("query", str(self._root), f"*/1Min/{attributes}", "--format", "arrow")
        if done.returncode:
            what = f"bars query: exit code {done.returncode}: {done.stderr[-2000:]!r}"
            raise AssertionError(what)
        return pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all()

    def _verify(self) -> None:
        """Run `bars verify`.  Between a kill and the next recovery a tail may be torn."""
        recovered = int(self._shared.state[3])
        done = self._cli("verify", str(self._root))
        was_killed = int(self._shared.state[2]) > recovered
        if done.returncode and not (was_killed and done.returncode == 3):
            output = (done.stdout + done.stderr)[-2000:]
            raise AssertionError(f"bars verify: exit code {done.returncode}: {output!r}")

    def _cli(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(Path(sys.executable).with_name("holdfast")), "bars", *arguments]
        return subprocess.run(command, capture_output=True, check=False, timeout=LATE_S)

    def _look(self, writers: Sequence[int], attributes: str, look: Callable[[], pa.Table]) -> None:
        for writer in writers:
            self._books[writer].advance_to(self._shared.floor(writer))
        shown = shown_in(look())
        for writer in writers:
            book, last = self._books[writer], int(self._shared.begun[writer])
            number = book.judge(last, {attributes: of(book, shown)}, self._role)
            book.advance_to(number)
            self._shared.seen[self._number, writer] = number

    def _refuse_damage(self, reader: BarReader) -> None:
        if reader.damage:
            raise AssertionError(f"a sound store is called damaged: {reader.damage}")


def of(book: Book, shown: Shown) -> Shown:
    return {symbol: shown.get(symbol, []) for symbol in book.symbols}


def settle(store: BarStore, shared: Shared, seed: int) -> list[Book]:
    """Compare the store with the ledger, when no step is under way; return what is in it."""
    if store.damage:
        raise AssertionError(f"a sound store is called damaged: {store.damage}")
    names = store.symbols("1Min", BARS)
    tables = {
        key: shown_in(store.query("*", "1Min", key)) if names else {} for key in (BARS, TICKS)
    }
    books = [Book(seed, writer) for writer in range(WRITERS)]
    for writer, book in enumerate(books):
        book.advance_to(shared.floor(writer))
        found = {key: of(book, shown) for key, shown in tables.items()}
        book.advance_to(book.judge(int(shared.begun[writer]), found, "the next owner"))
    return books


def logs_in(root: Path) -> list[Path]:
    return [path for path in root.glob("WALFile.*") if path.suffix != ".cut"]


class Run:
    """One feed: its processes, and when the owner is killed or closed."""

    def __init__(self, place: Path, seconds: float, seed: int) -> None:
        self._root, self._seed, self._seconds = place / "market", seed, seconds
        self._random, self._shared = Random(f"feed {seed}"), Shared()
        self.life, self.closings, self.failures = 0, 0, list[str]()
        self._feeder, self._guests = 0, dict[str, int]()
        self._end_at, self._stalled_at, self._total = 0, 0.0, 0

    def run(self) -> None:
        self._start_feeder()
        while not self._shared.acknowledged.all() and not self._is_stalled():
            time.sleep(0.01)  # then every symbol is there
        for role in ROLES:
            guest = Guest(self._root, self._shared, self._seed, role)
            self._guests[role] = fork(guest.run)
        started = time.monotonic()
        while not self._is_over(time.monotonic() - started - self._seconds):
            if self._shared.state[4] == self.life and self._shared.total >= self._end_at:
                self._end_life()
                self._start_feeder()
            time.sleep(0.005)
        self._shared.state[0] = 1
        for name, process in {"feed": self._feeder, **self._guests}.items():
            self._wait(name, process)
        if not self.failures:
            self._check_at_last()

    @property
    def counts(self) -> dict[str, int]:
        done = dict(zip(ROLES, self._shared.done.tolist(), strict=True))
        kills = int(self._shared.state[2])
        return {"acknowledged": self._shared.total, "kills": kills, "lives": self.life} | done

    def _is_over(self, late: float) -> bool:
        for name, process in {"feed": self._feeder, **self._guests}.items():
            if process and os.waitpid(process, os.WNOHANG)[0]:
                self.failures.append(f"{name} has failed")
                self._forget(name)
        too_little = [role for role in ROLES if not self._shared.done[ROLES.index(role)]]
        too_little += ["kills"] if self._shared.state[2] < KILLS_MIN else []
        if late > LATE_S and too_little:
            self.failures.append(f"too little was done by {too_little}")
        return self._is_stalled() or bool(self.failures) or (late > 0 and not too_little)

    def _is_stalled(self) -> bool:
        if (total := self._shared.total) > self._total or not self._stalled_at:
            self._total, self._stalled_at = total, time.monotonic() + LATE_S
        if time.monotonic() > self._stalled_at:
            self.failures.append(f"nothing was acknowledged for {LATE_S} s")
        return bool(self.failures)

    def _start_feeder(self) -> None:
        self.life += 1
        steps = self._random.choices((0, 100, 1000), (20, 70, 10))[0]  # 0: it ends in its recovery
        if self.life == 1:
            steps = 20
        self._end_at = self._shared.total + self._random.randint(steps // 10, steps)
        self._feeder = fork(Feeder(self._root, self._shared, self._seed, self.life).run)

    def _end_life(self) -> None:
        if self._random.random() < 0.25:
            self._shared.state[1] = self.life
            self._wait("feed", self._feeder)
            self.closings += 1
        else:
            time.sleep(self._random.random() * 0.03)
            self._shared.state[2] += 1
            os.kill(self._feeder, signal.SIGKILL)
            status = os.waitpid(self._feeder, 0)[1]
            if not os.WIFSIGNALED(status):
                self.failures.append("feed has failed")
        self._feeder = 0
        if self._random.random() < 0.3:
            time.sleep(0.05)  # guests of a store without an owner

    def _wait(self, name: str, process: int) -> None:
        """Wait for a process to end by itself; kill it if it does not."""
        give_up = time.monotonic() + LATE_S
        while process:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                if status:
                    self.failures.append(f"{name} ended with {status:#x}")
                return
            if time.monotonic() > give_up:
                self.failures.append(f"{name} did not end")
                os.kill(process, signal.SIGKILL)
            time.sleep(0.005)

    def _forget(self, name: str) -> None:
        if name == "feed":
            self._feeder = 0
        else:
            self._guests[name] = 0

    def _check_at_last(self) -> None:
        try:
            with open_bars(self._root) as store:
                for tgid in store.undecided:
                    store.resolve(tgid, commit=True)
                settle(store, self._shared, self._seed)
            with read_bars(self._root) as reader:
                if (verdict := reader.verify()).verdict != "clean":
                    self.failures.append(f"verify says {verdict.verdict}: {verdict.damage}")
        except BaseException:
            self.failures.append(traceback.format_exc()[-3000:])
        files = [path for path in self._root.rglob("*") if path.is_file() and path.suffix != ".cut"]
        most = WRITERS * 2 * 2 * 2 * 2 + 8  # symbols, attributes, years, and their categories
        if logs_in(self._root) or len(files) > most:
            self.failures.append(f"{len(files)} files are left: {sorted(map(str, files))}")


def main() -> int:
    place, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    for bug in sys.argv[4:]:
        BUGS[bug]()
    run = Run(place, seconds, seed)
    run.run()
    print(json.dumps({"counts": run.counts, "failures": run.failures[:20]}))
    return bool(run.failures)


if __name__ == "__main__":
    sys.exit(main())
