"""Rows in memory: what was written, by key, from the put until it is compacted.

A Layer never changes, so any number of threads may read it, and views may keep it.  Only the
memtable that takes the puts grows, under the lock of its queue; a dict can be read meanwhile.
"""

from collections.abc import Iterator
from typing import TypeAlias

from holdfast.formats.sst import Rows
from holdfast.kv.merging import merge_rows

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
        """Sorted rows that come to this layer, as far as there are any yet."""
        found = self._sorted
        return self._parts if found is None else (found,)

    def sorted_rows(self) -> Rows:
        """All rows, sorted; done once."""
        found = self._sorted
        if found is None:
            found = merge_rows(self._parts) if self._parts else _rows(self.rows)
            self._sorted, self._parts = found, ()
        return found

    def scan(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Rows]:
        """The rows with start <= key < stop in chunks; with `reverse`, the last chunk first."""
        rows = self.sorted_rows().range(start or None, stop)
        count = max(1, min(_CHUNK_ROWS, _CHUNK_SIZE * len(rows) // max(rows.size, 1)))
        chunks = range(0, len(rows), count)
        for at in reversed(chunks) if reverse else chunks:
            yield rows.slice(at, min(at + count, len(rows)))


def merged(newer: Layer, older: Layer) -> Layer:
    """Both as one; of a key in both, the newer row stays."""
    rows = {**older.rows, **newer.rows}
    size = (newer.size + older.size) * len(rows) // max(len(newer.rows) + len(older.rows), 1)
    parts = (*newer.parts, *older.parts) if newer.parts and older.parts else ()
    # Parts keep rows that were overwritten; where that is much, sorting again is cheaper.
    if len(parts) > _PARTS_MAX or sum(map(len, parts)) > 2 * len(rows):
        parts = ()
    return Layer(rows, size, older.first_id or newer.first_id, newer.last_id, parts)


def layer_of(rows: Rows, wal_id: int) -> Layer:
    """The rows of a WAL's SST, in memory."""
    keys, values = rows.keys.to_pylist(), rows.values.to_pylist()
    pairs = zip(values, rows.seqs.to_pylist(), strict=True)
    found = dict(zip(keys, pairs, strict=True))
    return Layer(found, size_of(rows), wal_id, wal_id, (rows,))


def size_of(rows: Rows) -> int:
    """What these rows take in memory, as a dict and sorted."""
    return 2 * rows.size + ROW_OVERHEAD * len(rows)


def trimmed(layer: Layer, last_id: int, last_seq: int) -> Layer:
    """Without what was written up to `last_seq`, in the WAL up to `last_id`."""
    rows = {key: row for key, row in layer.rows.items() if row[1] > last_seq}
    size = layer.size * len(rows) // max(len(layer.rows), 1)
    return Layer(rows, size, last_id + 1, layer.last_id)


def checked_key(key: bytes) -> bytes:
    """The key, if it can be one."""
    if not isinstance(key, bytes):
        raise _not_bytes("key", key)
    if not 0 < len(key) <= KEY_SIZE_MAX:
        raise ValueError(f"a key of {len(key)} bytes; it has 1 to {KEY_SIZE_MAX}")
    return key


def checked_value(value: bytes) -> bytes:
    """The value, if it can be one."""
    if not isinstance(value, bytes):
        raise _not_bytes("value", value)
    if len(value) > VALUE_SIZE_MAX:
        raise ValueError(f"a value of {len(value)} bytes; the most is {VALUE_SIZE_MAX}")
    return value


def _not_bytes(what: str, found: object) -> TypeError:
    hint = f", for instance {found.encode()!r}" if isinstance(found, str) else ""
    return TypeError(f"a {what} is bytes{hint}, not {type(found).__name__}")


def _rows(rows: dict[bytes, Row]) -> Rows:
    keys = sorted(rows)
    found = [rows[key] for key in keys]
    return Rows.from_columns(keys, [value for value, _ in found], [seq for _, seq in found])
