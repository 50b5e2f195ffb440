"""Simulated lives whose files are deleted, emptied, zeroed or flipped: after kills, power cuts and
clean closes.

The images are those of the explorer; the ways to harm a file, and what a format need not notice,
are those of holdfast.testing.damages.  The oracle of a log, which MarkContract shares:

1. Every acknowledged entry is read as it was written, or is in the range of reported damage.
2. If damage is reported, an owner cuts nothing and appends nothing.
3. If not, the log is whole: the owner appends after the last acknowledged entry.

After a power cut the mark may be older than the last entries.  Then only what it covers counts.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from random import Random
from typing import Any, Generic, TypeVar

from holdfast.bars.reader import BarReader
from holdfast.errors import CorruptError, HoldfastError, NotFoundError, OutOfRangeError
from holdfast.formats.mark import Mark
from holdfast.logs.log import Damage, LogReader
from holdfast.logs.mark import read_mark
from holdfast.ownership import LOCK
from holdfast.testing.bar_ledger import BarLedger, State, state_of
from holdfast.testing.bars import BarExplorer, BarLife, open_store
from holdfast.testing.damages import (
    CHANGED,
    CLOSED,
    FEWER,
    KILLED,
    NOTICED,
    OUTCOMES,
    WAYS,
    allowed,
)
from holdfast.testing.explorer import LifeExplorer, undisturbed
from holdfast.testing.lives import BrokenPromiseError, Ledger, Mortal
from holdfast.testing.logs import Explorer, Life
from holdfast.testing.logs import Ledger as LogLedger
from holdfast.testing.sim_disk import SimDisk

POWER_CUT = "power cut"
_COMPLETED = "wrote the slots of entries"
_NOT_HARMED = LOCK, "*.cut", "*.half"

AnyLife = TypeVar("AnyLife", bound=Mortal[Any])


class Harms(Generic[AnyLife, Ledger]):
    """Harms copies of simulated stores; `explorer.fired` counts the ways and the outcomes."""

    def __init__(self, explorer: LifeExplorer[AnyLife, Ledger], format: str) -> None:
        self._explorer, self._fired, self._format = explorer, explorer.fired, format

    @abstractmethod
    def outcome(self, disk: SimDisk, ledger: Ledger, state: str, harm: "Harm") -> str:
        """Open the harmed store, as a guest and as an owner; return the gravest outcome."""

    def remember(self, ledger: Ledger) -> None:
        """Called at each change of a life."""

    def explore(self, *sequence: str, chance: float = 0.1, closed: int = 8, seed: int = 0) -> None:
        """Run a life; harm an image at some of its changes, and the closed store several times."""
        explorer, disk = self._explorer, SimDisk()
        random, ledger = Random(f"{explorer.seed}/{sequence}/{seed}"), explorer.new_ledger()
        life = explorer.new_life(disk, ledger, random)

        def crash() -> None:
            self.remember(ledger)
            if random.random() < chance:
                is_kill = random.random() < 0.5
                image = disk.copy_after_kill() if is_kill else disk.after_power_cut(random)
                self._harm(image, ledger.copy(), KILLED if is_kill else POWER_CUT, random)

        disk.posix.fired, disk.posix.witness = self._fired, crash
        with undisturbed():
            life.begin()
            for name in sequence:
                explorer.steps()[name](life)
            disk.posix.witness = None
            life.close()
            for _ in range(closed):
                self._harm(disk.copy_after_kill(), ledger.copy(), CLOSED, random)

    def _harm(self, disk: SimDisk, ledger: Ledger, state: str, random: Random) -> None:
        names = [n for n in disk.files() if not any(fnmatch(n, one) for one in _NOT_HARMED)]
        if not names:
            return
        harm = Harm(random.choice(names), random.choice([*WAYS]), random.getrandbits(32))
        found = self.outcome(disk, ledger, state, harm)
        for fired in (state, harm.way, found):
            self._fired[fired] += 1
        crash = CLOSED if state == CLOSED else KILLED
        limit = allowed(self._format, harm.name, disk.files(), crash, harm.way)
        if OUTCOMES.index(found) > OUTCOMES.index(limit):
            raise BrokenPromiseError("lost", f"{harm} in a store after {state}: {found}")


class Harm:
    """What is done to one file."""

    def __init__(self, name: str, way: str, seed: int) -> None:
        self.name, self.way, self._seed = name, way, seed

    def __str__(self) -> str:
        return f"{self.name} was {self.way} (seed {self._seed})"

    def done_to(self, disk: SimDisk) -> SimDisk:
        """Return a harmed copy."""
        copy = disk.copy_after_kill()
        copy.replace_content(self.name, WAYS[self.way](disk.files()[self.name], Random(self._seed)))
        return copy


class LogHarms(Harms[Life, LogLedger]):
    """Harms logs."""

    def __init__(self, explorer: Explorer, format: str) -> None:
        super().__init__(explorer, format)
        self._subject = explorer.subject

    def outcome(self, disk: SimDisk, ledger: LogLedger, state: str, harm: Harm) -> str:
        last = len(ledger.promised) if ledger.cut_to is None else ledger.cut_to
        if state == POWER_CUT:
            mark = read_mark(disk)
            last = min(last, mark.last_index if isinstance(mark, Mark) else 0)
        entries = dict(enumerate(ledger.promised, 1))
        must = {i: entries[i] for i in range(ledger.first_max, last + 1) if i in entries}
        may = entries | dict(enumerate(ledger.in_flight, len(ledger.promised) + 1))
        found = self._as_guest(harm.done_to(disk), must, may)
        return max(found, self._as_owner(harm.done_to(disk), must, may), key=OUTCOMES.index)

    def _as_guest(self, disk: SimDisk, must: Mapping[int, bytes], may: Mapping[int, bytes]) -> str:
        try:
            log = self._subject.open_reader(disk)
        except HoldfastError:
            return NOTICED
        return judge_log(log, reported_by(log), must, may)

    def _as_owner(self, disk: SimDisk, must: Mapping[int, bytes], may: Mapping[int, bytes]) -> str:
        before = _content(disk)
        try:
            log = self._subject.open(disk)
        except HoldfastError:
            return NOTICED
        outcome = judge_log(log, reported_by(log), must, may)
        try:
            index = log.append([b"?"])
        except CorruptError:
            self._fired["damaged"] += 1
            # A FileLog first completes a whole batch, by its record, and then finds the damage.
            is_completed = log.recovered and all(_COMPLETED in line for line in log.recovered)
            if log.damage and not is_completed and _content(disk) != before:
                raise BrokenPromiseError("changed", f"in spite of {log.damage[0]}") from None
        else:
            self._fired["whole"] += 1
            if index in must:
                outcome = max(outcome, FEWER, key=OUTCOMES.index)
        return outcome


def judge_log(
    log: LogReader, reported: Iterable[Damage], must: Mapping[int, bytes], may: Mapping[int, bytes]
) -> str:
    """Compare what a log shows, and what it reports, with what was acknowledged."""
    damage, outcome = [one for one in reported if not one.torn], NOTICED
    if not damage and not {log.last_index} <= {*may, log.first_index - 1}:
        return CHANGED  # it has more than was ever written
    for index in sorted(may):
        try:
            payload = log.read(index)
        except (CorruptError, OutOfRangeError):
            if index in must and not is_reported(index, damage):
                outcome = max(outcome, FEWER, key=OUTCOMES.index)
        else:
            if may[index] != payload:
                outcome = CHANGED
    return outcome


def is_reported(index: int, damage: Iterable[Damage]) -> bool:
    """Return whether an entry lies in reported damage; some damage has no known range."""
    return any(not one.first_index or one.first_index <= index <= one.last_index for one in damage)


def reported_by(log: LogReader) -> list[Damage]:
    """Return what opening and checking a log report."""
    checked = [log.check(segment.name) for segment in log.segments()]
    return [*log.damage, *(one for one in checked if one is not None)]


class BarHarms(Harms[BarLife, BarLedger]):
    """Harms bar stores."""

    def __init__(self, explorer: BarExplorer) -> None:
        super().__init__(explorer, "bars")
        self._ever: set[tuple[str, int, int]] = set()  # rows: the loss of a deletion shows old ones

    def remember(self, ledger: BarLedger) -> None:
        self._ever |= {(key, time_ns, price) for key, time_ns, price, _ in ledger.state()}
        self._ever |= {*ledger.in_flight.written} if ledger.in_flight else set()

    def outcome(self, disk: SimDisk, ledger: BarLedger, state: str, harm: Harm) -> str:
        with_it = ledger.copy()
        with_it.land()
        states = {ledger.state(), with_it.state()}
        found = []
        for owner in (False, True):
            copy = harm.done_to(disk)
            with suppress(NotFoundError):
                found.append(self._outcome(copy, states, owner=owner))
        return max(found, key=OUTCOMES.index, default=NOTICED)

    def _outcome(self, disk: SimDisk, states: set[State], *, owner: bool) -> str:
        try:
            store = open_store(disk) if owner else BarReader(disk)
            shown = state_of(store)
            is_clean = not owner and store.verify().verdict == "clean"
        except (HoldfastError, ValueError):  # ValueError: the columns of two buckets differ
            return NOTICED
        if shown in states:
            return NOTICED
        if any(row[:3] not in self._ever for row in shown):
            return CHANGED
        return NOTICED if store.damage or not (owner or is_clean) else FEWER


def _content(disk: SimDisk) -> dict[str, bytes]:
    """Return the files of a store, without what every owner may change or remove."""
    return {n: d for n, d in disk.files().items() if n != LOCK and not n.endswith(".half")}
