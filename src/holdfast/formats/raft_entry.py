"""A Raft log entry as raft-wal's codec 1 writes it.  The page: docs/formats/raft_wal.md

entry := index:uvarint term:uvarint type:uvarint
         length:uvarint data[length] length:uvarint extensions[length] appended_at
appended_at := 1:u8 seconds:i64 nanoseconds:u32 minutes:i16             15 bytes, big-endian
             | 2:u8 seconds:i64 nanoseconds:u32 minutes:i16 seconds:i8  16 bytes

Seconds count from the year 1.  The last fields are the zone's offset; minutes of -1 mean UTC.
Times stay encoded, so that an entry that was read can be written again exactly.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.formats.flaw import Flaw

COMMAND, NOOP, ADD_PEER, REMOVE_PEER, BARRIER, CONFIGURATION = range(6)
TYPE_NAMES = ("command", "noop", "add-peer", "remove-peer", "barrier", "configuration")
UNIX_EPOCH = 62_135_596_800  # seconds from the year 1 to 1970
CHECKPOINT_MAGIC, CHECKPOINT_SIZE = 0xAFD1F9D60392A503, 24
ZERO_TIME = bytes.fromhex("01000000000000000000000000ffff")
U64_MAX = 2**64 - 1

Offsets = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]

_TIME = struct.Struct(">BqIh")
_CHECKPOINT = struct.Struct("<QQQ")
_SUMMED = struct.Struct(">QQQ")
_FNV_PRIME = 0x100000001B3
_UTC = -1
_VARINT_SIZE_MAX = 10


@dataclass(frozen=True, slots=True)
class RaftEntry:
    index: int
    term: int = 0
    type: int = COMMAND
    data: bytes = b""
    extensions: bytes = b""
    appended_at: bytes = ZERO_TIME  # see encode_time and decode_time


@dataclass(frozen=True, slots=True)
class Time:
    """Nanoseconds since 1970, exactly, and the zone's offset; None means UTC by name."""

    unix_ns: int
    offset_s: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of many entries: row i is payload i.  Where `bad`, the rest of the row is 0."""

    index: Numbers
    term: Numbers
    type: Numbers
    data_start: Offsets
    data_length: Offsets
    extensions_start: Offsets
    extensions_length: Offsets
    appended_s: Offsets  # since the year 1
    appended_ns: Offsets  # of that second
    is_appended: npt.NDArray[np.bool_]  # the time is set
    bad: npt.NDArray[np.bool_]


def encode_entry(entry: RaftEntry) -> bytes:
    if not 0 <= entry.index <= U64_MAX or not 0 <= entry.term <= U64_MAX:
        raise ValueError(f"index {entry.index} or term {entry.term} does not fit 64 bits")
    if not 0 <= entry.type <= 255:
        raise ValueError(f"type {entry.type} is not a byte")
    if _time_flaw(entry.appended_at):
        raise ValueError(f"appended_at is not an encoded time: {entry.appended_at.hex()}")
    return b"".join(
        (
            _uvarint(entry.index),
            _uvarint(entry.term),
            _uvarint(entry.type),
            _uvarint(len(entry.data)),
            entry.data,
            _uvarint(len(entry.extensions)),
            entry.extensions,
            entry.appended_at,
        )
    )


def decode_entry(data: bytes) -> RaftEntry | Flaw:
    """Decode exactly one entry; missing or additional bytes are a flaw."""
    at, numbers, parts = 0, [], []
    for field in ("index", "term", "type", "data", "extensions"):
        decoded = _decode_uvarint(data, at)
        if decoded is None:
            return Flaw(at, f"no number where the {field} should be")
        value, at = decoded
        if field in ("data", "extensions"):
            if value > len(data) - at:
                return Flaw(at, f"{field} of {value} bytes cut to {len(data) - at}")
            parts.append(data[at : at + value])
            at += value
        else:
            numbers.append(value)
    if numbers[2] > 255:
        return Flaw(at, f"type {numbers[2]} is not a byte")
    if why := _time_flaw(data[at:]):
        return Flaw(at, why)
    return RaftEntry(numbers[0], numbers[1], numbers[2], parts[0], parts[1], data[at:])


def encode_time(time: Time | None) -> bytes:
    """Encode a time as Go's time.MarshalBinary does; None is the zero time."""
    if time is None:
        return ZERO_TIME
    seconds, ns = divmod(time.unix_ns, 10**9)
    seconds += UNIX_EPOCH
    if time.offset_s is None:
        return _TIME.pack(1, seconds, ns, _UTC)
    minutes = int(time.offset_s / 60)  # toward zero, and the rest keeps the sign
    rest = time.offset_s - 60 * minutes
    if minutes == _UTC or not -32768 <= minutes <= 32767:
        raise ValueError(f"a zone offset of {time.offset_s} seconds cannot be encoded")
    if rest:
        return _TIME.pack(2, seconds, ns, minutes) + struct.pack(">b", rest)
    return _TIME.pack(1, seconds, ns, minutes)


def decode_time(data: bytes) -> Time | Flaw | None:
    """Decode a time; None for the zero time, which was never set."""
    if why := _time_flaw(data):
        return Flaw(0, why)
    if data == ZERO_TIME:
        return None
    _, seconds, ns, minutes = _TIME.unpack_from(data)
    rest = struct.unpack_from(">b", data, 15)[0] if len(data) == 16 else 0
    offset_s = None if minutes == _UTC else 60 * minutes + rest
    return Time((seconds - UNIX_EPOCH) * 10**9 + ns, offset_s)


