"""Plans of repairs: what would be kept and what would be lost.

Indexes stay contiguous, so a damaged range cannot be left out: the entries before it are kept, or
the entries after it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Self, TypeVar

from holdfast.errors import ChangedError, HoldfastError
from holdfast.logs.log import Damage

Keep = Literal["before", "after"]
Span = tuple[int, int]  # of indexes, both ends included

Step = TypeVar("Step")
Plan = TypeVar("Plan", bound="RepairPlan[Any]")

_LOOKS_MAX = 100


@dataclass(frozen=True, slots=True)
class RepairPlan(Generic[Step]):
    keep: Keep
    damage: tuple[Damage, ...]
    steps: tuple[Step, ...]
    kept: Span  # the log's first and last index afterwards
    lost: tuple[Span, ...]
    unknown: tuple[str, ...]  # files that may hold more, with unknown indexes or keys
    side_files: tuple[Damage, ...] = field(default=(), kw_only=True)  # these are set aside

    @property
    def is_needed(self) -> bool:
        return bool(self.damage or self.side_files)

    @property
    def lossless(self) -> bool:
        return not self.lost and not self.unknown

    def refuse_if_changed(self, now: Self) -> None:
        """Raise if the log has changed since this plan was made."""
        if now != self:
            raise HoldfastError("the log has changed since this repair was planned; plan it again")


def settled(look: Callable[[], Plan]) -> Plan:
    """Plan until two plans agree, or there is nothing to repair.

    A plan is made without the lock.  Beside a live owner names and bytes are not read at one
    instant, and may seem to contradict each other; what is damaged looks the same a second time.
    """
    seen: Plan | None = None
    for _ in range(_LOOKS_MAX):
        try:
            plan = look()
        except FileNotFoundError:  # removed between the look at names and at bytes
            continue
        if all(damage.torn for damage in plan.damage) or plan == seen:
            return plan
        seen = plan
    raise ChangedError(f"the log changed during {_LOOKS_MAX} looks at it; stop its owner first")


def check_keep(keep: Keep) -> None:
    if keep not in ("before", "after"):
        raise ValueError(f"keep must be 'before' or 'after' the damage, not {keep!r}")


def less_kept(spans: Iterable[Span], kept: Span) -> tuple[Span, ...]:
    """Return these spans merged, in order, without what is kept."""
    merged: list[Span] = []
    for first, last in spans:
        for a, b in ((first, min(last, kept[0] - 1)), (max(first, kept[1] + 1), last)):
            if a <= b and merged and a <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            elif a <= b:
                merged.append((a, b))
    return tuple(merged)
