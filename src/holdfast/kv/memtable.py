"""Rows in memory, by key, from the put until they are compacted.

A Layer never changes, so any number of threads may read it, and views may keep it.  Only the
memtable that takes the puts grows, under the lock of its queue; a dict can be read meanwhile.

The tail is the part of the WAL that is not compacted: in memory as far as the budget allows.

Small layers are joined, so that a thousand small SSTs become a few dicts.  When layers exceed the
budget, the oldest are dropped, and their SSTs are read from the bucket.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.bucket.bucket import Bucket
from holdfast.formats.sst import Rows
from holdfast.kv.merging import merge_rows
from holdfast.kv.names import wal_name
from holdfast.kv.tables import Cache, Table

Row: TypeAlias = tuple[bytes | None, int]  # value, or None for a tombstone; sequence number

KEY_SIZE_MAX = 2**16 - 1
VALUE_SIZE_MAX = 2**30
ROW_OVERHEAD = 200  # what a row takes in memory besides its bytes: objects, pointers, slack
_CHUNK_ROWS = 8192
_CHUNK_SIZE = 4 * 2**20
_PARTS_MAX = 32


class Layer:
    """The newest row of each key, of a stretch of writes; `first_id` to `last_id` of the WAL.

    A dict answers for single keys.  For scans there are sorted Rows besides, made when they are
    first needed; of `parts` (sorted, the newest first) if the layer was made of such.
    """

    __slots__ = ("_parts", "_sorted", "first_id", "last_id", "rows", "size")

    def __init__(
        self,
        rows: dict[bytes, Row],
        size: int,
        first_id: int = 0,
        last_id: int = 0,
        parts: tuple[Rows, ...] = (),
    ) -> None:
        self.rows, self.size, self.first_id, self.last_id = rows, size, first_id, last_id
        self._parts = parts
        self._sorted: Rows | None = None

    def __repr__(self) -> str:
        return f"Layer({len(self.rows)} rows, WAL {self.first_id}..{self.last_id})"

    @property
    def parts(self) -> tuple[Rows, ...]:
        """Return the sorted parts of this layer that exist so far."""
        found = self._sorted
        return self._parts if found is None else (found,)

    def sorted_rows(self) -> Rows:
        """Return all rows, sorted; done once."""
        found = self._sorted
        if found is None:
            found = merge_rows(self._parts) if self._parts else _rows(self.rows)
            self._sorted, self._parts = found, ()
        return found

    def scan(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Rows]:
        """Yield rows with start <= key < stop in chunks; with `reverse`, the last chunk first."""
        rows = self.sorted_rows().range(start or None, stop)
        count = max(1, min(_CHUNK_ROWS, _CHUNK_SIZE * len(rows) // max(rows.size, 1)))
        chunks = range(0, len(rows), count)
        for at in reversed(chunks) if reverse else chunks:
            yield rows.slice(at, min(at + count, len(rows)))


def merged(newer: Layer, older: Layer) -> Layer:
    """Merge two layers; of a key in both, the newer row stays."""
    rows = {**older.rows, **newer.rows}
    size = (newer.size + older.size) * len(rows) // max(len(newer.rows) + len(older.rows), 1)
    parts = (*newer.parts, *older.parts) if newer.parts and older.parts else ()
    # Parts keep rows that were overwritten; where that is much, sorting again is cheaper.
    if len(parts) > _PARTS_MAX or sum(map(len, parts)) > 2 * len(rows):
        parts = ()
    return Layer(rows, size, older.first_id or newer.first_id, newer.last_id, parts)


def layer_of(rows: Rows, wal_id: int) -> Layer:
    """Return the rows of a WAL's SST, in memory."""
    keys, values = rows.keys.to_pylist(), rows.values.to_pylist()
    pairs = zip(values, rows.seqs.to_pylist(), strict=True)
    found = dict(zip(keys, pairs, strict=True))
    return Layer(found, size_of(rows), wal_id, wal_id, (rows,))


def size_of(rows: Rows) -> int:
    """Return the bytes that these rows take in memory, as a dict and sorted."""
    return 2 * rows.size + ROW_OVERHEAD * len(rows)


def trimmed(layer: Layer, last_id: int, last_seq: int) -> Layer:
    """Return the layer without rows up to `last_seq`, which the WAL has up to `last_id`."""
    rows = {key: row for key, row in layer.rows.items() if row[1] > last_seq}
    size = layer.size * len(rows) // max(len(layer.rows), 1)
    return Layer(rows, size, last_id + 1, layer.last_id)


def checked_key(key: bytes) -> bytes:
    """Return the key; raise if it is not valid."""
    if not isinstance(key, bytes):
        raise _not_bytes("key", key)
    if not 0 < len(key) <= KEY_SIZE_MAX:
        raise ValueError(f"the key has {len(key)} bytes; expected 1 to {KEY_SIZE_MAX}")
    return key


