"""Which segments a truncation leaves.  A decision, not a deed: RaftWal carries it out."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.formats.raft_meta import SegmentMeta


def after_head(
    segments: Sequence[SegmentMeta], first: int, last_index: int
) -> tuple[SegmentMeta, ...]:
    """What is left of a log that ends at `last_index` once entries before `first` are gone.

    Whole segments go; of the first that stays only the record of where it begins changes.
    """
    kept = [s for s in segments if (s.max_index if s.sealed else last_index) >= first]
    return (replace(kept[0], min_index=first), *kept[1:]) if kept else ()


def before_tail(segments: Sequence[SegmentMeta], last: int) -> tuple[SegmentMeta, ...]:
    """The segments that hold anything once entries after `last` are gone; the last is cut."""
    return tuple(s for s in segments if s.base_index <= last and s.min_index <= last)


def sealed_at(meta: SegmentMeta, last: int, index_start: int, now: str) -> SegmentMeta:
    return replace(meta, max_index=last, index_start=index_start, seal_time=now)


def next_size(size: int, filled_in_ms: int, target_ms: int, sizes: tuple[int, int]) -> int:
    """The limit of the segment after one of `size` that took so long to fill.

    Twice as large if it was full in less than half the target, half as large if it took more than
    twice the target, within the two `sizes`.
    """
    if 2 * filled_in_ms < target_ms:
        size *= 2
    elif filled_in_ms > 2 * target_ms:
        size //= 2
    return max(sizes[0], min(size, sizes[1]))
