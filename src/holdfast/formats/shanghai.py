"""Shanghai WAL segments: bytes to values and back.  The page: docs/formats/shanghai.md

segment := header entry*                                         integers are big-endian
header  := "SHANGA" version:u16 id[16] created_ms:u64 first_lsn:u64 last_lsn:u64 reserved[16]
entry   := length:u32 crc32:u32 payload[length]

An entry is never empty: the CRC-32 of nothing is zero, so an empty entry would be eight zeros,
and zeros are unwritten space.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from uuid import UUID

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from holdfast.errors import UnsupportedError
from holdfast.formats.checksums import mismatches
from holdfast.formats.flaw import Flaw
from holdfast.formats.views import binary_views

MAGIC, VERSION = b"SHANGA", 1
HEADER_SIZE, ENTRY_HEADER_SIZE = 64, 8
LAST_LSN_OFFSET = 40
PAYLOAD_SIZE_MAX = 2**30  # the field allows 4 GiB; an Arrow batch and a reader's memory do not
BAD_CHECKSUM = "checksum mismatch"  # the one flaw after which the next entry can be found
ENTRY_SIZE_MAX = ENTRY_HEADER_SIZE + PAYLOAD_SIZE_MAX

Bytes = bytes | bytearray | memoryview
Bounds = npt.NDArray[np.int64]

_HEADER = struct.Struct(">6sH16sQQQ16x")
_ENTRY_HEADER = struct.Struct(">II")
_CRC = struct.Struct(">I")
_FEW = 200  # entries; below this a loop of C calls beats setting numpy up
_SMALL = 32 * 1024  # below this a plain loop beats setting numpy up
_LANE_SIZE = 128 * 1024
_WINDOW_SIZE = 4096
_LANE_TRIES_MAX = 32


@dataclass(frozen=True, slots=True)
class Header:
    id: UUID
    created_ms: int
    first_lsn: int
    last_lsn: int = 0  # zero while the segment still takes entries


@dataclass(frozen=True, slots=True)
class Scan:
    """Entry i is in bytes bounds[i]:bounds[i + 1]; after the last bound comes the end or a flaw."""

    bounds: Bounds
    flaw: Flaw | None


def encode_header(header: Header) -> bytes:
    return _HEADER.pack(
        MAGIC, VERSION, header.id.bytes, header.created_ms, header.first_lsn, header.last_lsn
    )


def decode_header(data: Bytes) -> Header | Flaw:
    """Decode a header.  UnsupportedError for another version: such a file may be sound."""
    if len(data) < HEADER_SIZE:
        return Flaw(0, f"header of {HEADER_SIZE} bytes cut to {len(data)}")
    magic, version, uuid, created_ms, first_lsn, last_lsn = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return Flaw(0, f"invalid segment header: magic is {magic!r}")
    if version != VERSION:
        raise UnsupportedError(
            f"Shanghai segment of version {version}; this release reads version {VERSION}"
        )
    if first_lsn == 0:
        return Flaw(32, "first LSN is 0, which means none")
    return Header(UUID(bytes=uuid), created_ms, first_lsn, last_lsn)


def decode_fields(data: Bytes) -> Header:
    """Return the fields of a header that may be damaged; zeros where it is cut."""
    data = bytes(data[:HEADER_SIZE]).ljust(HEADER_SIZE, b"\0")
    _, _, uuid, created_ms, first_lsn, last_lsn = _HEADER.unpack_from(data)
    return Header(UUID(bytes=uuid), created_ms, first_lsn, last_lsn)


def encode_last_lsn(last_lsn: int) -> bytes:
    """Encode the bytes that sealing writes at LAST_LSN_OFFSET."""
    return last_lsn.to_bytes(8, "big")


def encode_entries(payloads: Sequence[Bytes]) -> tuple[bytes | bytearray, "array[int]"]:
    """Encode a whole batch into one buffer; return it, and where each entry ends."""
    if len(payloads) >= _FEW:
        return _encode_many(payloads)
    if len(payloads) == 1:  # the path of the lone writer, whose sync leaves every cache cold
        _refuse_sizes([size := len(payload := payloads[0])])
        return _ENTRY_HEADER.pack(size, crc32(payload)) + payload, array("q", (8 + size,))
    lengths = list(map(len, payloads))
    _refuse_sizes(lengths)
    headers = map(_ENTRY_HEADER.pack, lengths, map(crc32, payloads))
    data = b"".join(chain.from_iterable(zip(headers, payloads, strict=True)))
    return data, array("q", accumulate(map(ENTRY_HEADER_SIZE.__add__, lengths)))


def _encode_many(payloads: Sequence[Bytes]) -> tuple[bytearray, "array[int]"]:
    """Join the payloads with gaps between them, then fill all gaps at once."""
    data = bytearray(ENTRY_HEADER_SIZE).join((b"", *payloads))
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    _refuse_sizes(lengths)
    stops = np.cumsum(lengths + ENTRY_HEADER_SIZE)
    filling = np.empty((len(payloads), 2), ">u4")
    filling[:, 0] = lengths
    filling[:, 1] = np.fromiter(map(crc32, payloads), np.uint32, len(payloads))
    holes = np.ndarray(len(data) - ENTRY_HEADER_SIZE + 1, "V8", data, strides=(1,))
    holes[stops - lengths - ENTRY_HEADER_SIZE] = filling.view("V8").ravel()
    return data, array("q", stops.tobytes())


def encode_slices(values: bytes, bounds: Bounds) -> tuple[bytearray, "array[int]"]:
    """Encode payloads that follow each other in `values`, as in an Arrow array."""
    lengths = np.diff(bounds)
    _refuse_sizes(lengths)
    stops = np.cumsum(lengths + ENTRY_HEADER_SIZE)
    starts = stops - lengths - ENTRY_HEADER_SIZE
    data = bytearray(int(stops[-1]))
    cells = np.frombuffer(data, np.uint8)
    payloads = np.frombuffer(values, np.uint8)[bounds[0] : bounds[-1]]
    holes = np.ndarray(len(data) - ENTRY_HEADER_SIZE + 1, "V8", data, strides=(1,))
    if (lengths == lengths[0]).all():
        table = cells.reshape(len(lengths), -1)
        table[:, ENTRY_HEADER_SIZE:] = payloads.reshape(len(lengths), -1)
    else:
        holes[starts] = np.full(1, 0x0101010101010101).view("V8")
        cells[cells == 0] = payloads
    filling = np.empty((len(lengths), 2), ">u4")
    filling[:, 0] = lengths
    slices = map(slice, bounds[:-1].tolist(), bounds[1:].tolist())
    filling[:, 1] = np.fromiter(map(crc32, map(values.__getitem__, slices)), np.uint32)
    holes[starts] = filling.view("V8").ravel()
    return data, array("q", stops.tobytes())


def _refuse_sizes(lengths: "list[int] | npt.NDArray[np.int64]") -> None:
    if not len(lengths) or 0 in lengths:
        raise ValueError("a Shanghai entry cannot be empty, nor can a batch of them")
    if (largest := max(lengths) if isinstance(lengths, list) else lengths.max()) > PAYLOAD_SIZE_MAX:
        raise ValueError(f"a payload has {largest} bytes; at most {PAYLOAD_SIZE_MAX} fit")


def decode_entry(data: Bytes, offset: int = 0) -> bytes | Flaw:
    start = offset + ENTRY_HEADER_SIZE
    if start > len(data):
        return Flaw(offset, f"entry header cut to {len(data) - offset} bytes")
    length, crc = _ENTRY_HEADER.unpack_from(data, offset)
    if length == 0:
        return Flaw(offset, "unwritten space" if crc == 0 else "entry with length 0")
    if length > PAYLOAD_SIZE_MAX:
        return Flaw(offset, f"payload of {length} bytes; the most is {PAYLOAD_SIZE_MAX}")
    if start + length > len(data):
        return Flaw(offset, f"payload of {length} bytes cut to {len(data) - start}")
    payload = bytes(data[start : start + length])
    return payload if crc32(payload) == crc else Flaw(offset, BAD_CHECKSUM)


def payload_at(data: Bytes, begin: int, stop: int) -> bytes | None:
    """Return the payload of an entry with known bounds; None if its checksum does not match."""
    payload = bytes(data[begin + ENTRY_HEADER_SIZE : stop])
    return payload if crc32(payload) == _CRC.unpack_from(data, begin + 4)[0] else None


def entry_size(data: Bytes) -> int:
    """Return the size of the first entry of `data`, by its header; `data` may be shorter."""
    if len(data) < ENTRY_HEADER_SIZE:
        return ENTRY_HEADER_SIZE
    return ENTRY_HEADER_SIZE + int(_ENTRY_HEADER.unpack_from(data)[0])


def scan(data: Bytes, start: int = HEADER_SIZE, *, verify: bool = True) -> Scan:
    """Find all entries from byte `start` on, up to the end of `data` or the first flaw."""
    if len(data) - start < _SMALL:
        return _scan_small(data, start, verify=verify)
    bounds = _walk(memoryview(data), start)
    if verify and (bad := bad_checksums(memoryview(data), bounds)):
        bounds = bounds[: bad[0] + 1]
    stop = int(bounds[-1])
    if stop == len(data):
        return Scan(bounds, None)
    flaw = decode_entry(data, stop)
    assert isinstance(flaw, Flaw), "the walk stopped at a sound entry"
    return Scan(bounds, flaw)


def resync(data: memoryview, offset: int) -> int | None:
    """Return the first place from `offset` on with valid entries up to the end of `data`."""
    while offset < len(data):
        guess = _guess(data, offset)
        if guess is None:
            offset += _WINDOW_SIZE
            continue
        found = scan(data, guess)
        if found.flaw is None:
            return guess
        offset = max(guess, int(found.bounds[-1])) + 1
    return None


def payload_views(data: memoryview, bounds: Bounds) -> npt.NDArray[np.void]:
    """Return Arrow's views over `data` for the entries between these bounds, without a copy."""
    starts = bounds[:-1] + ENTRY_HEADER_SIZE
    return binary_views(data, starts, bounds[1:] - starts)


