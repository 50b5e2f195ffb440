"""One state of a store, to be read at leisure: memory over the WAL's SSTs over the levels.

Sources are ordered from the newest to the oldest, and what a newer one says of a key hides what
the older ones do.  A scan merges them chunk by chunk: see merging.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.formats.sst import Rows
from holdfast.kv.levels import Levels
from holdfast.kv.memtable import Layer, checked_key
from holdfast.kv.merging import merge, reversed_rows, without_tombstones
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
