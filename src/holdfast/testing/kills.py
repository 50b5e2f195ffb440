"""Real processes, really killed: kill -9 at any moment, then the ledger is compared.

A kill keeps the page cache, so it cannot show a missing sync; that is what the simulated disk is
for.  It shows what a simulation cannot: the real kernel, file system, locks and start-up.
"""

import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holdfast.disk import OsDisk
from holdfast.logs.open import FORMATS
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.writer import Payload, random_payloads


@dataclass(slots=True)
class Promises:
    """What the writers have said so far."""

    acknowledged: int = 0  # the last index that was
    in_flight: int = 0  # the last index that may be there besides

    def hear(self, line: str) -> None:
        """A line of the writer's; words and numbers that are not about promises are let pass."""
        word, *numbers = line.split() or [""]
        if word == "ack":
            self.acknowledged = self.in_flight = int(numbers[0])
        elif word == "begin":
            self.in_flight = int(numbers[-1])

    def hold(self, last: int, what: str) -> None:
        """Is the `last` entry or round that is there one that can be?"""
        if last < self.acknowledged:
            raise BrokenPromiseError("lost", f"{last} of {self.acknowledged} acknowledged")
        if last > self.in_flight:
            raise BrokenPromiseError("invented", f"{last}, but no {what} after {self.in_flight}")


class KillRounds:
    """Start a writer, kill it, look at what it left; again and again on one log."""

    life_s = 0.2, 0.8  # how long a writer may live, at least and at most

    def __init__(self, directory: Path, *, format: str = "shanghai", seed: int = 0) -> None:
        self.path, self.format, self.seed = directory, format, seed
        self.payload: Payload = random_payloads(seed)
        self.promises = Promises()
        self.kills = 0
        self._writer: subprocess.Popen[str] | None = None
        self._checked = 0

    def start(self, *command: str) -> None:
        arguments = command or (
            *(sys.executable, "-m", "holdfast.testing.writer", str(self.path)),
            *("--format", self.format, "--seed", str(self.seed), "--life", str(self.kills)),
        )
        # A process group of its own: Ctrl-C is for us, who then stop it.
        self._writer = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, process_group=0
        )

    def hear(self, until_lines: int) -> bool:
        """Wait until the writer has said so much; False if it died before."""
        for _ in range(until_lines):
            line = self._voice().readline()
            if not line:
                return False
            self.promises.hear(line)
        return True

    def kill(self, after_seconds: float = 0) -> None:
        """SIGKILL, now or later; hear all that the writer says until it is dead."""
        voice, writer = self._voice(), self._writer
        assert writer is not None
        killer = threading.Timer(after_seconds, writer.send_signal, [signal.SIGKILL])
        killer.start()
        try:
            for line in voice:
                self.promises.hear(line)
        finally:  # on Ctrl-C the writer is left to stop()
            killer.cancel()
        voice.close()
        self._writer = None
        if writer.wait() != -signal.SIGKILL:
            raise BrokenPromiseError("hidden", f"the writer ended by itself: {writer.returncode}")
        self.kills += 1

    def check(self) -> None:
        """Recover as the next owner would, and compare every entry that is new since last time."""
        promises = self.promises
        log = FORMATS[self.format].open(OsDisk(self.path))
        last = log.last_index
        promises.hold(last, "entry")
        for index in range(self._checked + 1, last + 1):
            if log.read(index) != self.payload(index):
                raise BrokenPromiseError("lost", f"entry {index} is not what was appended")
        log.close()
        self._checked = promises.acknowledged = promises.in_flight = last

    def _voice(self) -> IO[str]:
        if self._writer is None or self._writer.stdout is None:
            raise RuntimeError("no writer was started")
        return self._writer.stdout

    def stop(self) -> None:
        if self._writer is not None:
            self._writer.kill()
            self._writer.communicate()
            self._writer = None
