"""A service under load, its guests and its killer.

    python -m tests.service FORMAT PLACE SECONDS SEED

It runs until the time is over and every role has done enough.  Then everything is compared with the
ledger, and one JSON object is printed.  Exit code 1 if a promise was broken.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.service.entries import BATCH_MAX, Ledger, Seen, writer_of
from tests.service.roles import GUESTS, Guests, Service, Shared, catch_up, fork, prepare

from holdfast.doors.logs import read_log
from holdfast.logs.log import LogReader

KILLS_MIN = 1  # also every guest must have done something
LATE_S = 240.0  # on a busy machine


class Run:
    """One service: its processes, and when each is killed."""

    def __init__(self, kind: str, place: Path, seconds: float, seed: int) -> None:
        self._kind, self._place, self._seed = kind, place, seed
        self._random, self._shared = Random(f"{kind} {seed}"), Shared()
        self._started, self._seconds = time.monotonic(), seconds
        self.life, self.kills, self.failures = 0, 0, list[str]()
        self._kill_at, self._kill_guest_at = 0, dict[str, int]()
        prepare(kind, place)
        self._guests = {role: self._start_guest(role) for role in GUESTS}

    def run(self) -> None:
        service = self._start_service()
        while not self.is_over:
            if Ledger.size(self._ledger) >= self._kill_at:
                self._kill(service)
                if self._random.random() < 0.3:
                    time.sleep(0.05)  # guests of a log without an owner
                service = self._start_service()
            for role in ("replicate", "convert"):
                if self._shared.done(role) >= self._kill_guest_at[role]:
                    self._kill(self._guests[role])
                    self._guests[role] = self._start_guest(role)
            self._look_after(service)
            time.sleep(0.01)
        self._shared.stop()
        for name, process in {"service": service, **self._guests}.items():
            if process:
                self._judge(name, os.waitpid(process, 0)[1])

    @property
    def is_over(self) -> bool:
        late = time.monotonic() - self._started - self._seconds
        too_little = [role for role in GUESTS if not self._shared.done(role)]
        if self.kills < KILLS_MIN:
            too_little.append("kills")
        if late > LATE_S and too_little:
            self.failures.append(f"too little was done by {too_little}")
        return bool(self.failures) or (late > 0 and not too_little)

    @property
    def counts(self) -> dict[str, int]:
        return {role: self._shared.done(role) for role in GUESTS} | {"kills": self.kills}

    @property
    def _ledger(self) -> Path:
        return self._place / f"ledger-{self.life}"

    def _start_service(self) -> int:
        self.life += 1
        self._kill_at = self._random.randint(10, 20 + min(1500, int(30 * self._seconds)))
        service = Service(self._kind, self._place, self._shared, self.life, self._seed)
        return fork(service.run)

    def _start_guest(self, role: str) -> int:
        self._kill_guest_at[role] = self._shared.done(role) + self._random.randint(1, 5)
        guests = Guests(self._kind, self._place, self._shared, self._random.randrange(1 << 30))
        return fork(lambda: guests.run(role))

    def _kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self.kills += 1

    def _look_after(self, service: int) -> None:
        """Notice a process that has ended by itself: it has failed."""
        for name, process in {"service": service, **self._guests}.items():
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._judge(name, status or 1)
                if name != "service":
                    self._guests[name] = 0
                    return

    def _judge(self, name: str, status: int) -> None:
        if status:
            self.failures.append(f"{name} ended with {status:#x}")


def compare(kind: str, place: Path) -> Iterator[str]:
    """Yield what is wrong, when all processes have ended."""
    catch_up(kind, place)
    with read_log(place / "log") as log, read_log(place / "copy") as copy:
        if log.damage or copy.damage:
            yield f"damage: {log.damage} {copy.damage}"
        if log.verify().verdict != "clean" or copy.verify().verdict != "clean":
            yield "not clean"
        stored, copied = _keys(log), _keys(copy)
        first, last = log.first_index, log.last_index
    yield from _differences("the copy", copied, stored)
    if last > first and max(copied, default=0) != last:
        yield f"the copy ends at {max(copied, default=0)}, the log at {last}"
    acknowledged: dict[int, int] = {}
    for path in sorted(place.glob("ledger-*")):
        acknowledged |= Ledger.load(path)
    for index in sorted(acknowledged.keys() - stored.keys()):
        if index >= first:
            yield f"lost: entry {index}"
    known = acknowledged | stored
    yield from _differences("the ledger", acknowledged, stored)
    for path in place.glob("seen-*"):
        seen = Seen.load(path)
        yield from _differences(path.name, seen, known)
        if max(seen, default=0) > last:
            yield f"{path.name}: entry {max(seen)} was shown, and is gone"
        known |= seen
    yield from _differences("the copy", copied, known)
    known |= copied
    yield from _out_of_order(known, acknowledged)


def _keys(log: LogReader) -> dict[int, int]:
    seen = Seen()
    for batch in log.scan():
        seen.add(batch)
    return seen.keys


def _differences(what: str, found: dict[int, int], known: dict[int, int]) -> Iterator[str]:
    wrong = [index for index in sorted(found.keys() & known.keys()) if found[index] != known[index]]
    if wrong:
        yield f"{what} has another entry {wrong[0]}, and {len(wrong) - 1} more"


def _out_of_order(known: dict[int, int], acknowledged: dict[int, int]) -> Iterator[str]:
    """Each thread's entries are in order, and only its last batch of a life may be unknown."""
    writers: dict[int, list[int]] = {}
    for _, key in sorted(known.items()):
        writers.setdefault(writer_of(key), []).append(key)
    highest: dict[int, int] = {}
    for key in acknowledged.values():
        highest[writer_of(key)] = max(highest.get(writer_of(key), -1), key)
    for writer, keys in writers.items():
        if any(one >= two for one, two in pairwise(keys)):
            yield f"entries of thread {writer:x} are twice there, or in another order"
        limit = highest.get(writer, (writer << 40) - 1) + BATCH_MAX
        if keys[-1] > limit:
            yield f"thread {writer:x} never appended {keys[-1]:x}"


def main() -> int:
    kind, place, seconds, seed = sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:5])
    run = Run(kind, place, seconds, int(seed))
    run.run()
    failures = run.failures or list(compare(kind, place))
    entries = sum(len(Ledger.load(path)) for path in place.glob("ledger-*"))
    counts = {"acknowledged": entries, "lives": run.life, **run.counts}
    print(json.dumps({"counts": counts, "failures": failures[:20]}))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
