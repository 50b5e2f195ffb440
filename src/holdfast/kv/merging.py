"""Sort keys faster than by comparing them, and merge sorted rows.

The eight bytes of each key after the common prefix become a number, and the numbers are sorted.
Keys that are equal in these bytes are then compared as a whole.

A merge keeps the newest row of each key.

Sources are ordered, the newest first, and only this order decides: sequence numbers are not
compared.  Chunks are merged, not rows.  A step takes all rows up to the smallest last key of the
current chunks.  It sorts them with one stable call, and keeps the first row of each key.  So memory
holds one chunk of each source.

Small neighbours are joined first, with one call for all of them.  A step asks every source, so a
thousand sources of one row each would otherwise take a thousand steps of a thousand questions.

    merge_rows([newer, older])                      one Rows of several
    merge([newer_stream, older_stream])             the same of streams of Rows, chunk by chunk
    without_tombstones(rows), reversed_rows(rows)
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from holdfast.formats.sst import EMPTY, Rows
from holdfast.formats.sst.rows import booleans, column, integers, numbers

Places = npt.NDArray[np.int64]

_WORD = 8
_FEW = 200  # fewer keys are faster to sort directly
_SMALL = 1 << 18  # bytes of a source that is joined with its neighbours
_JOINED_SIZE = 32 << 20  # bytes of neighbours that are joined with one call
_CHUNK_SIZE = 2 << 20


def sort_order(keys: Any, shared: int | None = None) -> Places:
    """Return the places of a binary array's keys in rising order; equal ones keep their order.

    `shared`: how many bytes all of them begin with, if known.
    """
    return _ordered(keys, shared)[0]


def distinct_order(keys: Any, shared: int | None = None) -> Places:
    """Return the same order, with only the first of equal keys."""
    order, repeats = _ordered(keys, shared)
    return np.delete(order, repeats) if len(repeats) else order


def common_prefix(low: bytes, high: bytes) -> int:
    """Return how many bytes all keys between these two begin with."""
    for place, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return place
    return min(len(low), len(high))


def _shared(keys: Any) -> int:
    extremes = pc.min_max(keys)
    return common_prefix(extremes["min"].as_py(), extremes["max"].as_py())


def _ordered(keys: Any, shared: int | None) -> tuple[Places, Places]:
    """Return the order, and which places in it have the same key as the previous one."""
    if len(keys) < _FEW:
        order = integers(pc.array_sort_indices(keys)).astype(np.int64)
        before = np.arange(max(len(keys) - 1, 0))
        return order, before[_equal(keys, order[:-1], order[1:])] + 1
    words = _words(keys, _shared(keys) if shared is None else shared)
    order = np.argsort(words, kind="stable")  # integers in sorted runs are merged
    ordered = words[order]
    before = np.flatnonzero(ordered[1:] == ordered[:-1])
    equal = _equal(keys, order[before], order[before + 1])
    if not equal.all():
        tied = np.union1d(before, before + 1)
        # Those with one number lie together, between smaller and larger keys, so that sorting all
        # of the tied at once leaves each group in its place.
        inner = pc.array_sort_indices(keys.take(numbers(order[tied])))  # it is stable
        order[tied] = order[tied][integers(inner)]
        equal = _equal(keys, order[before], order[before + 1])
    return order, before[equal] + 1


def _equal(keys: Any, places: Places, others: Places) -> npt.NDArray[np.bool_]:
    if not len(places):
        return np.zeros(0, np.bool_)
    return booleans(pc.equal(keys.take(numbers(places)), keys.take(numbers(others))))


def _words(keys: Any, skipped: int) -> npt.NDArray[np.uint64]:
    """Return eight bytes of each key as a number; shorter keys are filled with zeros."""
    ends, data = column(keys)
    if len(data) < _WORD:
        data = memoryview(bytes(data) + bytes(_WORD))
    starts, lengths = ends[:-1] + np.int32(skipped), np.diff(ends) - np.int32(skipped)
    shortest, width = int(lengths.min()), skipped + int(lengths.max())
    if shortest >= _WORD and shortest + skipped == width:  # of one length: a column of a matrix
        return np.ndarray(len(keys), ">u8", data, int(starts[0]), (width,)).astype(np.uint64)
    # Eight bytes from every place, without a copy; those of the last keys begin before the key.
    raw = np.ndarray(len(data) - _WORD + 1, ">u8", data, strides=(1,))
    places = np.minimum(starts, len(raw) - 1)
    words: npt.NDArray[np.uint64] = raw[places].astype(np.uint64)
    if places[-1] < starts[-1]:
        words <<= 8 * (starts - places).astype(np.uint64)
    if shortest < _WORD:
        beyond = 8 * np.maximum(_WORD - lengths, 0).astype(np.uint64)
        words >>= beyond
        words <<= beyond
    return words


def merge_rows(sources: Sequence[Rows]) -> Rows:
    """Merge sorted rows, the newest first; keep the newest row of every key."""
    found = [rows for rows in sources if len(rows)]
    if len(found) < 2:
        return found[0] if found else EMPTY
    by_key = sorted(found, key=_first_key)
    if all(_last_key(rows) < _first_key(after) for rows, after in pairwise(by_key)):
        return Rows.concat(by_key)  # nothing overlaps: keys that were written in their order
    rows = Rows.concat(found)
    shared = common_prefix(_first_key(by_key[0]), max(map(_last_key, found)))
    return rows.take(distinct_order(rows.keys, shared))  # of equal keys the newest lies first


def merge(streams: Sequence[Iterator[Rows]], *, reverse: bool = False) -> Iterator[Rows]:
    """Merge sorted streams, the newest first: yield the newest row of every key, in order.

    Streams yield chunks that are sorted and not empty.  With `reverse`, each chunk is still sorted,
    but its keys are below those of the previous chunk; the output is ordered in the same way.
    """
    sources = list(_joined([_Source(stream, reverse) for stream in streams], reverse))
    while len(sources := [source for source in sources if source.fill()]) > 1:
        ends = [source.end() for source in sources]
        bound = max(ends) if reverse else min(ends)
        yield merge_rows([rows for source in sources for rows in source.take(bound)])
    for source in sources:
        yield from source.rest()


def _joined(sources: Sequence["_Source"], reverse: bool) -> Iterator["_Source"]:
    """Yield the sources in their order, with small neighbours joined into one."""
    group: list[Rows] = []
    size = 0
    for source in sources:
        rows = source.whole()
        if group and (rows is None or size + rows.size > _JOINED_SIZE):
            yield _Source(_chunks(merge_rows(group), reverse), reverse)
            group, size = [], 0
        if rows is None:
            yield source
        else:
            group.append(rows)
            size += rows.size
    if group:
        yield _Source(_chunks(merge_rows(group), reverse), reverse)


def _chunks(rows: Rows, reverse: bool) -> Iterator[Rows]:
    count = max(1, len(rows) * _CHUNK_SIZE // max(rows.size, 1))
    starts = range(0, len(rows), count)
    for at in reversed(starts) if reverse else starts:
        yield rows.slice(at, min(at + count, len(rows)))


def without_tombstones(rows: Rows) -> Rows:
    """Return the rows that have a value."""
    if not rows.values.null_count:
        return rows
    return rows.filter(rows.values.is_valid())


def reversed_rows(rows: Rows) -> Rows:
    """Return the rows in reverse order."""
    return rows.take(np.arange(len(rows) - 1, -1, -1))


class _Source:
    """A stream, and rows of it that were not merged yet: at least half a chunk, until its end.

    With fewer rows, each step would be short.
    """

    __slots__ = ("_chunks", "_count", "_enough", "_reverse", "_stream")

    def __init__(self, stream: Iterator[Rows], reverse: bool) -> None:
        self._stream, self._reverse = stream, reverse
        self._chunks: deque[Rows] = deque()
        self._count = self._enough = 0

    def whole(self) -> Rows | None:
        """Return all rows, if they are few; the source is empty then.  Call it first."""
        size = 0
        while size < _SMALL:
            rows = next(self._stream, EMPTY)
            if not len(rows):
                found = list(self._chunks)
                self._chunks.clear()
                self._count = 0
                return Rows.concat(found[::-1] if self._reverse else found) if found else EMPTY
            self._chunks.append(rows)
            size += rows.size
            self._count, self._enough = self._count + len(rows), len(rows) // 2
        return None

    def fill(self) -> bool:
        """Read rows, unless the stream is at its end."""
        while self._count <= self._enough:
            rows = next(self._stream, EMPTY)
            if not len(rows):
                break
            self._chunks.append(rows)
            self._count, self._enough = self._count + len(rows), len(rows) // 2
        return self._count > 0

    def end(self) -> bytes:
        """Return the last key in the order of the scan."""
        return self._end(self._chunks[-1])

    def take(self, bound: bytes) -> list[Rows]:
        """Remove and return the rows up to the bound, included."""
        taken: list[Rows] = []
        while self._chunks and not self._is_behind(bound, self._chunks[0]):
            taken.append(self._chunks.popleft())
        if self._chunks:
            rows = self._chunks[0]
            at = rows.find(bound if self._reverse else bound + b"\0")
            before, behind = rows.slice(0, at), rows.slice(at, len(rows))
            cut, self._chunks[0] = (behind, before) if self._reverse else (before, behind)
            taken.append(cut)
        self._count -= sum(map(len, taken))
        return taken

    def rest(self) -> Iterator[Rows]:
        """Yield all remaining rows."""
        yield from self._chunks
        yield from self._stream

    def _end(self, rows: Rows) -> bytes:
        return _first_key(rows) if self._reverse else _last_key(rows)

    def _is_behind(self, bound: bytes, rows: Rows) -> bool:
        end = self._end(rows)
        return end < bound if self._reverse else end > bound


def _first_key(rows: Rows) -> bytes:
    return _key(rows, 0)


def _last_key(rows: Rows) -> bytes:
    return _key(rows, len(rows) - 1)


def _key(rows: Rows, place: int) -> bytes:
    keys: Any = rows.keys
    found: bytes = keys[place].as_py()
    return found
