"""The dialect of MarketStore's own program: what it puts into a group.

The page: docs/formats/market_wal.md

set := kind:i8 length:i16 path size:i32 row_size:i32 offset:i64 index:i64 data[size]
       count:u8 (length:u8 name type:u8)[count]

Messages are as in holdfast.formats.market_wal.  A set is one interval; the first of its columns is
Epoch.  `row_size` is 0 where an interval holds one row.
"""

import struct
from dataclasses import dataclass

from holdfast.formats.flaw import Flaw
from holdfast.formats.market_wal import (
    FIXED,
    VARIABLE,
    Bytes,
    Group,
    decode_columns,
    encode_columns,
)

EPOCH = ("Epoch", 3)
_PATH, _SHAPE = struct.Struct("<bh"), struct.Struct("<iiqq")


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """One interval of one file: a record, or the rows that are to be added to it."""

    kind: int
    path: str
    row_size: int
    offset: int  # of the record or slot in the file
    index: int
    data: bytes
    columns: tuple[tuple[str, int], ...]  # without Epoch


def encode_interval(one: IntervalSet) -> bytes:
    name = one.path.encode("ascii")
    shape = _SHAPE.pack(len(one.data), one.row_size, one.offset, one.index)
    columns = encode_columns([EPOCH, *one.columns])
    return _PATH.pack(one.kind, len(name)) + name + shape + one.data + columns


def decode_intervals(group: Group) -> list[IntervalSet] | Flaw:
    body, at = group.body, 16
    (count,) = struct.unpack_from("<q", body, 8)
    found = []
    try:
        for _ in range(count):
            one, stop = _interval_at(body, at)
            found.append(one)
            at = stop
    except (struct.error, ValueError) as error:
        return Flaw(group.offset + 9 + at, f"invalid interval: {error}")
    if at != len(body) or count < 0:
        return Flaw(group.offset + 9 + at, f"{len(body) - at} bytes after {count} intervals")
    return found


def _interval_at(body: Bytes, at: int) -> tuple[IntervalSet, int]:
    kind, length = _PATH.unpack_from(body, at)
    if kind not in (FIXED, VARIABLE) or length < 0:
        raise ValueError(f"kind {kind}, a path of {length} bytes")
    path = str(body[at + 3 : at + 3 + length], "ascii")
    size, row_size, offset, index = _SHAPE.unpack_from(body, at + 3 + length)
    start = at + 27 + length
    if not 0 < size <= len(body) - start:
        raise ValueError(f"data of {size} bytes")
    if kind == VARIABLE and (row_size <= 4 or size % row_size):
        raise ValueError(f"{size} bytes are not rows of {row_size}")
    data = bytes(body[start : start + size])
    columns, stop = decode_columns(body, start + size)
    if not columns or columns[0][0] != EPOCH[0]:
        raise ValueError(f"the first column is not {EPOCH[0]}")
    return IntervalSet(kind, path, row_size, offset, index, data, columns[1:]), stop
