"""One state of a store, to be read at leisure: memory over the WAL's SSTs over the levels.

Sources are ordered from the newest to the oldest, and what a newer one says of a key hides what
the older ones do.  A scan merges chunks, not rows: it takes from every source what lies below the
smallest key at which a chunk ends, sorts that with one call, and keeps the first row of each key.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.formats.sst import Rows
from holdfast.kv.levels import Levels
from holdfast.kv.memtable import Layer, checked_key
from holdfast.kv.tables import Table

_BATCH_ROWS = 4096  # a batch has more only where a chunk has
_BATCH_SIZE = 2**20


@dataclass(frozen=True, slots=True)
class View:
    """Never changes, whatever is written meanwhile."""

    layers: tuple[Layer, ...]  # in memory, the newest first
    tables: tuple[Table, ...]  # of the WAL, where memory does not reach; the newest first
    levels: Levels

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        checked_key(key)
        for layer in self.layers:
            row = layer.rows.get(key)
            if row is not None:
                return row[0]
        return self.get_stored(key)

    def get_stored(self, key: bytes) -> bytes | None:
        """The same, of what is not in memory."""
        for table in self.tables:
            found = table.get(key)
            if found is not None:
                return found[0]
        found = self.levels.get(key)
        return found and found[0]

    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> "Iterator[pa.RecordBatch]":
        """The live rows with start <= key < stop, as Arrow batches of key, value and seq."""
        for rows in self.rows(*bounds(start, stop, prefix), reverse=reverse):
            yield rows.to_batch()

    def rows(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Rows]:
        """The same as Rows, without empty ones."""
        streams = [layer.scan(start, stop, reverse=reverse) for layer in self.layers]
        streams += [table.scan(start, stop, reverse=reverse) for table in self.tables]
        streams += self.levels.streams(start, stop, reverse=reverse)
        live = map(without_tombstones, merge(streams, reverse=reverse))
        for group in _groups(live):
            yield reversed_rows(Rows.concat(group[::-1])) if reverse else Rows.concat(group)


def bounds(start: bytes | None, stop: bytes | None, prefix: bytes) -> tuple[bytes, bytes | None]:
    """First key, and the first one behind the last, of what lies within all three."""
    for bound in (start, stop, prefix):
        if bound is not None and not isinstance(bound, bytes):
            raise TypeError(f"a bound is bytes, not {type(bound).__name__}")
    behind = _behind(prefix)
    stops = [bound for bound in (stop, behind) if bound is not None]
    return max(start or b"", prefix), min(stops) if stops else None


def items(batches: "Iterator[pa.RecordBatch]") -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of scanned batches, one by one."""
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def merge(streams: Sequence[Iterator[Rows]], *, reverse: bool = False) -> Iterator[Rows]:
    """All rows of sorted streams, the newest stream first: of every key the newest row, in order.

    Streams give chunks that are not empty and rise; with `reverse`, each chunk still rises, but
    lies below the one before it, and so it is with what comes out.
    """
    sources = [_Source(stream) for stream in streams]
    while len(live := [source for source in sources if source.fill()]) > 1:
        ends = [source.end(reverse) for source in live]
        bound = max(ends) if reverse else min(ends)
        pieces = [piece for source in live if len(piece := source.take(bound, reverse))]
        yield merge_rows(pieces)
    for source in live:
        yield from source.rest()


def merge_rows(pieces: Sequence[Rows]) -> Rows:
    """Sorted rows of several sorted ones, the newest first; of every key the newest row."""
    rows = Rows.concat(pieces)
    if len(pieces) < 2:
        return rows
    order = pc.array_sort_indices(rows.keys)  # it is stable, so the newest of a key stays first
    keys = rows.keys.take(order)
    first = np.concatenate(([True], pc.not_equal(keys[1:], keys[:-1]).to_numpy(False)))
    return rows.take(order.filter(pa.array(first)))


def without_tombstones(rows: Rows) -> Rows:
    """The rows that have a value."""
    if not rows.values.null_count:
        return rows
    return rows.take(np.flatnonzero(rows.values.is_valid().to_numpy(False)))


def reversed_rows(rows: Rows) -> Rows:
    return rows.take(np.arange(len(rows) - 1, -1, -1))


class _Source:
    """A stream and the rest of the chunk that it gave last."""

    def __init__(self, stream: Iterator[Rows]) -> None:
        self._stream = stream
        self._rows: Rows | None = None

    def fill(self) -> bool:
        """Have a chunk, unless the stream is at its end."""
        if self._rows is None or not len(self._rows):
            self._rows = next(self._stream, None)
        return self._rows is not None

    def end(self, reverse: bool) -> bytes:
        """The last key of the chunk in the order of the scan."""
        keys: Any = self._chunk.keys
        end: bytes = keys[0 if reverse else len(keys) - 1].as_py()
        return end

    def take(self, bound: bytes, reverse: bool) -> Rows:
        """Cut off what lies up to the bound, itself included."""
        rows = self._chunk
        if reverse:
            at = rows.find(bound)
            self._rows, taken = rows.slice(0, at), rows.slice(at, len(rows))
        else:
            at = rows.find(bound + b"\0")
            self._rows, taken = rows.slice(at, len(rows)), rows.slice(0, at)
        return taken

    def rest(self) -> Iterator[Rows]:
        yield self._chunk
        yield from self._stream

    @property
    def _chunk(self) -> Rows:
        if self._rows is None:
            raise ValueError("the stream is at its end")
        return self._rows


def _groups(chunks: Iterable[Rows]) -> Iterator[list[Rows]]:
    """Small chunks together, so that there are not many batches; none is empty."""
    group: list[Rows] = []
    count = size = 0
    for rows in chunks:
        group.append(rows)
        count, size = count + len(rows), size + rows.size
        if count >= _BATCH_ROWS or size >= _BATCH_SIZE:
            yield group
            group, count, size = [], 0, 0
    if count:
        yield group


def _behind(prefix: bytes) -> bytes | None:
    """The smallest key above all that begin with `prefix`; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
