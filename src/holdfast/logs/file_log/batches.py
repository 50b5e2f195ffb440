"""From slots and bytes of an index file to Arrow batches of its entries."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdfast.formats import rlog
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, Offsets
from holdfast.formats.views import binary_views
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX

if TYPE_CHECKING:
    import pyarrow as pa


def count_sound(ends: rlog.Slots, size: int) -> tuple[int, str]:
    """How many of these entries are in order and inside `size` bytes, and why not more."""
    used = rlog.count_used(ends)
    ordered = rlog.count_ordered(ends[:used])
    there = min(ordered, int(np.searchsorted(ends[:ordered], size, "right")))
    if there < ordered:
        return there, "an offset points past the data"
    if ordered < used:
        return ordered, "its offsets do not follow on each other"
    return used, "it has no offset"


def runs_of(bounds: Offsets) -> Iterator[tuple[int, int]]:
    """Stretches of entries that fit into one batch."""
    first, count = 0, len(bounds) - 1
    while first < count:
        room = int(np.searchsorted(bounds, bounds[first] + BATCH_SIZE_MAX, "right")) - 1
        last = min(max(room, first + 1), first + BATCH_ENTRIES_MAX, count)
        yield first, last
        first = last


def batch_of(
    region: memoryview, bounds: Offsets, first: int, stop: int, index: int
) -> "pa.RecordBatch":
    """Entries first..stop-1 of those between `bounds`; what they hold begins behind the header."""
    import pyarrow as pa

    here = bounds[first : stop + 1]
    piece = region[int(here[0] - bounds[0]) : int(here[-1] - bounds[0])]
    starts = here[:-1] - here[0] + ENTRY_HEADER_SIZE
    views = pa.py_buffer(binary_views(piece, starts, np.diff(here) - ENTRY_HEADER_SIZE))
    payload = pa.Array.from_buffers(
        pa.binary_view(), stop - first, [None, views, pa.py_buffer(piece)]
    )
    indexes = pa.array(np.arange(index, index + stop - first, dtype=np.int64))
    return pa.RecordBatch.from_arrays(
        [indexes, payload, pa.array(here[:-1])], ["index", "payload", "offset"]
    )
