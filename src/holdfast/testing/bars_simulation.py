"""A bar store with several writers, its background writer and readers, in one simulation.

    report = BarsSimulation(7).run()     BrokenPromiseError, or what happened and how often

The seed decides everything: the same seed is the same run, call by call (`report.digest`).  A run
is a sequence of lives.  In each, one process owns the store; some of its threads write, submit,
prepare, decide and delete, and a ticker writes back.  Another process reads beside it.  A life ends
by itself, by a fault of the disk, by a kill, or by a power cut of the whole machine.

With `brief=True` the owner opens the store for a step or two, closes it, and opens it again, while
the reader is slow: an owner comes and goes between two of its system calls.

The oracle: each writer has its own symbols and records its steps.  A query must show the result of
a prefix of these steps: at least those that were acknowledged or shown before the query, and at
most those that were started.  Ids of groups never decrease.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import numpy as np

from holdfast.bars import BarReader, BarStore, Group
from holdfast.errors import ChangedError, ClosedError, CorruptError, PoisonedError
from holdfast.formats.bar_time import DAY_NS, year_start_ns
from holdfast.testing.actors import Killed, Process, Scheduler, SimulationReport
from holdfast.testing.bar_notes import Bars, Notes, Ticks
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.faults import Fault
from holdfast.testing.sim_disk import SimDisk, SimPosix

_START_NS = year_start_ns(2020) + 364 * DAY_NS  # so that groups touch two years
_DAYS = 4
_PAUSE_RATE = 0.1  # of the system calls of a slow reader
_FAULTS = ("sync eio", "eio", "enospc", "short write")


class _Kernel(SimPosix):
    """At every system call other actors may run, and a fault may happen."""

    simulation: "BarsSimulation | None" = None

    def syncfs(self, fd: int) -> None:
        super().syncfs(fd)
        self.fired["write-back synced"] += 1

    def _call(self, kind: str) -> str:
        if self.simulation is not None:
            self.simulation.strike(self, kind)
        return super()._call(kind)


class BarsSimulation:
    """One store, for one run."""

    def __init__(self, seed: int, *, lives: int = 6, steps: int = 700, brief: bool = False) -> None:
        self.seed, self.random = seed, Random(f"bars {seed}")
        self.scheduler = Scheduler(self.random, tick_ms=4.0, sticky=self.random.choice([0.2, 0.6]))
        self.scheduler.steps_max = 10**6
        self.events: Counter[str] = self.scheduler.fired
        self.notes = [Notes(f"w{n}") for n in range(3)]
        self.prepared: dict[int, tuple[Notes, int, int]] = {}  # by tgid: writer, day, price
        self._lives, self._steps, self._brief = lives, steps, brief
        self._fault_rate = self.random.choice([0.0, 0.003])
        self._end_rate = self.random.choice([0.0005, 0.002])
        self._price = 0
        self._life_stop = 0
        self._is_calm = self._has_failed = False
        self._owner = self._guest = Process("none")
        self._disk = SimDisk(_Kernel())
        self._disk.posix.mkdir("/sim")
        self._disk.posix.sync_directory("/")

    def run(self) -> SimulationReport:
        """Run all lives, the last without faults, and check the store at the start of each."""
        try:
            for life in range(self._lives):
                self._live(life, is_last=life == self._lives - 1)
        except BrokenPromiseError as error:
            error.add_note(f"again: BarsSimulation({self.seed}, brief={self._brief}).run()")
            raise
        acknowledged = sum(notes.promised for notes in self.notes)
        digest, steps = self.scheduler.digest, self.scheduler.steps
        events = dict(sorted(self.events.items()))
        judged = self.events["judged"]
        return SimulationReport(self.seed, steps, acknowledged, judged, digest, events)

    def strike(self, kernel: _Kernel, kind: str) -> None:
        """Switch threads before a system call, or kill the process at it."""
        if self.scheduler.current is None:
            return
        self.scheduler.step(kind)
        is_reader = self.scheduler.current.process is self._guest
        if self._brief and is_reader and self.random.random() < _PAUSE_RATE:
            self.scheduler.sleep(self.random.random() * 1000)
        if self._is_calm:
            return
        is_owner = self.scheduler.current.process is self._owner
        drawn = self.random.random()
        if drawn < self._end_rate:
            self.events["killed"] += 1
            self.scheduler.kill(self._owner)
            if self.random.random() < 0.5:
                self.events["power cut"] += 1
                self.scheduler.kill(self._guest)
            self.scheduler.give_way()
        elif is_owner and drawn < self._end_rate + self._fault_rate:
            self._has_failed = True
            kernel.fault = Fault(self.random.choice(_FAULTS), kernel.calls)

    # Lives

    def _live(self, life: int, *, is_last: bool) -> None:
        self._is_calm = is_last
        cuts = self.events["power cut"]
        self._life_stop = self.scheduler.steps + self._steps
        self._owner, self._guest = Process(f"owner.{life}"), Process(f"guest.{life}")
        root = self._disk.posix._root
        disks = [SimDisk(_Kernel(root)) for _ in range(2)]
        for disk in disks:
            assert isinstance(disk.posix, _Kernel)
            disk.posix.simulation, disk.posix.fired = self, self.events
        own = self._own_briefly if self._brief else self._own
        self.scheduler.spawn(self._owner, "", lambda: own(disks[0]), main=True)
        self.scheduler.spawn(self._guest, "", lambda: self._read(disks[1]), main=True)
        self.scheduler.run()
        if self.events["power cut"] > cuts:
            chance = Random(f"{self.seed}/{life}")
            self._disk = SimDisk(_Kernel(disks[0].posix.after_power_cut(chance)._root))
        else:
            self._disk = SimDisk(_Kernel(root))

    def _open(self, disk: SimDisk) -> tuple[BarStore | None, list[Notes]]:
        """Open the store; return it, and its writers if it can be written."""
        try:
            store = BarStore(
                disk,
                create=True,
                wal_size_max=1500,
                pending_size_max=self.random.choice([800, 10**6]),
                flush_ms=self.random.choice([40, 200]),
                open_files_max=3,
                runtime=self.scheduler.runtime(self._owner),
            )
        except OSError:
            self.events["open failed"] += 1
            return None, []
        if store.damage:
            self._broken("hidden", str(store.damage[0]))
        try:
            self._settle(store)
        except (PoisonedError, OSError):
            self.events["poisoned"] += 1
            return store, []
        return store, self.notes

    def _own_briefly(self, disk: SimDisk) -> None:
        random = Random(f"{self.seed} brief {self.scheduler.steps}")
        while self.scheduler.steps < self._life_stop:
            store, writers = self._open(disk)
            if store is None:
                return
            try:
                for _ in range(random.randrange(1, 3) if writers else 0):
                    self._step(store, random.choice(writers), random)
            except (PoisonedError, OSError):
                self.events["poisoned"] += 1
            self._close(store)
            self.events["owned briefly"] += 1
            self.scheduler.sleep(random.random() * 40)

    def _own(self, disk: SimDisk) -> None:
        store, writers = self._open(disk)
        if store is None:
            return
        actors = [
            self.scheduler.spawn(
                self._owner, notes.name, partial(self._write, store, notes), main=False
            )
            for notes in writers
        ]
        self.scheduler.join(actors)
        self._close(store)

    def _close(self, store: BarStore) -> None:
        try:
            store.close()
        except (PoisonedError, OSError):
            self.events["close failed"] += 1
        try:
            store.symbols()
        except ClosedError:
            return
        self._broken("hidden", "a closed store answers")

    def _settle(self, store: BarStore) -> None:
        """Check what recovery shows, then decide on undecided groups."""
        for notes in self.notes:
            bars, ticks = self._shown(store, notes)
            possible = notes.possible(notes.promised, bars, ticks)
            if not possible:
                self._blame(notes, notes.promised, bars, ticks)
            notes.forget(possible[-1])
            self.events["recovered"] += 1
        self._has_failed = False  # recovery has read the disk, and not what a failed sync left
        missing = self.prepared.keys() - set(store.undecided)
        if missing:
            self._broken("lost", f"prepared groups {sorted(missing)} are not undecided")
        for tgid in store.undecided:
            writer, day, price = self.prepared.pop(tgid, (None, 0, 0))
            step = writer.begin_write(day, price) if writer is not None else 0
            store.resolve(tgid, commit=writer is not None)
            if writer is not None:
                self._acknowledge(writer, step, writer.tgid)
                self.events["decided after a crash"] += 1

    def _write(self, store: BarStore, notes: Notes) -> None:
        random = Random(f"{self.seed} {notes.name} {self.scheduler.steps}")
        try:
            while self.scheduler.steps < self._life_stop:
                self._step(store, notes, random)
        except (PoisonedError, OSError):
            self.events["poisoned"] += 1

    def _step(self, store: BarStore, notes: Notes, random: Random) -> None:
        kind = random.random()
        if kind < 0.35:
            day, price = self._new(random)
            step = notes.begin_write(day, price)
            self._acknowledge(notes, step, self._group(store, notes, day, price).commit())
        elif kind < 0.5:
            self._submit(store, notes, random)
        elif kind < 0.65:
            day = random.randrange(_DAYS)
            if not notes.bars[-1]:
                return
            step = notes.begin_delete(day)
            start = _START_NS + day * DAY_NS
            store.delete(self._symbols(notes), "1D", "BAR", start=start, stop=start + DAY_NS)
            self._acknowledge(notes, step, notes.tgid)
            self.events["deleted"] += 1
        elif kind < 0.8:
            self._prepare(store, notes, random)
        else:
            self._look(store, random.choice(self.notes))
            self.scheduler.sleep(random.random() * 50)

    def _submit(self, store: BarStore, notes: Notes, random: Random) -> None:
        handles = []
        for _ in range(random.randrange(1, 4)):
            _, price = self._new(random)
            ticks = {"Epoch": [_START_NS // 10**9], "Price": [price]}
            step = notes.begin_tick(price)
            symbol = f"{notes.name}a"
            handle = store.submit(ticks, "1D", "TICK", symbol=symbol, is_variable=True)
            handles.append((step, handle))
        for step, handle in handles:
            self._acknowledge(notes, step, handle.result())
            self.events["submitted"] += 1

    def _prepare(self, store: BarStore, notes: Notes, random: Random) -> None:
        day, price = self._new(random)
        group = self._group(store, notes, day, price)
        tgid = group.prepare()
        self.prepared[tgid] = notes, day, price
        self.events["prepared"] += 1
        self.scheduler.sleep(random.random() * 30)
        if random.random() < 0.3:
            del self.prepared[tgid]  # from now on it may be aborted
            group.abort()
            return
        del self.prepared[tgid]
        step = notes.begin_write(day, price)
        group.commit()
        self._acknowledge(notes, step, notes.tgid)

    def _read(self, disk: SimDisk) -> None:
        random = Random(f"{self.seed} guest {self.scheduler.steps}")
        while self.scheduler.steps < self._life_stop and not self._owner.is_dead:
            try:
                with BarReader(disk) as reader:
                    for _ in range(random.randrange(1, 4)):
                        self._look(reader, random.choice(self.notes))
                        self.events["read beside"] += 1
            except (FileNotFoundError, ChangedError):  # not created yet, or changed too often
                self.events["read nothing"] += 1
            self.scheduler.sleep(random.random() * 60)

    # The oracle

    def _look(self, store: BarStore | BarReader, notes: Notes) -> None:
        try:
            self._compare(store, notes)
        except CorruptError as error:
            self._broken("hidden", str(error))

    def _compare(self, store: BarStore | BarReader, notes: Notes) -> None:
        lowest = notes.promised
        bars, _ = self._shown(store, notes, ticks=False)
        self._judge(notes, lowest, bars, None)
        lowest = notes.promised
        _, ticks = self._shown(store, notes, bars=False)
        self._judge(notes, lowest, None, ticks)

    def _judge(self, notes: Notes, lowest: int, bars: Bars | None, ticks: Ticks | None) -> None:
        possible = notes.possible(lowest, bars, ticks)
        if not possible:
            self._blame(notes, lowest, bars, ticks)
        if not self._has_failed:  # a reader cannot know of a sync that failed in the owner
            notes.promised = max(notes.promised, possible[0])
        self.events["judged"] += 1

    def _shown(
        self, store: BarStore | BarReader, notes: Notes, *, bars: bool = True, ticks: bool = True
    ) -> tuple[Bars, Ticks]:
        known = store.buckets()
        rows: list[tuple[str, int, int]] = []
        prices: list[int] = []
        if bars and f"{notes.name}a/1D/BAR" in known:
            with self._perhaps_empty():
                table = store.query(self._symbols(notes), "1D", "BAR")
                days = (table["time"].cast("int64").to_numpy() - _START_NS) // DAY_NS
                columns = table["symbol"].to_pylist(), days.tolist(), table["Price"].to_pylist()
                rows = list(zip(*columns, strict=True))
        if ticks and f"{notes.name}a/1D/TICK" in known:
            with self._perhaps_empty():
                prices = store.query(f"{notes.name}a", "1D", "TICK")["Price"].to_pylist()
        return tuple(sorted(rows)), tuple(sorted(prices))

    @contextmanager
    def _perhaps_empty(self) -> Iterator[None]:
        """Take a bucket without a file for empty: a group that was lost with a failed sync may have
        left its directory.
        """
        try:
            yield
        except ValueError as error:
            if "no bars of" not in str(error):
                raise
            self.events["empty bucket"] += 1

    def _acknowledge(self, notes: Notes, step: int, tgid: int) -> None:
        if tgid < notes.tgid:
            self._broken("broken", f"tgid {tgid} after {notes.tgid}")
        notes.promised, notes.tgid = max(notes.promised, step), tgid
        self.events["acknowledged"] += 1

    def _blame(self, notes: Notes, lowest: int, bars: Bars | None, ticks: Ticks | None) -> None:
        allowed = [
            (notes.bars[step] if bars is not None else None, notes.ticks[step] if ticks else None)
            for step in range(lowest, notes.begun + 1)
        ]
        self._broken("lost", f"{notes.name} shows {bars} {ticks}; allowed: {allowed}")

    def _broken(self, kind: str, what: str) -> None:
        if self._owner.is_dead and self.scheduler.current is None:
            raise Killed
        self.scheduler.fail(BrokenPromiseError(kind, what))

    # Rows

    def _new(self, random: Random) -> tuple[int, int]:
        self._price += 1
        return random.randrange(_DAYS), self._price

    def _symbols(self, notes: Notes) -> str:
        return f"{notes.name}a,{notes.name}b"

    def _group(self, store: BarStore, notes: Notes, day: int, price: int) -> Group:
        group = store.group()
        epoch = (_START_NS + day * DAY_NS) // 10**9
        bars = {
            "symbol": [f"{notes.name}a", f"{notes.name}b"],
            "Epoch": np.array([epoch, epoch]),
            "Price": np.array([price, price]),
        }
        group.write(bars, "1D", "BAR")
        ticks = {"Epoch": np.array([_START_NS // 10**9]), "Price": [price]}
        group.write(ticks, "1D", "TICK", symbol=f"{notes.name}a", is_variable=True)
        return group
