"""The batches of a raft-wal segment as Arrow batches, every checksum verified, without a copy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_entry import other_indexes
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.formats.views import binary_views
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX, Damage, OnDamage

if TYPE_CHECKING:
    import pyarrow as pa


def emit(
    name: str,
    meta: SegmentMeta,
    found: fmt.Scan,
    read: Callable[[int, int], memoryview],
    span: tuple[int, int],
    on_damage: OnDamage | None,
    *,
    verify: bool,
) -> "Iterator[pa.RecordBatch]":
    """Yield the entries of `span`.  At a damaged batch report it, and continue after it.

    Raft entries hold their own index: an entry with another one is damage too.
    """
    base_index, strange = meta.base_index, _Strange(name, meta, on_damage)
    first, stop = span[0] - base_index, min(span[1] - base_index, len(found.starts))
    k = int(np.searchsorted(found.counts, first, "right"))
    while first < stop:
        last = _last_of_read(found, k, stop)
        begin, here = int(found.begins[k]), slice(k, last + 1)
        region = read(begin, int(found.commits[last]) + fmt.COMMIT_SIZE)
        end, bad = min(stop, int(found.counts[last])), list[int]()
        if verify:
            bad = fmt.bad_slices(region, found.begins[here] - begin, found.commits[here] - begin)
        for i in bad:
            lost = max(first, int(found.counts[k + i - 1]) if k + i else 0)
            after = min(end, int(found.counts[k + i]))
            if lost < after:
                yield from _run(found, region, begin, (first, lost), strange)
                lost_span = lost + base_index, after - 1 + base_index
                why = f"entries {lost_span[0]} to {lost_span[1]}: {fmt.BAD_CHECKSUM}"
                report(name, int(found.begins[k + i]), lost_span, why, on_damage)
                first = after
        yield from _run(found, region, begin, (first, end), strange)
        first, k = end, last + 1
    if (end := max(span[0], stop + base_index)) < span[1]:
        why = f"entries {end} to {span[1] - 1} were not found"
        report(name, found.stop, (end, span[1] - 1), why, on_damage)


def report(
    name: str, offset: int, lost: tuple[int, int], why: str, on_damage: OnDamage | None
) -> None:
    if on_damage is None:
        raise CorruptError(name, offset, why)
    on_damage(Damage(name, offset, *lost, why))


def _last_of_read(found: fmt.Scan, k: int, stop: int) -> int:
    """Return the last batch of one read that starts with batch k, for entries before `stop`."""
    room = int(np.searchsorted(found.commits, found.begins[k] + BATCH_SIZE_MAX, "right")) - 1
    enough = int(np.searchsorted(found.counts, stop))
    return min(max(room, k), enough, len(found.commits) - 1)


@dataclass(frozen=True, slots=True)
class _Strange:
    """Finds Raft entries that are not what their place says."""

    name: str
    meta: SegmentMeta
    on_damage: OnDamage | None

    def split(
        self, region: memoryview, begin: int, starts: fmt.Offsets, lengths: fmt.Offsets, first: int
    ) -> tuple[int, int]:
        """Return how many entries are what they should be, and how many others come after them.

        The others are reported.  `first` counts from the base of the segment.
        """
        if self.meta.codec != fmt.RAFT_CODEC:
            return len(starts), 0
        index = self.meta.base_index + first
        others = other_indexes(region, starts + fmt.FRAME_HEADER_SIZE, lengths, index)
        if not len(others):
            return len(starts), 0
        good, bad = int(others[0]), int(others[-1]) + 1 - int(others[0])
        lost = index + good, index + good + bad - 1
        why = f"entries {lost[0]} to {lost[1]} hold other indexes"
        report(self.name, begin + int(starts[good]), lost, why, self.on_damage)
        return good, bad


def _run(
    found: fmt.Scan, region: memoryview, begin: int, span: tuple[int, int], strange: _Strange
) -> "Iterator[pa.RecordBatch]":
    """Yield entries of `span`, counted from the base; `region` is the file from `begin` on."""
    first, stop = span
    while first < stop:
        starts = found.starts[first : min(stop, first + BATCH_ENTRIES_MAX)] - begin
        room = int(np.searchsorted(starts, starts[0] + BATCH_SIZE_MAX, "right"))
        starts = starts[: max(room, 1)]
        lengths = found.lengths[first : first + len(starts)]
        if not len(lengths):
            lengths = fmt.frame_lengths(region, starts)
        good, others = strange.split(region, begin, starts, lengths, first)
        if good:
            index = strange.meta.base_index + first
            yield _record_batch(region, begin, starts[:good], lengths[:good], index)
        first += good + others


def _record_batch(
    region: memoryview, begin: int, starts: fmt.Offsets, lengths: fmt.Offsets, index: int
) -> "pa.RecordBatch":
    import pyarrow as pa

    origin = int(starts[0])  # views count in 31 bits, and a batch may be larger
    stop = int(starts[-1]) + fmt.FRAME_HEADER_SIZE + int(lengths[-1])
    piece = region[origin:stop]
    views = pa.py_buffer(binary_views(piece, starts - origin + fmt.FRAME_HEADER_SIZE, lengths))
    payload = pa.Array.from_buffers(
        pa.binary_view(), len(starts), [None, views, pa.py_buffer(piece)]
    )
    indexes = pa.array(np.arange(index, index + len(starts), dtype=np.int64))
    offsets = pa.array(starts + begin)
    return pa.RecordBatch.from_arrays([indexes, payload, offsets], ["index", "payload", "offset"])
