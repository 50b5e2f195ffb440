"""The steps of one writer of holdfast.testing.bars_simulation, and what is shown after each."""

from dataclasses import dataclass, field

Bars = tuple[tuple[str, int, int], ...]  # symbol, day, price
Ticks = tuple[int, ...]  # prices


@dataclass(slots=True)
class Notes:
    """The steps of one writer: what its symbols show after each number of them."""

    name: str
    bars: list[Bars] = field(default_factory=lambda: [()])
    ticks: list[Ticks] = field(default_factory=lambda: [()])
    promised: int = 0  # steps that were acknowledged or shown
    tgid: int = 0

    @property
    def begun(self) -> int:
        return len(self.bars) - 1

    def begin_write(self, day: int, price: int) -> int:
        rows = {row[:2]: row[2] for row in self.bars[-1]}
        rows |= {(f"{self.name}{side}", day): price for side in "ab"}
        return self._begin(rows, tuple(sorted((*self.ticks[-1], price))))

    def begin_delete(self, day: int) -> int:
        rows = {row[:2]: row[2] for row in self.bars[-1] if row[1] != day}
        return self._begin(rows, self.ticks[-1])

    def _begin(self, rows: dict[tuple[str, int], int], ticks: Ticks) -> int:
        self.bars.append(tuple(sorted((*place, price) for place, price in rows.items())))
        self.ticks.append(ticks)
        return self.begun

    def begin_tick(self, price: int) -> int:
        rows = {row[:2]: row[2] for row in self.bars[-1]}
        return self._begin(rows, tuple(sorted((*self.ticks[-1], price))))

    def possible(self, lowest: int, bars: Bars | None, ticks: Ticks | None) -> list[int]:
        """Return the numbers of steps, from `lowest` on, after which this is shown."""
        return [
            step
            for step in range(lowest, self.begun + 1)
            if bars in (None, self.bars[step]) and ticks in (None, self.ticks[step])
        ]

    def forget(self, step: int) -> None:
        """Drop the steps after this one: they did not happen."""
        del self.bars[step + 1 :], self.ticks[step + 1 :]
        self.promised = step
