"""A picture of a log: its segments in order, and what is damaged.

A view is replaced, never changed; only its last segment grows.  So a thread that has got a view
reads from it without a lock, while the owner appends, rotates or removes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast.errors import CorruptError
from holdfast.logs.log import Damage, OnDamage, SegmentInfo, out_of_range

if TYPE_CHECKING:
    import pyarrow as pa


class Segment(Protocol):
    """One file of a log, open for reading."""

    name: str

    @property
    def first_index(self) -> int: ...

    @property
    def stop_index(self) -> int: ...

    @property
    def info(self) -> SegmentInfo: ...

    def read(self, index: int, /) -> bytes:
        """Return one payload that this segment holds, its checksum verified."""
        ...

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]": ...

    def check(self) -> Damage | None:
        """Read every byte of the file and verify it.  None for an active segment."""
        ...

    def unload(self) -> None:
        """Free what can be read again."""
        ...

    def close(self) -> None: ...


Piece = TypeVar("Piece", bound=Segment)


@dataclass(frozen=True, slots=True)
class View(Generic[Piece]):
    """The segments of a log, what opening found damaged, and the files that cannot be read.

    `broken` names the files whose indexes cannot be relied on.  `first` is the first index of a
    log that has no segments.
    """

    segments: tuple[Piece, ...] = ()
    damage: tuple[Damage, ...] = ()
    broken: Mapping[str, Damage] = field(default_factory=dict)
    first: int = 1

    @property
    def first_index(self) -> int:
        return self.segments[0].first_index if self.segments else self.first

    @property
    def last_index(self) -> int:
        return self.segments[-1].stop_index - 1 if self.segments else self.first - 1

    def find(self, index: int) -> Piece:
        """Return the segment of an entry.  OutOfRangeError, or CorruptError if it is lost."""
        segments, first, last = self.segments, self.first_index, self.last_index
        if not first <= index <= last:
            self.refuse_if_unknown()
            raise out_of_range(f"entry {index}", first, last)
        segment = segments[bisect_right(segments, index, key=lambda s: s.first_index) - 1]
        if damage := self.doubt(segment, index):
            raise CorruptError(damage.file, damage.offset, f"entry {index}: {damage.why}")
        return segment

    def has(self, segment: Piece) -> bool:
        """Return whether this is one of the segments."""
        at = bisect_right(self.segments, segment.first_index, key=lambda s: s.first_index) - 1
        return at >= 0 and self.segments[at] is segment

    def refuse_if_unknown(self) -> None:
        """Raise CorruptError if damage leaves it unknown which indexes the log holds."""
        is_senseless = self.first_index > self.last_index + 1  # a header is not valid
        is_doubted = bool(self.segments) and len(self.broken) == len(self.segments)
        if self.damage and (is_senseless or is_doubted):
            damage = self.damage[0]
            raise CorruptError(damage.file, damage.offset, damage.why)

    def doubt(self, segment: Piece, index: int) -> Damage | None:
        """Return why entry `index`, which no other segment can hold, cannot be read."""
        if damage := self.broken.get(segment.name):
            return damage
        if segment.first_index <= index < segment.stop_index:
            return None
        known = [d for d in self.damage if d.first_index <= index <= d.last_index] or self.damage
        return replace(known[0] if known else Damage(segment.name, 0, 0, 0, ""), why="missing")

    def infos(self) -> list[SegmentInfo]:
        """Return the segments as an operator sees them."""
        damaged = {damage.file for damage in self.damage} | self.broken.keys()
        infos = [segment.info for segment in self.segments]
        return [replace(one, state="damaged") if one.name in damaged else one for one in infos]

    def with_segments(self, segments: tuple[Piece, ...]) -> "View[Piece]":
        """Return the same view of other segments."""
        return replace(self, segments=segments)
