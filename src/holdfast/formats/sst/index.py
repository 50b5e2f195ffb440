"""The index of an SST: the first key and the place of every block.

index := crc32c:u32 blocks:u32 keys_size:u32 zero[4]                     little-endian
         offsets:u64[blocks + 1] key_ends:u32[blocks + 1] keys[keys_size]

The last two are each filled with zeros to 8 bytes.  Blocks lie one after the other from byte 0,
so block i is offsets[i] to offsets[i + 1].

    decode_index(data) -> Index
    index.find(key)               the only block that may hold the key; -1 if it lies before all
    index.range(start, stop)      the blocks that may hold keys with start <= key < stop
    index.span(i)                 start and stop of block i in the object
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.errors import CorruptError
from holdfast.formats.checksums import crc32c
from holdfast.formats.sst.block import padded

HEADER = struct.Struct("<IIII")


@dataclass(frozen=True, slots=True)
class Index:
    """First keys, and one more offset than there are blocks."""

    first_keys: list[bytes]
    offsets: list[int]

    def __len__(self) -> int:
        return len(self.first_keys)

    def find(self, key: bytes) -> int:
        """Return the number of the only block that may hold this key, or -1."""
        return bisect_right(self.first_keys, key) - 1

    def range(self, start: bytes | None, stop: bytes | None) -> range:
        """Return the numbers of the blocks that may hold keys with start <= key < stop."""
        first = 0 if start is None else max(0, self.find(start))
        last = len(self) if stop is None else bisect_left(self.first_keys, stop)
        return range(first, max(first, last))

    def span(self, number: int) -> tuple[int, int]:
        """Return where a block starts and stops."""
        return self.offsets[number], self.offsets[number + 1]


def encode_index(first_keys: Sequence[bytes], offsets: Sequence[int]) -> bytes:
    """Encode the index of blocks with these first keys, from these offsets to the last one."""
    ends = np.cumsum([0, *map(len, first_keys)], dtype=np.int64).astype(np.uint32).tobytes()
    keys = b"".join(first_keys)
    header = HEADER.pack(0, len(first_keys), len(keys), 0)[4:]
    rest = [header, np.array(offsets, np.uint64).tobytes(), ends, bytes(-len(ends) % 8)]
    body = b"".join([*rest, keys, bytes(-len(keys) % 8)])
    return crc32c(body).to_bytes(4, "little") + body


def decode_index(data: bytes | memoryview, *, where: str = "index", offset: int = 0) -> Index:
    """Return the index in these bytes, after its checksum."""
    if len(data) < HEADER.size:
        raise CorruptError(where, offset, f"an index cut to {len(data)} bytes")
    crc, count, keys_size, _ = HEADER.unpack_from(data)
    view = memoryview(data)
    if crc32c(view[4:]) != crc:
        raise CorruptError(where, offset, "an index with a bad checksum")
    ends_at = HEADER.size + 8 * count + 8
    keys_at = ends_at + padded(4 * count + 4)
    if keys_at + padded(keys_size) != len(data):
        raise CorruptError(where, offset, f"{len(data)} bytes for an index of {count} blocks")
    offsets = np.frombuffer(data, np.uint64, count + 1, HEADER.size).tolist()
    ends = np.frombuffer(data, np.uint32, count + 1, ends_at).tolist()
    keys = bytes(view[keys_at : keys_at + keys_size])
    first_keys = [keys[start:stop] for start, stop in pairwise(ends)]
    if offsets[0] or any(a >= b for a, b in pairwise(offsets)):
        raise CorruptError(where, offset, "blocks that do not follow each other from byte 0")
    if ends[-1] != keys_size or any(a >= b for a, b in pairwise(first_keys)):
        raise CorruptError(where, offset, "first keys that do not rise")
    return Index(first_keys, offsets)
