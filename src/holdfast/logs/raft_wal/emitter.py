"""Batches of a segment made into Arrow batches, every checksum verified, without a copy."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.views import binary_views
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX, Damage, OnDamage

if TYPE_CHECKING:
    import pyarrow as pa

Read = Callable[[int, int], memoryview]


class Emitter:
    """Raises at a damaged batch, or tells and goes on behind it."""

    def __init__(
        self, name: str, base_index: int, on_damage: OnDamage | None, *, verify: bool
    ) -> None:
        self._name, self._base_index = name, base_index
        self._on_damage, self._verify = on_damage, verify

    def entries(
        self, found: fmt.Scan, read: Read, first: int, count: int
    ) -> "Iterator[pa.RecordBatch]":
        """Entries first..first+count-1, counted from the segment's base."""
        stop = first + count
        k = int(np.searchsorted(found.counts, first, "right"))
        while first < stop:
            last = _group(found, k, stop)
            begin = int(found.begins[k])
            region = read(begin, int(found.commits[last]) + fmt.COMMIT_SIZE)
            end = min(stop, int(found.counts[last]))
            yield from self._group(found, region, (k, last), (first, end))
            first, k = end, last + 1

    def _group(
        self, found: fmt.Scan, region: memoryview, batches: tuple[int, int], span: tuple[int, int]
    ) -> "Iterator[pa.RecordBatch]":
        """`region` is the bytes of batches k..last, in which the entries of `span` are."""
        (k, last), (first, stop) = batches, span
        here = slice(k, last + 1)
        begin = int(found.begins[k])
        bad = []
        if self._verify:
            bad = fmt.bad_slices(region, found.begins[here] - begin, found.commits[here] - begin)
        for i in bad:
            bad_first = max(first, int(found.counts[k + i - 1]) if k + i else 0)
            bad_stop = min(stop, int(found.counts[k + i]))
            if bad_first < bad_stop:
                yield from self._run(found, region, begin, first, bad_first)
                self._tell(int(found.begins[k + i]), bad_first, bad_stop - 1)
                first = bad_stop
        yield from self._run(found, region, begin, first, stop)

    def _run(
        self, found: fmt.Scan, region: memoryview, begin: int, first: int, stop: int
    ) -> "Iterator[pa.RecordBatch]":
        while first < stop:
            starts = found.starts[first : min(stop, first + BATCH_ENTRIES_MAX)] - begin
            room = int(np.searchsorted(starts, starts[0] + BATCH_SIZE_MAX, "right"))
            starts = starts[: max(room, 1)]
            lengths = found.lengths[first : first + len(starts)]
            if not len(lengths):
                lengths = fmt.frame_lengths(region, starts)
            yield _batch(region, begin, starts, lengths, self._base_index + first)
            first += len(starts)

    def _tell(self, offset: int, first: int, last: int) -> None:
        first, last = first + self._base_index, last + self._base_index
        why = f"entries {first} to {last}: {fmt.BAD_CHECKSUM}"
        if self._on_damage is None:
            raise CorruptError(self._name, offset, why)
        self._on_damage(Damage(self._name, offset, first, last, why))


def _group(found: fmt.Scan, k: int, stop: int) -> int:
    """The last of the batches from k on that are worth one read; those of entries before stop."""
    room = int(np.searchsorted(found.commits, found.begins[k] + BATCH_SIZE_MAX, "right")) - 1
    enough = int(np.searchsorted(found.counts, stop))
    return min(max(room, k), enough, len(found.commits) - 1)


def _batch(
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