def _scan_small(data: Bytes, offset: int, *, verify: bool) -> Scan:
    bounds, stop = [offset], len(data)
    unpack, flaw = _ENTRY_HEADER.unpack_from, None
    while offset < stop:
        start = offset + ENTRY_HEADER_SIZE
        length, crc = unpack(data, offset) if start <= stop else (0, 0)
        torn = not 0 < length <= stop - start
        if torn or (verify and crc32(data[start : start + length]) != crc):
            decoded = decode_entry(data, offset)
            flaw = decoded if isinstance(decoded, Flaw) else None
            break
        offset = start + length
        bounds.append(offset)
    return Scan(np.array(bounds, np.int64), flaw)


def bad_checksums(data: memoryview, bounds: Bounds) -> list[int]:
    """Return which entries between these bounds do not match their checksums."""
    begins = bounds[:-1]
    if not len(begins):
        return []
    stored = np.ndarray(len(data) - 7, ">u4", data, offset=4, strides=(1,))[begins]
    starts = begins + ENTRY_HEADER_SIZE
    return mismatches(data, starts, bounds[1:], stored.astype(np.uint32))


def _walk(data: memoryview, start: int) -> Bounds:
    """Follow the chain of lengths, in many places at once.

    Only the start is known to be an entry, so each further lane begins at a guess.  A lane counts
    only if the lane before it, which counts, ends exactly where it begins: a wrong guess, even one
    planted in a payload, costs time and never changes the answer.
    """
    last_start = len(data) - ENTRY_HEADER_SIZE - 1  # of a whole entry: it has a payload
    if start > last_start:
        return np.array([start], np.int64)
    guesses = (_guess(data, at) for at in range(start + _LANE_SIZE, last_start, _LANE_SIZE))
    begins = np.unique(np.array([start, *(g for g in guesses if g is not None)], np.int64))
    found, ends = _walk_lanes(data, begins, np.append(begins[1:], last_start + 1))
    found.sort()
    broken = np.flatnonzero(ends[:-1] != begins[1:])
    if not len(broken):
        return np.append(found, ends[-1])
    good = found[: np.searchsorted(found, begins[broken[0] + 1])]
    return _walk_on(data, np.append(good, ends[broken[0]]))


