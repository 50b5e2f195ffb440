"""raft-wal's record of its segments: JSON exactly as Go writes it.  The page: docs/formats/bolt.md

Go's decoder takes field names in any case, ignores fields it does not know, and leaves those that
are missing or null at their zero; so does this one.
"""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

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
_RECORD = re.compile(rb'\{"NextSegmentID":(\d{1,20}),"Segments":\[\{(.+)\}\]\}', re.DOTALL)
_SEALED = struct.Struct("<BII")  # bucket, sizes of key and value
_HALF = 2**32 - 1
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


@lru_cache(1024)
def _is_time(text: str) -> bool:
    """Return whether this is a time of RFC 3339, on a day that exists."""
    if not _TIME.fullmatch(text):
        return False
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 28 + is_leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    return year > 0 and day <= days


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment.  Times stay text, so that they are written back exactly."""

    id: int
    base_index: int
    min_index: int
    max_index: int = 0  # 0 until sealed
    codec: int = 1
    index_start: int = 0  # 0 until sealed
    create_time: str = ZERO_TIME
    seal_time: str = ZERO_TIME
    size_limit: int = 0
    # Its JSON: a change of the list encodes only the segments that are new in it.
    _encoded: bytes = field(default=b"", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value_max in _INTEGERS_MAX.items():
            if not 0 <= getattr(self, name) <= value_max:
                raise ValueError(f"{name} is {getattr(self, name)}, not 0 to {value_max}")
        for time in (self.create_time, self.seal_time):
            if not _is_time(time):
                raise ValueError(f"cannot parse {time!r} as a time of RFC 3339")

    @property
    def sealed(self) -> bool:
        return self.seal_time != ZERO_TIME

    def encode(self) -> bytes:
        if not self._encoded:
            record = {json_name: getattr(self, name) for name, json_name in _NAMES.items()}
            encoded = json.dumps(record, separators=(",", ":")).encode()
            object.__setattr__(self, "_encoded", encoded)
        return self._encoded


@dataclass(frozen=True, slots=True)
class State:
    """All segments, in order of their base index, and the next id, which was never used."""

    next_segment_id: int
    segments: tuple[SegmentMeta, ...] = ()


def seal_of(txid: int, meta: Mapping[bytes, object], stable: Mapping[bytes, object]) -> int:
    """Return a checksum of both buckets, stored as bbolt's sequence number of the first.

    It is the low half of the transaction's number, and the CRC-32C of all keys and values.  Another
    program does not update it, and then it does not match its transaction.
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
    """Return False if the buckets differ from their checksum; True also if they have none."""
    return seal >> 32 != txid & _HALF or seal == seal_of(txid, meta, stable) or not seal


def encode_state(state: State) -> bytes:
    segments = b",".join([one._encoded or one.encode() for one in state.segments])
    return b'{"NextSegmentID":%d,"Segments":[%s]}' % (state.next_segment_id, segments)


def decode_state(data: bytes, before: State | None = None) -> State | Flaw:
    """Decode the record.  Of segments that `before` has too, nothing is decoded again."""
    match = _RECORD.fullmatch(data)
    if match and before is not None:
        known = {one._encoded or one.encode(): one for one in before.segments}
        pieces = [b"{%s}" % piece for piece in match[2].split(b"},{")]
        same = list(map(known.get, pieces))
        found = [one or _decode_segment(piece) for one, piece in zip(same, pieces, strict=True)]
        # If every piece is an object, all of them together are the array.
        if all(found) and int(match[1]) < 2**64:
            return State(int(match[1]), tuple([one for one in found if one]))
    return _decode_any(data)


def _decode_segment(piece: bytes) -> SegmentMeta | None:
    try:
        return _segment(_lower(json.loads(piece)))
    except (ValueError, TypeError, RecursionError):
        return None


def _decode_any(data: bytes) -> State | Flaw:
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
        return Flaw(0, f"cannot parse the JSON of the segments: {error}")


def _lower(record: object) -> dict[str, object]:
    if type(record) is not dict:
        raise TypeError(f"expected an object, not {record!r}")
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
