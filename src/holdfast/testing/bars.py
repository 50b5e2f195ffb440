"""Crashes a bar store in every way the simulated disk knows, and holds it to what it promised.

The oracle: what was acknowledged, or shown by an earlier recovery or to a guest, is there; of the
group in flight all or nothing; prepared groups are undecided until they are decided; nothing is
invented, no row is there twice, and the store goes on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random

import numpy as np

from holdfast.bars.guest import BarReader
from holdfast.bars.store import BarStore
from holdfast.errors import HoldfastError
from holdfast.formats.bar_time import DAY_NS, year_start_ns
from holdfast.testing.bar_ledger import KEYS, TICKS, BarLedger, Edit
from holdfast.testing.explorer import BrokenPromiseError, undisturbed
from holdfast.testing.platter import Directory
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk

YEARS = (2020, 2021)
_BAR = [("Epoch", "<i8"), ("Price", "<i8")]
_TICK = [("Epoch", "<i8"), ("Nanoseconds", "<i4"), ("Price", "<i4")]


class BarLife:
    """One process's use of a store, from opening it to its death."""

    def __init__(self, disk: SimDisk, ledger: BarLedger, random: Random) -> None:
        self.disk, self.ledger, self.random = disk, ledger, random
        self.store: BarStore

    def begin(self) -> None:
        try:
            self.store = open_store(self.disk)
        except HoldfastError as error:
            if self.disk.posix.fault is not None:
                raise  # it may refuse while the disk fails
            raise BrokenPromiseError("hidden", f"cannot be opened: {error}") from error
        if self.store.damage:
            raise BrokenPromiseError("hidden", f"damage: {self.store.damage[0]}")
        self.ledger.hold(self.store)
        self.ledger.in_flight = None  # recovery has cut off what it did not show
        self.ledger.hold_undecided(self.store)

    def edit(self, written: Sequence[tuple[str, int, int]], *, prepare: bool = False) -> None:
        edit, group = Edit(tuple(written)), self.store.group()
        for key in dict.fromkeys(key for key, _, _ in written):
            own = [(time_ns, price) for name, time_ns, price in written if name == key]
            symbol, timeframe, attributes = key.split("/")
            if key == TICKS:
                rows = [(time // 10**9, time % 10**9, price) for time, price in own]
                table = np.array(rows, _TICK)
            else:
                table = np.array([(time // 10**9, price) for time, price in own], _BAR)
            is_variable = key == TICKS
            group.write(table, timeframe, attributes, symbol=symbol, is_variable=is_variable)
        if prepare:
            self.ledger.preparing = edit
            tgid = group.prepare()
            self.ledger.preparing = None
            self.ledger.prepared[tgid] = edit
        else:
            self.ledger.in_flight = edit
            group.commit()
            self.ledger.land()

    def price(self) -> int:
        return int(self.random.random() * 2**31)

    def day(self) -> int:
        year = YEARS[self.random.random() < 0.2]
        return year_start_ns(year) + int(self.random.random() * 3) * DAY_NS


def open_store(disk: SimDisk) -> BarStore:
    return BarStore(
        disk,
        wal_size_max=700,
        open_files_max=2,
        now_ns=lambda: 1_600_000_000_000_000_000,
        pid=7,
        was_running=lambda pid, at_ns: False,
    )


def one_bar(life: BarLife) -> None:
    life.edit([(KEYS[0], life.day(), life.price())])


def many(life: BarLife) -> None:
    """Bars of two symbols, in a row too, and ticks: all of it or nothing."""
    day = life.day()
    bars = [(key, day + n * DAY_NS, life.price()) for key in KEYS[:2] for n in (0, 1)]
    life.edit([*bars, *_ticks(life)])


def some_ticks(life: BarLife) -> None:
    life.edit(_ticks(life))


def _ticks(life: BarLife) -> list[tuple[str, int, int]]:
    """At times that ticks can tell exactly."""
    day = life.day()
    return [(TICKS, day + n * DAY_NS // 4, life.price()) for n in (1, 0, 1)]


def write_back(life: BarLife) -> None:
    life.store.write_back()


def delete(life: BarLife) -> None:
    key = KEYS[int(life.random.random() * 3)]
    start = life.day()
    end = start + DAY_NS // 8
    life.ledger.in_flight = Edit(removed=((key, start, end),))
    life.store.delete(*key.split("/"), start=start, end=end)
    life.ledger.land()


def prepare(life: BarLife) -> None:
    life.edit([(KEYS[1], life.day(), life.price()), *_ticks(life)], prepare=True)


def decide(life: BarLife) -> None:
    for tgid, edit in list(life.ledger.prepared.items())[:1]:
        commit = life.random.random() < 0.7
        life.ledger.deciding = tgid
        life.ledger.in_flight = edit if commit else None
        life.store.resolve(tgid, commit=commit)
        life.ledger.land()
        life.ledger.deciding = None
        del life.ledger.prepared[tgid]


def reopen(life: BarLife) -> None:
    life.store.close()
    life.begin()


def look_as_guest(life: BarLife) -> None:
    with BarReader(life.disk) as guest:
        life.ledger.hold(guest)


Step = Callable[[BarLife], None]
STEPS: dict[str, Step] = {
    "bar": one_bar,
    "many": many,
    "ticks": some_ticks,
    "write back": write_back,
    "delete": delete,
    "prepare": prepare,
    "decide": decide,
    "reopen": reopen,
    "guest": look_as_guest,
}


class BarExplorer:
    """Runs lives of bar stores, and counts what it has seen."""

    def __init__(self, *, seed: int = 0, images_per_point: int = 6) -> None:
        self.seed, self.images_per_point = seed, images_per_point
        self.fired: Counter[str] = Counter()
        self.acknowledged = 0
        self.drawn = 0  # images looked at, those seen before included
        self._seen: set[int] = set()

    @property
    def images(self) -> int:
        """Distinct states of the disk from which a store was recovered and judged."""
        return len(self._seen)

    def sequences(self, length_max: int) -> Iterator[tuple[str, ...]]:
        for length in range(length_max + 1):
            yield from product(STEPS, repeat=length)

    def every_crash_point(
        self,
        sequence: Sequence[str],
        seed: int = 0,
        first: int = 0,
        *,
        last_step_only: bool = False,
    ) -> None:
        """Cut the power, and kill, at each change that this sequence makes from `first` on.

        It is lived once: each change is looked at as if it were the last.  With `last_step_only`
        those of the steps before are left to the shorter sequences.
        """
        disk = SimDisk()
        life = BarLife(disk, BarLedger(), Random(f"{sequence}/{seed}"))
        left = len(sequence) if last_step_only else 1  # steps, the one at work included

        def crash() -> None:
            if left > 1 or disk.posix.operations < first:
                return
            random = Random(f"{self.seed}/{sequence}/{disk.posix.operations}/{seed}")
            for _ in range(self.images_per_point):
                self._outlive(life.ledger.copy(), disk.after_power_cut(random), random)
            self._outlive(life.ledger.copy(), disk.copy_after_kill(), random)

        disk.posix.fired, disk.posix.witness = self.fired, crash
        with undisturbed():
            try:
                life.begin()
                for done, name in enumerate(sequence):
                    left = len(sequence) - done if last_step_only else 1
                    STEPS[name](life)
            except BrokenPromiseError as error:
                error.add_note(f"in {sequence}, seed {seed}, change {disk.posix.operations}")
                raise
        self.acknowledged += len(life.ledger.rows)

    def lives(self, seed: int, count: int = 5) -> None:
        """Several lives on one disk, each cut short somewhere, often in recovery."""
        with undisturbed():
            self._lives(seed, count)

    def _lives(self, seed: int, count: int) -> None:
        random, disk, ledger = Random(f"{self.seed}/{seed}"), SimDisk(), BarLedger()
        disk.posix.fired = self.fired
        steps = list(STEPS.values())
        for number in range(count):
            disk.posix.operations = 0
            disk.posix.dies_at = int(random.random() * random.choice((8, 20, 60, 150)))
            life = BarLife(disk, ledger, random)
            try:
                life.begin()
                if random.random() < 0.3:
                    _let_a_guest_watch(life)
                while True:
                    random.choice(steps)(life)
            except PowerLost:
                disk = disk.after_kill() if random.random() < 0.3 else disk.after_power_cut(random)
                self._is_new(disk, ledger)
            except BrokenPromiseError as error:
                error.add_note(f"in life {number} of seed {self.seed}/{seed}")
                raise
        self._judge(disk, ledger, random)
        self.acknowledged += len(ledger.rows)

    def every_fault(self, sequence: Sequence[str], kind: str, *, for_ever: bool) -> None:
        """Let each system call that this sequence makes fail in turn; then lose power too."""
        at = 0
        with undisturbed():
            while self._fault(sequence, Fault(kind, at, for_ever)):
                at += 1

    def _fault(self, sequence: Sequence[str], fault: Fault) -> bool:
        """False if this sequence does not make so many calls."""
        random = Random(f"{self.seed}/{sequence}/{fault.kind}/{fault.at}")
        disk, ledger = SimDisk(), BarLedger()
        disk.posix.fired, disk.posix.fault = self.fired, fault
        life = BarLife(disk, ledger, random)
        try:
            life.begin()
            for name in sequence:
                STEPS[name](life)
        except (OSError, HoldfastError):
            pass  # it said so: that is all that is asked of it
        if disk.posix.calls <= fault.at:
            return False
        # No guests: they cannot know that the cache shows what a failed sync has lost.
        self._judge(disk.after_power_cut(random), ledger.copy(), random, guests=0)
        disk = disk.after_kill()
        self._judge(disk, ledger, random, guests=0)
        # What it showed was durable.
        self._judge(disk.after_power_cut(random), ledger, random, guests=0)
        return True

    def _outlive(self, ledger: BarLedger, disk: SimDisk, random: Random) -> None:
        """Recover; now and then die once more inside recovery and recover from that."""
        if not self._is_new(disk, ledger):
            return
        if random.random() < 0.3:
            disk.posix.operations, disk.posix.dies_at = 0, int(random.random() * 30)
            second = BarLife(disk, ledger, random)
            try:
                second.begin()
                many(second)
                write_back(second)
            except PowerLost:
                pass
            disk = disk.after_power_cut(random) if random.random() < 0.7 else disk.after_kill()
            self._is_new(disk, ledger)
        self._judge(disk, ledger, random)

    def _judge(self, disk: SimDisk, ledger: BarLedger, random: Random, guests: float = 0.1) -> None:
        if random.random() < guests:
            with BarReader(disk) as guest:  # it sees the same before anything is mended
                ledger.hold(guest)
        life = BarLife(disk, ledger, random)
        life.begin()
        if random.random() < 0.2:  # it must not only be readable but go on
            many(life)
            write_back(life)
            life.ledger.hold(life.store)

    def _is_new(self, disk: SimDisk, ledger: BarLedger) -> bool:
        self.drawn += 1
        promises = ledger.state(), ledger.in_flight, ledger.deciding, ledger.preparing
        image = hash((promises, tuple(_tree(disk.posix._root, ""))))
        if image in self._seen:
            return False
        self._seen.add(image)
        return True


def _tree(directory: Directory, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in directory.live.items():
        if isinstance(node, Directory):
            yield from _tree(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node.durable if not node.pending else bytes(node.live)


def _let_a_guest_watch(life: BarLife) -> None:
    """From now on a guest looks in now and then, also between a write and its sync."""
    posix = life.disk.posix

    def look() -> None:
        if life.random.random() < 0.1:
            posix.bystander, dies_at, posix.dies_at = None, posix.dies_at, None
            with BarReader(life.disk) as guest:
                life.ledger.hold(guest)
            posix.bystander, posix.dies_at = look, dies_at

    posix.bystander = look
