"""Rows in memory: what was written, by key, from the put until it is compacted.

A Layer never changes, so any number of threads may read it, and views may keep it.  Only the
memtable that takes the puts grows, under the lock of its queue; a dict can be read meanwhile.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from holdfast.formats.sst import Rows

Row: TypeAlias = tuple[bytes | None, int]  # value, or None for a tombstone; sequence number

KEY_SIZE_MAX = 2**16 - 1
VALUE_SIZE_MAX = 2**30
ROW_OVERHEAD = 200  # what a row takes in memory besides its bytes: objects, pointers, slack
_CHUNK_ROWS = 8192
_CHUNK_SIZE = 4 * 2**20


class Layer:
    """The newest row of each key, of a stretch of writes; `first_id` to `last_id` of the WAL."""

    __slots__ = ("_keys", "first_id", "last_id", "rows", "size")

    def __init__(
        self, rows: dict[bytes, Row], size: int, first_id: int = 0, last_id: int = 0
    ) -> None:
        self.rows, self.size, self.first_id, self.last_id = rows, size, first_id, last_id
        self._keys: list[bytes] | None = None

    def __repr__(self) -> str:
        return f"Layer({len(self.rows)} rows, WAL {self.first_id}..{self.last_id})"

    @property
    def keys(self) -> list[bytes]:
        """All keys, sorted; done once."""
        if self._keys is None:
            self._keys = sorted(self.rows)
        return self._keys

    def sorted_rows(self) -> Rows:
        return _rows(self.rows, self.keys)

    def scan(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Rows]:
        """The rows with start <= key < stop in chunks; with `reverse`, the last chunk first."""
        keys = self.keys
        first = bisect_left(keys, start)
        last = len(keys) if stop is None else bisect_left(keys, stop)
        count = max(1, min(_CHUNK_ROWS, _CHUNK_SIZE * len(keys) // max(self.size, 1)))
        chunks = range(first, last, count)
        for at in reversed(chunks) if reverse else chunks:
            yield _rows(self.rows, keys[at : min(at + count, last)])


def merged(newer: Layer, older: Layer) -> Layer:
    """Both as one; of a key in both, the newer row stays."""
    # Inserted in key order where that is known, so that sorting again finds two runs.
    rows = {**older.rows, **newer.rows}
    size = (newer.size + older.size) * len(rows) // max(len(newer.rows) + len(older.rows), 1)
    return Layer(rows, size, older.first_id or newer.first_id, newer.last_id)


def layer_of(rows: Rows, wal_id: int) -> Layer:
    """The rows of a WAL's SST, in memory."""
    keys, values = rows.keys.to_pylist(), rows.values.to_pylist()
    pairs = zip(values, rows.seqs.to_pylist(), strict=True)
    layer = Layer(dict(zip(keys, pairs, strict=True)), size_of(rows), wal_id, wal_id)
    layer._keys = keys
    return layer


def size_of(rows: Rows) -> int:
    """What these rows take in memory, about."""
    return rows.size + ROW_OVERHEAD * len(rows)


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


def _rows(rows: dict[bytes, Row], keys: Sequence[bytes]) -> Rows:
    found = [rows[key] for key in keys]
    return Rows.from_columns(keys, [value for value, _ in found], [seq for _, seq in found])
