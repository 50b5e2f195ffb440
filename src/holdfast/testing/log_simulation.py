"""The lives of a log under the deterministic scheduler: threads, kills, power cuts and faults.

In each life several threads append and submit batches, and one reads and scans, until they are
done, a system call fails, or the process is killed.  Others may run at every change of the disk, at
every lock and every wait.  Then the next life opens the log and compares it with the ledger:

- every acknowledged entry is there, under its index;
- every entry is one that was submitted, and none is there twice;
- the entries of one thread are in the order in which it submitted them.

A seed decides everything, so a failure can be repeated.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from holdfast.errors import ClosedError, HoldfastError
from holdfast.logs.log import Log
from holdfast.runtime import Runtime
from holdfast.testing.actors import Process, Scheduler
from holdfast.testing.faults import Fault
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.sim_disk import SimDisk

LIVES, THREADS, BATCHES = 4, 3, 6
_FAULTS = "eio", "enospc", "sync eio"


@dataclass(slots=True)
class LogLedger:
    """What was submitted and acknowledged, in all lives."""

    submitted: dict[bytes, None] = field(default_factory=dict)  # payloads, in order
    acknowledged: dict[int, bytes] = field(default_factory=dict)

    def check(self, log: Log) -> None:
        """Compare an opened log with the ledger; from now on its entries count as acknowledged."""
        found: dict[int, bytes] = {}
        for batch in log.scan():
            indexes, payloads = batch["index"].to_pylist(), batch["payload"].to_pylist()
            found |= dict(zip(indexes, payloads, strict=True))
        lost = {i: p for i, p in self.acknowledged.items() if found.get(i) != p}
        if lost:
            raise BrokenPromiseError("lost", f"lost or changed: {lost}")
        invented = [payload for payload in found.values() if payload not in self.submitted]
        if invented or len(set(found.values())) != len(found):
            raise BrokenPromiseError("invented", f"invented or doubled: {invented or found}")
        last: dict[bytes, int] = {}
        for payload in found.values():
            thread, number = payload.rsplit(b" ", 1)
            if last.get(thread, -1) >= int(number):
                raise BrokenPromiseError("order", f"{payload!r} comes after entry {last[thread]}")
            last[thread] = int(number)
        self.acknowledged = found


class LogSimulation:
    """Runs a log by a seed.  `open_log(disk, runtime)` creates it or opens what a crash left."""

    def __init__(self, seed: int, open_log: Callable[[SimDisk, Runtime], Log]) -> None:
        self.random, self._open_log = Random(seed), open_log
        self.disk, self.ledger = SimDisk(), LogLedger()
        self.fired: Counter[str] = Counter()
        self.digests: list[str] = []

    def run(self) -> None:
        """Run all lives.  BrokenPromiseError if the log breaks one."""
        for life in range(LIVES):
            self._live(life)
        with self._open_log(self.disk, Runtime()) as log:
            self.ledger.check(log)
        self.fired += self.disk.posix.fired

    def _live(self, life: int) -> None:
        random = self.random
        scheduler, process = Scheduler(random), Process(f"owner {life}")
        how = random.choice(("ends", "kill", "power cut", *_FAULTS))
        posix = self.disk.posix
        posix.bystander = lambda: scheduler.step("disk") if scheduler.current else None
        scheduler.spawn(process, "", lambda: self._own(scheduler, process, life, how), main=True)
        if how in ("kill", "power cut"):
            reaper = Process("reaper")
            steps = random.randrange(3, 40)

            def reap() -> None:
                while scheduler.steps < steps and not process.is_dead:
                    scheduler.sleep(1)
                self.fired["killed in mid-life"] += not process.is_dead
                scheduler.kill(process)

            scheduler.spawn(reaper, "", reap, main=True)
        scheduler.run()
        self.digests.append(scheduler.digest)
        self.fired[how] += 1
        posix.bystander = posix.fault = None
        if how == "power cut":
            self.disk = self.disk.after_power_cut(random)
        else:
            self.disk = self.disk.after_kill()

    def _own(self, scheduler: Scheduler, process: Process, life: int, how: str) -> None:
        posix = self.disk.posix
        log = self._open_log(self.disk, scheduler.runtime(process))
        self.ledger.check(log)
        if how in _FAULTS:
            posix.fault = Fault(how, posix.calls + self.random.randrange(60), always=True)
        actors = [
            scheduler.spawn(
                process,
                f"thread {number}",
                lambda who=b"%d.%d" % (life, number): self._append(log, who),  # type: ignore[misc]
                main=False,
            )
            for number in range(THREADS)
        ]
        actors.append(
            scheduler.spawn(process, "reader", lambda: self._read(scheduler, log), main=False)
        )
        scheduler.join(actors)
        try:
            log.close()
        except (HoldfastError, OSError):
            self.fired["close failed"] += 1
            if how not in _FAULTS:
                raise
        try:
            log.read(1)
        except ClosedError:
            self.fired["closed"] += 1
        else:
            raise BrokenPromiseError("closed", "a closed log was read")

    def _append(self, log: Log, who: bytes) -> None:
        random, number = self.random, 0
        for _ in range(BATCHES):
            batch = [b"%s %d" % (who, number + i) for i in range(random.randrange(1, 4))]
            number += len(batch)
            self.ledger.submitted |= dict.fromkeys(batch)
            try:
                waits = random.random() < 0.5
                last = log.append(batch) if waits else log.submit(batch).result()
            except (HoldfastError, OSError):
                self.fired["refused"] += 1
                return
            first = last - len(batch) + 1
            self.ledger.acknowledged |= dict(zip(range(first, last + 1), batch, strict=True))

    def _read(self, scheduler: Scheduler, log: Log) -> None:
        for _ in range(10):
            scheduler.sleep(1)
            known = dict(self.ledger.acknowledged)
            if not known:
                continue
            index = self.random.choice(sorted(known))
            try:
                payload = log.read(index)
                shown = sum(batch.num_rows for batch in log.scan())
            except OSError:
                if self.disk.posix.fault is None:
                    raise
                return  # the disk cannot be read, and the error reports it
            if payload != known[index]:
                raise BrokenPromiseError("changed", f"entry {index} is {payload!r}")
            if shown < len(known):
                raise BrokenPromiseError(
                    "hidden", f"{shown} entries are shown, {len(known)} acknowledged"
                )
            self.fired["scan"] += 1