def checked_value(value: bytes) -> bytes:
    """Return the value; raise if it is not valid."""
    if not isinstance(value, bytes):
        raise _not_bytes("value", value)
    if len(value) > VALUE_SIZE_MAX:
        raise ValueError(f"the value has {len(value)} bytes; at most {VALUE_SIZE_MAX} fit")
    return value


def _not_bytes(what: str, found: object) -> TypeError:
    hint = f", for instance {found.encode()!r}" if isinstance(found, str) else ""
    return TypeError(f"a {what} is bytes{hint}, not {type(found).__name__}")


def _rows(rows: dict[bytes, Row]) -> Rows:
    keys = sorted(rows)
    found = [rows[key] for key in keys]
    return Rows.from_columns(keys, [value for value, _ in found], [seq for _, seq in found])


_LAYER_SHARE = 4  # the largest part of the budget for one layer


@dataclass(frozen=True, slots=True)
class _Sst:
    size: int
    last_seq: int  # of it and of all before it
    is_empty: bool
    epoch: int


class Tail:
    """The part of the WAL that is not in the levels.

    Changed under its owner's lock; `layers` and `tables` are replaced whole.
    """

    def __init__(self, bucket: Bucket, cache: Cache, size_max: int, last_id: int) -> None:
        self._bucket, self._cache, self._size_max = bucket, cache, size_max
        self.last_id = last_id
        self.last_seq = 0
        self.layers: tuple[Layer, ...] = ()  # the newest first
        self.tables: tuple[Table, ...] = ()  # older than all layers; the newest first
        self._ssts: dict[int, _Sst] = {}

    @property
    def size(self) -> int:
        """Return the bytes in memory, about."""
        return sum(layer.size for layer in self.layers)

    @property
    def wal_count(self) -> int:
        """Return the number of SSTs of the WAL that are not compacted."""
        return len(self._ssts)

    @property
    def wal_bytes(self) -> int:
        """Return the size of these SSTs in bytes."""
        return sum(sst.size for sst in self._ssts.values())

    def add(self, layer: Layer, sst_size: int, last_seq: int, epoch: int) -> None:
        """Add the rows of the next SST, `layer.last_id`; none if it is a fence."""
        self._note(layer.last_id, sst_size, last_seq, not layer.rows, epoch)
        if layer.rows:
            self._join(layer)
            self._let_go()

    def add_cold(self, wal_id: int, sst_size: int, last_seq: int, epoch: int) -> None:
        """Add an SST whose rows stay in the bucket; last_seq is 0 for a fence."""
        self._note(wal_id, sst_size, last_seq, not last_seq, epoch)
        if last_seq:
            self.tables = (self._table(wal_id), *self.tables)

    def drop(self, last_compacted: int) -> None:
        """Forget the SSTs up to this one: the levels have their rows."""
        sst = self._ssts.get(last_compacted)
        kept = [layer for layer in self.layers if layer.last_id > last_compacted]
        if kept and sst is not None and kept[-1].first_id <= last_compacted:
            kept[-1] = trimmed(kept[-1], last_compacted, sst.last_seq)
        self.layers = tuple(kept)
        self._ssts = {wal_id: sst for wal_id, sst in self._ssts.items() if wal_id > last_compacted}
        names = {wal_name(wal_id) for wal_id in self._ssts}
        self.tables = tuple(table for table in self.tables if table.name in names)

    def _note(self, wal_id: int, sst_size: int, last_seq: int, is_empty: bool, epoch: int) -> None:
        if wal_id != self.last_id + 1:
            raise ValueError(f"SST {wal_id} cannot follow {self.last_id}")
        self.last_id = wal_id
        self.last_seq = max(self.last_seq, last_seq)
        self._ssts[wal_id] = _Sst(sst_size, self.last_seq, is_empty, epoch)

    def _join(self, newest: Layer) -> None:
        layers = list(self.layers)
        most = self._size_max // _LAYER_SHARE
        while layers and layers[0].size < 2 * newest.size and layers[0].size + newest.size <= most:
            newest = merged(newest, layers.pop(0))
        self.layers = (newest, *layers)

    def _let_go(self) -> None:
        while self.layers and self.size > self._size_max:
            oldest = self.layers[-1]
            self.layers = self.layers[:-1]
            ids = range(oldest.last_id, oldest.first_id - 1, -1)
            full = [i for i in ids if i in self._ssts and not self._ssts[i].is_empty]
            self.tables = (*map(self._table, full), *self.tables)

    def _table(self, wal_id: int) -> Table:
        sst = self._ssts[wal_id]
        return Table(self._bucket, self._cache, wal_name(wal_id), sst.size, epoch=sst.epoch)
