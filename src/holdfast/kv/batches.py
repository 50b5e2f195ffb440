"""The rows of `Kv.write`: from mappings, pairs or Arrow, checked, as columns of keys and values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.kv.memtable import (
    KEY_SIZE_MAX,
    ROW_OVERHEAD,
    VALUE_SIZE_MAX,
    checked_key,
    checked_value,
)


class ArrowStream(Protocol):
    """What polars, duckdb, pandas and pyarrow have."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Batch: TypeAlias = Mapping[bytes, bytes | None] | Iterable[tuple[bytes, bytes | None]] | ArrowStream
Columns: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None], int]

BATCH_SIZE_MAX = 2**30


def columns_of(rows: Batch) -> Columns:
    """Return keys, values, and the bytes that they take in memory; an error if one is invalid."""
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    if isinstance(rows, Mapping):
        keys, values = list(rows), list(rows.values())
    elif hasattr(rows, "__arrow_c_stream__"):
        keys, values = _from_arrow(rows)
    else:
        pairs = list(rows)
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    if not keys:
        raise ValueError("the batch is empty; it needs at least one row")
    size = _checked_size(keys, values)
    if size > BATCH_SIZE_MAX:
        raise ValueError(
            f"the batch has {size:,} bytes; at most {BATCH_SIZE_MAX:,} fit: write it in parts, or "
            "use BulkLoad"
        )
    return keys, values, size


def _checked_size(keys: Sequence[bytes], values: Sequence[bytes | None]) -> int:
    held = [value for value in values if value is not None]
    if {*map(type, keys), *map(type, held)} != {bytes}:
        for key in keys:
            checked_key(key)
        for value in held:
            checked_value(value)
    sizes = list(map(len, keys))
    if min(sizes) < 1 or max(sizes) > KEY_SIZE_MAX:
        checked_key(next(key for key in keys if not 0 < len(key) <= KEY_SIZE_MAX))
    if held and max(map(len, held)) > VALUE_SIZE_MAX:
        checked_value(max(held, key=len))
    return ROW_OVERHEAD * len(keys) + sum(sizes) + sum(map(len, held))


def _from_arrow(rows: Any) -> tuple[list[bytes], list[bytes | None]]:
    table = pa.table(rows)
    keys = _column(table, "key")
    if keys.null_count:
        place = pc.index(pc.is_null(keys), True).as_py()
        raise ValueError(f"column 'key' is null in row {place}; every row needs a key")
    return keys.to_pylist(), _column(table, "value").to_pylist()


def _column(table: Any, name: str) -> Any:
    """Return a column as binary."""
    if table.schema.names.count(name) != 1:
        found = ", ".join(map(repr, table.schema.names)) or "none"
        raise ValueError(f"rows need one column {name!r}; their columns are {found}")
    column = table.column(name)
    try:
        return column.cast(pa.large_binary())
    except pa.ArrowNotImplementedError:
        raise TypeError(
            f"column {name!r} is {column.type}; expected a binary or string type"
        ) from None
