"""State files: a sequence of MessagePack maps.  The page: docs/formats/state_file.md

file := map*

Each map holds the properties that have changed; the last value of a property counts.  Numbers are
JavaScript's: one that does not fit into 32 signed bits is a float64, also if it is an integer.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from isal.isal_zlib import crc32

from holdfast.formats.flaw import Flaw

ROLL_SIZE = 524_288

Record = dict[str, Any]
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LENGTH_MAX = 2**31 - 1  # a value longer than its file is cut short, not invalid
_ARRAY_MAX = 2**14  # the decoder allocates this many before it reads the first
_SAFE_MAX = 2**53 - 1  # integers that a float64 holds exactly


@dataclass(frozen=True, slots=True)
class States:
    """The records of a file, the byte at which they end, and the flaw there."""

    records: tuple[Record, ...]
    stop: int
    flaw: Flaw | None
    is_torn: bool = False  # cut short or zeros: what a crash leaves of a record


@dataclass(frozen=True, slots=True)
class Redo:
    """What a state file holds: some bytes, then a record.  The content of the redo file.

    redo := "hfs2" offset:u32 prefix_crc32:u32 size:u32 record[size] crc32:u32

    It is synced before the record is appended, so that a torn append can be repeated.
    `prefix_crc32` is that of all bytes before the record.  Version 0.1.0 wrote "hfsr", and left it
    beside a rolled file: such a redo does not bind, and is void if those bytes differ.
    """

    offset: int
    prefix_crc32: int
    record: bytes
    binds: bool = True

    @property
    def stop(self) -> int:
        return self.offset + len(self.record)


_REDO = struct.Struct("<4sIII")
_BINDS, _MAY_BE_VOID = b"hfs2", b"hfsr"


def encode_redo(redo: Redo) -> bytes:
    magic = _BINDS if redo.binds else _MAY_BE_VOID
    body = _REDO.pack(magic, redo.offset, redo.prefix_crc32, len(redo.record)) + redo.record
    return body + crc32(body).to_bytes(4, "little")


def decode_redo(data: bytes) -> Redo | None:
    """Decode a redo; None if it is torn, or was never written."""
    if len(data) < _REDO.size + 4:
        return None
    magic, offset, prefix, size = _REDO.unpack_from(data)
    stop = _REDO.size + size
    if len(data) < stop + 4:
        return None
    if crc32(data[:stop]) != int.from_bytes(data[stop : stop + 4], "little"):
        return None
    if magic not in (_BINDS, _MAY_BE_VOID):
        return None
    return Redo(offset, prefix, data[_REDO.size : stop], magic == _BINDS)


def counts_keys(data: bytes, keys: Iterable[str]) -> int:
    """Return a lower bound for the records in `data`: how often the most frequent key occurs."""
    return max((data.count(msgpack.packb(key)) for key in keys), default=0)


def encode_record(record: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb({key: _to_number(value) for key, value in record.items()})
    return packed


def _to_number(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        if abs(value) > _SAFE_MAX:
            raise ValueError(f"{value} is too large; the original can count to {_SAFE_MAX}")
        return float(value)
    if isinstance(value, float) and value.is_integer() and _INT_MIN <= value <= _INT_MAX:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _to_number(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_number(each) for each in value]
    return value


def _from_number(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE_MAX:
        return int(value)
    if isinstance(value, dict):
        return {key: _from_number(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_from_number(each) for each in value]
    return value


def decode_records(data: bytes) -> States:
    """Decode the complete records at the start of a file."""
    unpacker = msgpack.Unpacker(
        max_buffer_size=len(data) + 1,
        max_str_len=_LENGTH_MAX,
        max_bin_len=_LENGTH_MAX,
        max_map_len=_LENGTH_MAX,
        max_array_len=_ARRAY_MAX,
    )
    unpacker.feed(data)
    records: list[Record] = []
    stop = 0
    while stop < len(data):
        try:
            found = unpacker.unpack()
        except msgpack.OutOfData:
            return States(tuple(records), stop, Flaw(stop, "a record is cut short"), is_torn=True)
        except (ValueError, msgpack.UnpackException) as error:
            return States(tuple(records), stop, Flaw(stop, f"cannot parse MessagePack: {error!r}"))
        if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
            is_blank = not any(data[stop:])
            why = "unwritten space" if is_blank else "a value that is not a map of properties"
            return States(tuple(records), stop, Flaw(stop, why), is_torn=is_blank)
        records.append(_from_number(found))
        stop = unpacker.tell()
    return States(tuple(records), stop, None)
