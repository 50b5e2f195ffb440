"""Real processes, really killed: kill -9 at any moment, then the ledger is compared.

A kill keeps the page cache, so it cannot show a missing sync; that is what the simulated disk is
for.  It shows what a simulation cannot: the real kernel, file system, locks and start-up.

A life that counts begins with the writer's first acknowledgement: `acknowledges` waits for it.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, HoldfastError
from holdfast.logs.opening import FORMATS
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.writer import Payload, random_payloads

LIMIT_S = 60.0  # a writer that has acknowledged nothing by then is silent
Rows = dict[Any, Any]  # what a store holds


@dataclass(slots=True)
class Promises:
    """What the writers have said so far."""

    acknowledged: int = 0  # the last index that was
    in_flight: int = 0  # the last index that may be there besides

    def hear(self, line: str) -> None:
        """Take note of a writer's line; lines that are not about promises are ignored."""
        word, *numbers = line.split() or [""]
        if word == "ack":
            self.acknowledged = self.in_flight = int(numbers[0])
        elif word == "begin":
            self.in_flight = int(numbers[-1])

    def hold(self, last: int, what: str) -> None:
        """Raise BrokenPromiseError unless the `last` entry or round that is there can be."""
        if last < self.acknowledged:
            raise BrokenPromiseError("lost", f"{last} of {self.acknowledged} acknowledged")
        if last > self.in_flight:
            raise BrokenPromiseError("invented", f"{last}, but no {what} after {self.in_flight}")


class KillRounds:
    """Start a writer, kill it, compare what it left; again and again on one log."""

    what = "entry"
    life_s = 0.5  # how long a writer may live after its first acknowledgement, at most
    compares_all = False  # at each check, and not only what is new since the last

    def __init__(self, directory: Path, *, format: str = "shanghai", seed: int = 0) -> None:
        self.path, self.format, self.seed = directory, format, seed
        self.payload: Payload = random_payloads(seed)
        self.promises = Promises()
        self.kills = 0
        self._writer: subprocess.Popen[str] | None = None
        self._listener = threading.Thread()
        self._heard = threading.Condition()
        self._before = self._lines = self._acknowledgements = 0  # of this life
        self._has_ended = False
        self._checked = 0

    # Lives

    def start(self, *command: str) -> None:
        """Start a writer, and listen to it in a thread, so that a full pipe never stops it."""
        arguments = command or (
            *(sys.executable, "-m", "holdfast.testing.writer", str(self.path)),
            *("--format", self.format, "--seed", str(self.seed), "--life", str(self.kills)),
        )
        # A process group of its own: Ctrl-C is for us, who then stop it.
        writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, process_group=0)
        assert writer.stdout is not None
        self._writer, self._has_ended = writer, False
        self._before, self._lines, self._acknowledgements = self.promises.acknowledged, 0, 0
        self._listener = threading.Thread(target=self._listen, args=[writer.stdout], daemon=True)
        self._listener.start()

    def hear(self, until_lines: int) -> bool:
        """Wait until the writer has said so much; False if it ended before."""
        return self._wait(lambda: self._lines >= until_lines, LIMIT_S)

    def acknowledges(self, timeout: float = LIMIT_S) -> bool:
        """Wait for the first acknowledgement of this life; False if it does not come in time."""
        return self._wait(lambda: self._acknowledgements > 0, timeout)

    @property
    def acknowledged(self) -> int:
        """How many entries or rounds were acknowledged in this life."""
        return self.promises.acknowledged - self._before

    @property
    def has_ended(self) -> bool:
        """Whether the writer has ended by itself."""
        return self._has_ended

    def kill(self) -> None:
        """SIGKILL; then hear all that the writer had said."""
        writer = self._writer
        if writer is None:
            raise RuntimeError("no writer was started")
        writer.send_signal(signal.SIGKILL)
        code = self._end(writer)
        if code != -signal.SIGKILL:
            raise BrokenPromiseError("hidden", f"the writer ended by itself: {code}")
        self.kills += 1

    def stop(self) -> None:
        """Kill the writer, if there is one, and forget about it."""
        if self._writer is not None:
            self._writer.kill()
            self._end(self._writer)

    # What is there

    def check(self) -> None:
        """Recover as the next owner would, and compare every row that is new since last time."""
        promises, first = self.promises, 1 if self.compares_all else self._checked + 1
        try:
            last, rows = self.contents(self.path, owner=True, first=first)
        except HoldfastError as error:
            raise BrokenPromiseError("hidden", f"{type(error).__name__}: {error}") from error
        promises.hold(last, self.what)
        if rows != self.rows(first, last):
            what = f"{self.what} {first} to {self.what} {last} are not what was written"
            raise BrokenPromiseError("lost", what)
        self._checked = promises.acknowledged = promises.in_flight = last

    def contents(self, path: Path, *, owner: bool, first: int = 1) -> tuple[int, Rows]:
        """Open a store and return its last round, and its rows from round `first` on.

        CorruptError if it reports damage; other errors as they come.
        """
        open_log = FORMATS[self.format].open_writer if owner else FORMATS[self.format].open_reader
        with open_log(OsDisk(path)) as log:
            refuse_damage(log, owner=owner)
            rows: Rows = {}
            for batch in log.scan(max(first, log.first_index)):
                indexes, payloads = batch["index"].to_pylist(), batch["payload"].to_pylist()
                rows |= zip(indexes, payloads, strict=True)
            return log.last_index, rows

    def rows(self, first: int, last: int) -> Rows:
        """Return what rounds `first` to `last` have written."""
        return {index: self.payload(index) for index in range(first, last + 1)}

    def _listen(self, voice: IO[str]) -> None:
        for line in voice:
            with self._heard:
                self.promises.hear(line)
                self._lines += 1
                self._acknowledgements += line.startswith("ack ")
                self._heard.notify_all()
        with self._heard:
            self._has_ended = True
            self._heard.notify_all()

    def _wait(self, is_met: Callable[[], bool], timeout: float) -> bool:
        with self._heard:
            self._heard.wait_for(lambda: is_met() or self._has_ended, timeout)
            return is_met()

    def _end(self, writer: "subprocess.Popen[str]") -> int:
        code = writer.wait()
        self._listener.join()
        assert writer.stdout is not None
        writer.stdout.close()
        self._writer = None
        return code


def refuse_damage(store: Any, *, owner: bool) -> None:
    """Raise CorruptError if a store reports damage: when it is opened, or when it is verified."""
    if store.damage:
        raise CorruptError(str(store.damage[0]), 0, "reported")
    if not owner and store.verify().verdict in ("corrupt", "unreadable"):
        raise CorruptError(repr(store), 0, "reported by verify")
