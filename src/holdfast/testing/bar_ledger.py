"""What a bar store has promised: the oracle of holdfast.testing.bars."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from holdfast.bars.query import Span
from holdfast.bars.reader import Bars
from holdfast.bars.writer import BarStore
from holdfast.errors import HoldfastError
from holdfast.testing.explorer import BrokenPromiseError

TICKS = "A/1D/TICK"
KEYS = ("A/1D/BAR", "B/1D/BAR", TICKS)
State = frozenset[tuple[str, int, int, int]]  # bucket, time, price, and how many of the same


def state_of(store: Bars) -> State:
    """Return everything that can be read."""
    _, bars = store._rows(KEYS[:2], Span(), None)
    _, ticks = store._rows(KEYS[2:], Span(), None)
    found: Counter[tuple[str, int, int]] = Counter()
    for key, rows in (*bars.items(), *ticks.items()):
        prices = rows.columns[0].tolist()
        found.update((key, *row) for row in zip(rows.times_ns.tolist(), prices, strict=True))
    return frozenset((*row, count) for row, count in found.items())


@dataclass(slots=True)
class BarLedger:
    """What a store has promised so far."""

    rows: dict[tuple[str, int], list[int]] = field(
        default_factory=dict
    )  # prices, in order of commit
    prepared: dict[int, "Edit"] = field(default_factory=dict)
    in_flight: "Edit | None" = None  # may have happened
    deciding: int | None = None  # a tgid that may be undecided or not
    preparing: "Edit | None" = None  # may be undecided

    def copy(self) -> "BarLedger":
        rows = {place: list(prices) for place, prices in self.rows.items()}
        flight = self.in_flight, self.deciding, self.preparing
        return BarLedger(rows, dict(self.prepared), *flight)

    @property
    def acknowledged(self) -> int:
        return len(self.rows)

    def key(self) -> Hashable:
        return self.state(), self.in_flight, self.deciding, self.preparing

    def state(self) -> State:
        found: Counter[tuple[str, int, int]] = Counter()
        for (key, time_ns), prices in self.rows.items():
            found.update((key, time_ns, price) for price in prices)
        return frozenset((*row, count) for row, count in found.items())

    def land(self) -> None:
        if self.in_flight is not None:
            self.in_flight.apply(self.rows)
        self.in_flight = None

    def hold(self, store: Bars) -> None:
        """Compare rows that were read with the ledger; they count as promised from now on."""
        try:
            shown = state_of(store)
        except HoldfastError as error:
            raise BrokenPromiseError("hidden", str(error)) from error
        if shown == self.state():
            return
        with_it = self.copy()
        with_it.land()
        if shown != with_it.state():
            missing, extra = self.state() - shown, shown - with_it.state()
            kind = "lost" if missing and not extra else "invented"
            raise BrokenPromiseError(kind, f"missing {sorted(missing)}, too much {sorted(extra)}")
        self.land()

    def hold_undecided(self, store: BarStore) -> None:
        """Compare the undecided groups, which only an owner knows."""
        undecided = set(store.undecided)
        wanted = set(self.prepared)
        extra = undecided - wanted
        if self.preparing is not None and len(extra) == 1:
            self.prepared[extra.pop()] = self.preparing
        if self.deciding is not None and self.deciding not in undecided:
            wanted.discard(self.deciding)
            self.prepared.pop(self.deciding, None)
        self.preparing = self.deciding = None
        if extra or wanted - undecided:
            raise BrokenPromiseError("lost", f"undecided {undecided}, not {wanted}")


@dataclass(frozen=True, slots=True)
class Edit:
    """What one group does."""

    written: tuple[tuple[str, int, int], ...] = ()  # bucket, time, price
    removed: tuple[tuple[str, int, int], ...] = ()  # bucket, start, stop

    def apply(self, rows: dict[tuple[str, int], list[int]]) -> None:
        for key, start, stop in self.removed:
            for place in [p for p in rows if p[0] == key and start <= p[1] < stop]:
                del rows[place]
        for key, time_ns, price in self.written:
            if key == TICKS:
                rows.setdefault((key, time_ns), []).append(price)
            else:
                rows[key, time_ns] = [price]
