"""What the repair of every log has in common: a plan that says what would be lost, before it is.

Indexes stay contiguous and keep their meaning, so a damaged stretch cannot simply be left out:
either what comes before it is kept, or what comes after.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Literal, Self, TypeVar

from holdfast.errors import HoldfastError
from holdfast.logs.log import Damage

Keep = Literal["before", "after"]
Span = tuple[int, int]  # of indexes, both ends included

Step = TypeVar("Step")


@dataclass(frozen=True, slots=True)
class RepairPlan(Generic[Step]):
    keep: Keep
    damage: tuple[Damage, ...]
    steps: tuple[Step, ...]
    kept: Span  # the log's first and last index afterwards
    lost: tuple[Span, ...]
    unknown: tuple[str, ...]  # files that may hold more, of whatever index or key

    @property
    def lossless(self) -> bool:
        return not self.lost and not self.unknown

    def refuse_if_changed(self, now: Self) -> None:
        """Only what was shown to someone is carried out."""
        if now != self:
            raise HoldfastError("the log has changed since this repair was planned; plan it again")


def check_keep(keep: Keep) -> None:
    if keep not in ("before", "after"):
        raise ValueError(f"keep is 'before' or 'after' the damage, not {keep!r}")


def less_kept(spans: Iterable[Span], kept: Span) -> tuple[Span, ...]:
    """These spans, in the order of their beginnings, merged, and without what is kept."""
    merged: list[Span] = []
    for first, last in spans:
        for a, b in ((first, min(last, kept[0] - 1)), (max(first, kept[1] + 1), last)):
            if a <= b and merged and a <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            elif a <= b:
                merged.append((a, b))
    return tuple(merged)
