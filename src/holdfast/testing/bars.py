"""Bar stores for the explorer: what they promise, and the steps of a life.

The oracle: every row that was acknowledged, or shown by an earlier recovery or to a guest, is
there.  The group in flight is there whole or not at all.  Prepared groups stay undecided until they
are decided.  No row is invented or doubled, and the store can be written.
"""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from holdfast.bars.reader import BarReader
from holdfast.bars.writer import BarStore
from holdfast.errors import HoldfastError, NotFoundError
from holdfast.formats.bar_time import DAY_NS, year_start_ns
from holdfast.group_commit import Alone
from holdfast.runtime import Runtime
from holdfast.testing.bar_ledger import KEYS, TICKS, BarLedger, Edit
from holdfast.testing.explorer import BrokenPromiseError, LifeExplorer, Mortal
from holdfast.testing.sim_disk import SimDisk

YEARS = (2020, 2021)
_BAR = [("Epoch", "<i8"), ("Price", "<i8")]
_TICK = [("Epoch", "<i8"), ("Nanoseconds", "<i4"), ("Price", "<i4")]


class BarLife(Mortal[BarLedger]):
    """One process's use of a store, from opening it to its death."""

    curiosity = 0.1
    store: BarStore

    def open(self) -> None:
        self.store = open_store(self.disk)

    def close(self) -> None:
        self.store.close()

    def guards(self) -> Sequence[Alone]:
        return self.store._commits.queue, self.store._write_back.alone

    @property
    def refusal(self) -> HoldfastError | None:
        return self.store._handle.refusal

    def look(self) -> None:
        if self.store.damage:
            raise BrokenPromiseError("hidden", f"damage: {self.store.damage[0]}")
        self.ledger.hold(self.store)

    def look_as_guest(self) -> None:
        try:
            guest = BarReader(self.disk)
        except NotFoundError as error:  # a crash may come before the root is created
            if self.ledger.acknowledged:
                raise BrokenPromiseError("lost", str(error)) from error
            return
        with guest:
            self.ledger.hold(guest)

    def settle(self) -> None:
        self.ledger.in_flight = None  # recovery has cut off what it did not show
        self.ledger.hold_undecided(self.store)

    def go_on(self) -> None:
        many(self)
        flush(self)

    def vanish(self) -> None:
        for part in (self.store._commits, self.store._write_back, self.store):
            vars(part).clear()

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


SIM_RUNTIME = Runtime(
    now_ns=lambda: 1_600_000_000_000_000_000,
    process_id=lambda: 7,
    was_running=lambda pid, at_ns: False,
)


def open_store(disk: SimDisk) -> BarStore:
    return BarStore(
        disk,
        create=True,
        wal_size_max=700,
        open_files_max=2,
        runtime=SIM_RUNTIME,
    )


def one_bar(life: BarLife) -> None:
    life.edit([(KEYS[0], life.day(), life.price())])


def many(life: BarLife) -> None:
    """Write bars of two symbols and ticks as one group, all of it or nothing."""
    day = life.day()
    bars = [(key, day + n * DAY_NS, life.price()) for key in KEYS[:2] for n in (0, 1)]
    life.edit([*bars, *_ticks(life)])


def some_ticks(life: BarLife) -> None:
    life.edit(_ticks(life))


def _ticks(life: BarLife) -> list[tuple[str, int, int]]:
    """Return times that ticks can represent exactly."""
    day = life.day()
    return [(TICKS, day + n * DAY_NS // 4, life.price()) for n in (1, 0, 1)]


def flush(life: BarLife) -> None:
    life.store.flush()


def delete(life: BarLife) -> None:
    key = KEYS[int(life.random.random() * 3)]
    start = life.day()
    stop = start + DAY_NS // 8
    life.ledger.in_flight = Edit(removed=((key, start, stop),))
    life.store.delete(*key.split("/"), start=start, stop=stop)
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
    life.close()
    life.begin()


Step = Callable[[BarLife], None]
STEPS: dict[str, Step] = {
    "bar": one_bar,
    "many": many,
    "ticks": some_ticks,
    "flush": flush,
    "delete": delete,
    "prepare": prepare,
    "decide": decide,
    "reopen": reopen,
    "guest": BarLife.look_as_guest,
}


class BarExplorer(LifeExplorer[BarLife, BarLedger]):
    """Runs lives of bar stores, and counts the images."""

    changes_max = 8, 20, 60, 150
    recovery_changes_max = 30
    guests_first = 0.1
    ways_out, cut_files = ("flush",), "WALFile.*"

    def steps(self) -> dict[str, Step]:
        return STEPS

    def new_ledger(self) -> BarLedger:
        return BarLedger()

    def new_life(self, disk: SimDisk, ledger: BarLedger, random: Random) -> BarLife:
        return BarLife(disk, ledger, random)
