"""Blocks: columns in the layout that Arrow has in memory.

block := crc32c:u32 codec:u8 zero[3] rows:u32 keys_size:u32 values_size:u32 body_size:u32
         body[body_size] zeros up to a multiple of 8                      little-endian
body  := key_ends:i32[rows + 1] value_ends:i32[rows + 1] seqs:u64[rows] valid:bit[rows]
         keys[keys_size] values[values_size]            each filled with zeros to 8 bytes

The checksum covers all bytes after it.  With codec 1 the body is compressed with zstd.  Decoded
offsets never point outside of the body, also in a damaged block.

    decode_block(data)                  Rows, over the same memory where it is not compressed
    open_block(data)                    a Block, verified once, that answers get(key) many times
    block_get(data, key)                (value or None, seq), or None if the key is missing

blocks.py writes blocks, and reads many at once.
"""

import struct
from bisect import bisect_left
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.errors import CorruptError
from holdfast.formats.checksums import crc32c
from holdfast.formats.sst.rows import Rows

Bytes = bytes | memoryview
Compression = Literal["zstd"] | None
Found = tuple[bytes | None, int]

CODECS: dict[Compression, int] = {None: 0, "zstd": 1}
HEADER = struct.Struct("<IB3xIIII")
CRC = struct.Struct("<I")
END = struct.Struct("<i")  # of a key, or of a value
BODY_SIZE_MAX = 2**31 - 1
# Memory for a compressed body is allocated before its bytes are verified.
UNPACKED_SIZE_MAX = 1 << 26
_LISTED_OVERHEAD = 41  # what an object of bytes takes besides them, and its place in a list
ZSTD = pa.Codec("zstd")


class Sections(NamedTuple):
    """Where the parts of a body begin, and where it ends."""

    value_ends: int
    seqs: int
    valid: int
    keys: int
    values: int
    stop: int


def padded(size: int) -> int:
    """Return the next multiple of 8."""
    return (size + 7) & ~7


