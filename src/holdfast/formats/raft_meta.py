"""raft-wal's record of its segments: JSON exactly as Go writes it.  The page: docs/formats/bolt.md

Go's decoder takes field names in any case, ignores fields it does not know, and leaves those that
are missing or null at their zero; so does this one.
"""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields

import google_crc32c

from holdfast.formats.flaw import Flaw

ZERO_TIME = "0001-01-01T00:00:00Z"  # not sealed yet

_NAMES = {
    "id": "ID",
    "base_index": "BaseIndex",
    "min_index": "MinIndex",
    "max_index": "MaxIndex",
    "codec": "Codec",
    "index_start": "IndexStart",
    "create_time": "CreateTime",
    "seal_time": "SealTime",
    "size_limit": "SizeLimit",
}
_INTEGERS_MAX = {name: 2**64 - 1 for name in _NAMES if not name.endswith("_time")}
_INTEGERS_MAX["size_limit"] = 2**32 - 1
_SEALED = struct.Struct("<BII")  # bucket, sizes of key and value
_HALF = 2**32 - 1
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment.  Times are kept as the text they are, so that they are written back alike."""

    id: int
    base_index: int
    min_index: int
    max_index: int = 0  # 0 until sealed
    codec: int = 1
    index_start: int = 0  # 0 until sealed
    create_time: str = ZERO_TIME
    seal_time: str = ZERO_TIME
    size_limit: int = 0

    def __post_init__(self) -> None:
        for name, value_max in _INTEGERS_MAX.items():
            if not 0 <= getattr(self, name) <= value_max:
                raise ValueError(f"{name} is {getattr(self, name)}, not 0 to {value_max}")
        for time in (self.create_time, self.seal_time):
            if not _TIME.fullmatch(time):
                raise ValueError(f"{time!r} is not a time as RFC 3339 writes it")

    @property
    def sealed(self) -> bool:
        return self.seal_time != ZERO_TIME


@dataclass(frozen=True, slots=True)
class State:
    """All segments, in order of their base index, and the next id, which none has ever had."""

    next_segment_id: int
    segments: tuple[SegmentMeta, ...] = ()


def seal_of(txid: int, meta: Mapping[bytes, object], stable: Mapping[bytes, object]) -> int:
    """What vouches for both buckets, kept where bbolt keeps the sequence number of the first.

    The low half of the transaction's number, and the CRC-32C of all keys and values.  A program
    that knows nothing of it leaves it as it is, and then it is of another transaction.
    """
    parts: list[bytes] = []
    for number, items in enumerate((meta, stable)):
        for key in sorted(items):
            value = items[key]
            if isinstance(value, bytes):
                parts += [_SEALED.pack(number, len(key), len(value)), key, value]
    return (txid & _HALF) << 32 | int(google_crc32c.value(b"".join(parts)))


def seal_holds(
    seal: int, txid: int, meta: Mapping[bytes, object], stable: Mapping[bytes, object]
) -> bool:
    """False if the buckets are not what was sealed; true if this transaction was sealed by none."""
    return seal >> 32 != txid & _HALF or seal == seal_of(txid, meta, stable) or not seal


def encode_state(state: State) -> bytes:
    segments = [
        {_NAMES[field.name]: getattr(segment, field.name) for field in fields(segment)}
        for segment in state.segments
    ]
    record = {"NextSegmentID": state.next_segment_id, "Segments": segments}
    return json.dumps(record, separators=(",", ":")).encode()


def decode_state(data: bytes) -> State | Flaw:
    try:
        record = _lower(json.loads(data.decode()))
        next_segment_id = record.get("nextsegmentid") or 0
        if type(next_segment_id) is not int or not 0 <= next_segment_id < 2**64:
            return Flaw(0, f"NextSegmentID is {next_segment_id!r}")
        segments = record.get("segments") or []
        if type(segments) is not list:
            return Flaw(0, f"Segments is {segments!r}")
        return State(next_segment_id, tuple(_segment(_lower(segment)) for segment in segments))
    except (ValueError, TypeError, RecursionError) as error:
        return Flaw(0, f"not the JSON of a raft-wal state: {error}")


def _lower(record: object) -> dict[str, object]:
    if type(record) is not dict:
        raise TypeError(f"{record!r} where an object should be")
    return {name.lower(): value for name, value in record.items() if value is not None}


def _segment(record: dict[str, object]) -> SegmentMeta:
    found: dict[str, int | str] = {}
    for name, json_name in _NAMES.items():
        kind, zero = (int, 0) if name in _INTEGERS_MAX else (str, ZERO_TIME)
        value = record.get(json_name.lower(), zero)
        if type(value) is not kind:
            raise TypeError(f"{json_name} is {value!r}")
        found[name] = value
    return SegmentMeta(**found)  # type: ignore[arg-type]
