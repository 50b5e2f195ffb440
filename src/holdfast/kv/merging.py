"""Merges sorted rows: of a key that several sources have, the newest row stays.

Sources come newest first, and their order alone decides: sequence numbers are not compared.  What
is merged is chunks, not rows.  A step takes from every source what lies up to the smallest key at
which a chunk ends, sorts that with one stable call, and keeps the first row of each key.  So memory
holds one chunk of each source, however long they are.

    merge_rows([newer, older])                      one Rows of several
    merge([newer_stream, older_stream])             the same of streams of Rows, chunk by chunk
    without_tombstones(rows), reversed_rows(rows)
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from holdfast.formats.sst import EMPTY, Rows
from holdfast.kv.ordering import common_prefix, distinct_order


def merge_rows(sources: Sequence[Rows]) -> Rows:
    """Sorted rows of several sorted ones, the newest first; of every key the newest row."""
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
    """All rows of sorted streams, the newest stream first: of every key the newest row, in order.

    Streams give chunks that are not empty and rise; with `reverse`, each chunk still rises, but
    lies below the one before it, and so it is with what comes out.
    """
    sources = [_Source(stream, reverse) for stream in streams]
    while len(sources := [source for source in sources if source.fill()]) > 1:
        ends = [source.end() for source in sources]
        bound = max(ends) if reverse else min(ends)
        yield merge_rows([rows for source in sources for rows in source.take(bound)])
    for source in sources:
        yield from source.rest()


def without_tombstones(rows: Rows) -> Rows:
    """The rows that have a value."""
    if not rows.values.null_count:
        return rows
    return rows.filter(rows.values.is_valid())


def reversed_rows(rows: Rows) -> Rows:
    """The last row first."""
    return rows.take(np.arange(len(rows) - 1, -1, -1))


class _Source:
    """A stream, and what it gave and was not taken yet: at least half a chunk, while there is more.

    Were there less, it would end before the others, and steps would be short.
    """

    __slots__ = ("_chunks", "_count", "_enough", "_reverse", "_stream")

    def __init__(self, stream: Iterator[Rows], reverse: bool) -> None:
        self._stream, self._reverse = stream, reverse
        self._chunks: deque[Rows] = deque()
        self._count = self._enough = 0

    def fill(self) -> bool:
        """Have rows, unless the stream is at its end."""
        while self._count <= self._enough:
            rows = next(self._stream, EMPTY)
            if not len(rows):
                break
            self._chunks.append(rows)
            self._count, self._enough = self._count + len(rows), len(rows) // 2
        return self._count > 0

    def end(self) -> bytes:
        """The last key in the order of the scan."""
        return self._end(self._chunks[-1])

    def take(self, bound: bytes) -> list[Rows]:
        """Cut off what lies up to the bound, itself included."""
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
        """All that was not taken, and all that follows."""
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