def _walk_lanes(data: memoryview, at: Bounds, limits: Bounds) -> tuple[Bounds, Bounds]:
    """Step all lanes until each is past its limit or at a flaw; return entries seen, and ends."""
    lengths = np.ndarray(len(data) - 7, ">u4", data, strides=(1,))
    lanes, ends, seen = np.arange(len(at)), at.copy(), []
    while len(at):
        length = lengths[at]
        after = at + length + ENTRY_HEADER_SIZE
        more = after < limits
        if more.all() and length.all():
            seen.append(at)
            at = after
            continue
        sound = (length > 0) & (after <= len(data))
        seen.append(at[sound])
        ends[lanes] = np.where(sound, after, at)
        more &= sound
        lanes, limits, at = lanes[more], limits[more], after[more]
    return np.concatenate(seen), ends


def _walk_on(data: memoryview, known: Bounds) -> Bounds:
    """Do the same from a known place, one step at a time."""
    offset, bounds = int(known[-1]), []
    unpack = struct.Struct(">I").unpack_from
    while offset + ENTRY_HEADER_SIZE < len(data):
        (length,) = unpack(data, offset)
        offset += ENTRY_HEADER_SIZE + length
        if not length or offset > len(data):
            break
        bounds.append(offset)
    return np.concatenate([known, np.array(bounds, np.int64)])


def _guess(data: memoryview, start: int) -> int | None:
    """Return the first place from `start` on that looks like an entry with its checksum."""
    window = min(_WINDOW_SIZE, len(data) - start - 7)
    if window <= 0:
        return None
    lengths = np.ndarray(window, ">u4", data, offset=start, strides=(1,))
    likely = np.flatnonzero((lengths > 0) & (lengths <= min(_LANE_SIZE, len(data) - start)))
    for i in likely[:_LANE_TRIES_MAX].tolist():
        if isinstance(decode_entry(data, start + i), bytes):
            return int(start + i)
    return None