def sections(rows: int, keys_size: int, values_size: int) -> Sections:
    """Return the parts of a body of so many rows and bytes."""
    ends_size = padded(4 * rows + 4)
    seqs = 2 * ends_size
    valid = seqs + 8 * rows
    keys = valid + padded((rows + 7) // 8)
    values = keys + padded(keys_size)
    return Sections(ends_size, seqs, valid, keys, values, values + padded(values_size))


def decode_block(data: Bytes, *, where: str = "block", offset: int = 0) -> Rows:
    """Return the rows of a block, verified; `where` and `offset` go into the error, if any."""
    count, at, view = _body(data, where, offset)
    body = pa.py_buffer(view)
    key_ends = body.slice(0, 4 * count + 4)
    value_ends = body.slice(at.value_ends, 4 * count + 4)
    valid, seqs = body.slice(at.valid, at.keys - at.valid), body.slice(at.seqs, 8 * count)
    keys, values = body.slice(at.keys, at.values - at.keys), body.slice(at.values)
    return Rows(
        pa.Array.from_buffers(pa.binary(), count, [None, key_ends, keys], 0),
        pa.Array.from_buffers(pa.binary(), count, [valid, value_ends, values]),
        pa.Array.from_buffers(pa.uint64(), count, [None, seqs], 0),
    )


class Block:
    """A verified block, unpacked: it finds a key without creating objects for the others.

    For many gets, call `list_keys` once: it takes as long as ten gets, and some memory, and then a
    get takes a tenth of the time.
    """

    __slots__ = (
        "_body",
        "_key_ends",
        "_keys",
        "_listed",
        "_seqs",
        "_valid",
        "_value_ends",
        "_values",
    )

    def __init__(self, body: bytes, count: int, at: Sections) -> None:
        view = memoryview(body)
        self._body, self._valid, self._values = body, at.valid, at.values
        self._keys = body[at.keys : at.values]
        self._key_ends = view[: 4 * count + 4].cast("i")
        self._value_ends = view[at.value_ends : at.value_ends + 4 * count + 4].cast("i")
        self._seqs = view[at.seqs : at.valid].cast("Q")
        self._listed: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def size(self) -> int:
        """Return the bytes that it keeps in memory, about."""
        listed = 0 if self._listed is None else len(self._keys) + _LISTED_OVERHEAD * len(self)
        return len(self._body) + len(self._keys) + listed

    @property
    def is_listed(self) -> bool:
        return self._listed is not None

    def list_keys(self) -> None:
        """Create an object for every key, so that comparisons run in C."""
        keys, ends = self._keys, self._key_ends.tolist()
        self._listed = [keys[start:stop] for start, stop in pairwise(ends)]

    def get(self, key: bytes) -> Found | None:
        """Return value (None: a tombstone) and seq of a key; None if the key is missing."""
        listed = self._listed
        if listed is None:
            i = self._find(key)
        else:
            i = bisect_left(listed, key)
            if i == len(listed) or listed[i] != key:
                return None
        if i < 0:
            return None
        body, ends, values = self._body, self._value_ends, self._values
        if not body[self._valid + (i >> 3)] >> (i & 7) & 1:
            return None, self._seqs[i]
        return body[values + ends[i] : values + ends[i + 1]], self._seqs[i]

    def _find(self, key: bytes) -> int:
        """Return the place of this key, or -1."""
        ends, keys = self._key_ends, self._keys
        i, high = 0, len(self._seqs)
        while i < high:  # the bisect module would call a function for every step
            middle = (i + high) >> 1
            if keys[ends[middle] : ends[middle + 1]] < key:
                i = middle + 1
            else:
                high = middle
        return i if i < len(self._seqs) and keys[ends[i] : ends[i + 1]] == key else -1


def open_block(data: Bytes, *, where: str = "block", offset: int = 0) -> Block:
    """Return a block for gets of single keys; it is verified once, here."""
    count, at, body = _body(data, where, offset)
    return Block(bytes(body), count, at)


def block_get(data: Bytes, key: bytes) -> Found | None:
    """Return one key of a block.  For several keys, use open_block."""
    return open_block(data).get(key)


def _body(data: Bytes, where: str, offset: int) -> tuple[int, Sections, memoryview]:
    """Return row count, sections and unpacked body of a block, with its checksum and sizes
    verified.
    """
    count, at, body = unpacked(data, where, offset)
    _check_ends(body, 0, count, at.values - at.keys, where, offset)
    _check_ends(body, at.value_ends, count, at.stop - at.values, where, offset)
    return count, at, body


def unpacked(data: Bytes, where: str, offset: int) -> tuple[int, Sections, memoryview]:
    """Verify and unpack; return row count, sections and body.  Offsets are not checked."""
    if len(data) < HEADER.size:
        raise CorruptError(where, offset, f"a block cut to {len(data)} bytes")
    crc, codec, count, keys_size, values_size, body_size = HEADER.unpack_from(data)
    if crc32c(memoryview(data)[CRC.size :]) != crc:
        raise CorruptError(where, offset, "a block with a bad checksum")
    at = sections(count, keys_size, values_size)
    if not count or HEADER.size + padded(body_size) != len(data) or at.stop > BODY_SIZE_MAX:
        raise CorruptError(where, offset, f"{len(data)} bytes for {count} rows in {body_size}")
    body = memoryview(data)[HEADER.size : HEADER.size + body_size]
    if codec == CODECS["zstd"] and at.stop <= UNPACKED_SIZE_MAX:
        try:
            plain = ZSTD.decompress(body, decompressed_size=at.stop)
        except OSError as error:
            raise CorruptError(where, offset, str(error)) from error
        return count, at, memoryview(plain).cast("B")
    if codec or body_size != at.stop:
        raise CorruptError(where, offset, f"codec {codec} with {body_size} of {at.stop} bytes")
    return count, at, body


def _check_ends(
    body: memoryview, start: int, count: int, size: int, where: str, offset: int
) -> None:
    """Check that offsets rise from 0 and stay within `size`: Arrow does not check them."""
    ends = np.frombuffer(body, np.int32, count + 1, start)
    if ends[0] or ends[-1] > size or (ends[1:] < ends[:-1]).any():
        raise CorruptError(where, offset, f"offsets that do not rise within {size} bytes")