def decode_columns(data: memoryview, starts: Offsets, lengths: Offsets) -> Columns:
    """Decode the payloads at `starts`, all at once."""
    read = _Reader(np.frombuffer(data, np.uint8), starts, lengths)
    index, term, type = read.numbers(), read.numbers(), read.numbers()
    data_start, data_length = read.slices()
    extensions_start, extensions_length = read.slices()
    size = read.ends - read.at
    read.fail((size != 15) & (size != 16) | (type > 255))
    at = np.where(read.bad, 0, read.at)
    version = read.bytes[at] if len(data) else np.zeros(len(starts), np.uint8)
    read.fail(version != size - 14)
    at[read.bad] = 0
    seconds, ns, zone = read.integers(at)
    is_appended = ~read.bad & ~((seconds == 0) & (ns == 0) & (zone == 0xFFFF) & (size == 15))
    return Columns(
        index,
        term,
        type,
        data_start,
        data_length,
        extensions_start,
        extensions_length,
        seconds,
        ns,
        is_appended,
        read.bad,
    )


def other_indexes(
    data: memoryview, starts: Offsets, lengths: Offsets, first: int
) -> npt.NDArray[np.intp]:
    """Return which of the payloads at `starts` hold another index than first, first + 1, ..."""
    read = _Reader(np.frombuffer(data, np.uint8), starts, lengths)
    differs = read.numbers() != np.arange(len(starts), dtype=np.uint64) + np.uint64(first)
    return np.flatnonzero(differs & ~read.bad)


def decode_checkpoint(extensions: bytes) -> tuple[int, int] | None:
    """Return the first index and the checksum of a verifier's checkpoint; None for other bytes."""
    if len(extensions) != CHECKPOINT_SIZE:
        return None
    magic, start, checksum = _CHECKPOINT.unpack(extensions)
    return (start, checksum) if magic == CHECKPOINT_MAGIC else None


def encode_checkpoint(start: int, checksum: int) -> bytes:
    return _CHECKPOINT.pack(CHECKPOINT_MAGIC, start, checksum)


def add_to_checksum(checksum: int, entry: RaftEntry) -> int:
    """Return the verifier's sum with one more entry: FNV-1a's step over its fields, from 0."""
    if entry.index == 1 and entry.type == CONFIGURATION:
        return 0  # each server writes its own when a cluster is created
    numbers = _SUMMED.pack(entry.index, entry.term, entry.type)
    for byte in b"".join((numbers, entry.data, entry.extensions)):
        checksum = (checksum ^ byte) * _FNV_PRIME & U64_MAX
    return checksum


class _Reader:
    """A cursor in each payload.  All advance together, except those that have failed."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: Offsets, lengths: Offsets) -> None:
        self.bytes, self.at, self.ends = data, starts.astype(np.int64), starts + lengths
        self.bad = np.zeros(len(starts), np.bool_)

    def fail(self, which: npt.NDArray[np.bool_]) -> None:
        self.bad |= which

    def numbers(self) -> Numbers:
        """Read the next uvarint of each.  Few have more than three bytes, so few steps are made."""
        values = np.zeros(len(self.at), np.uint64)
        going = np.flatnonzero(~self.bad)
        for k in range(_VARINT_SIZE_MAX):
            inside = self.at[going] < self.ends[going]
            if not inside.all():
                self.bad[going[~inside]] = True
                going = going[inside]
            byte = self.bytes[self.at[going]]
            values[going] |= (byte & 127).astype(np.uint64) << np.uint64(7 * k)
            self.at[going] += 1
            more = byte > 127
            if k == _VARINT_SIZE_MAX - 1:
                more |= byte > 1  # more than 64 bits
            going = going[more]
            if not len(going):
                break
        self.bad[going] = True
        return values

    def slices(self) -> tuple[Offsets, Offsets]:
        """Read the next length and that many bytes of each."""
        lengths = self.numbers()
        self.fail(lengths > np.maximum(self.ends - self.at, 0).astype(np.uint64))
        counts = np.where(self.bad, 0, lengths).astype(np.int64)
        starts = np.where(self.bad, 0, self.at)
        self.at += counts
        return starts, counts

    def integers(self, at: Offsets) -> tuple[Offsets, Offsets, Offsets]:
        """Read seconds, nanoseconds and minutes of the times at these places."""
        if len(self.bytes) < 15:
            zero = np.zeros(len(at), np.int64)
            return zero, zero, zero
        times = np.ndarray(len(self.bytes) - 14, "V15", self.bytes.data, strides=(1,))
        rows = times[np.minimum(at, len(times) - 1)].view(np.uint8).reshape(-1, 15)
        seconds = np.ascontiguousarray(rows[:, 1:9]).view(">i8").ravel().astype(np.int64)
        ns = np.ascontiguousarray(rows[:, 9:13]).view(">u4").ravel().astype(np.int64)
        zone = np.ascontiguousarray(rows[:, 13:15]).view(">u2").ravel().astype(np.int64)
        return seconds, ns, zone


def _uvarint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes([value]) for value in range(128)]


def _decode_uvarint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for k, byte in enumerate(data[at : at + _VARINT_SIZE_MAX]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return (value, at + k + 1) if value <= U64_MAX else None
    return None


def _time_flaw(data: bytes) -> str | None:
    if len(data) not in (15, 16):
        return f"a time of {len(data)} bytes"
    if data[0] != len(data) - 14:
        return f"a time of {len(data)} bytes and version {data[0]}"
    return None
