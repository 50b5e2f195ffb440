"""The filter of an SST: it tests whether a key may be in the SST.

filter := crc32c:u32 zero[4] words:u64[]                                 little-endian

A Bloom filter whose bits for one key lie in one word, so that a test is one load.  With h the
CRC-32/ISO-HDLC of a key, its word is number (h * words) >> 32, and its bits are PATTERNS[h % 4096]:
pattern i has the five bits whose places are 6 bits each, from the lowest on, of
(i + 1) * 0x9E3779B97F4A7C15 >> 32.  An SST without a filter has no bytes for it.

    key_hashes(rows.keys) -> uint32 array       encode_filter(hashes, bits_per_key) -> bytes
    decode_filter(data) -> Filter               Filter.may_contain(key)
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from holdfast.errors import CorruptError
from holdfast.formats.checksums import crc32_each, crc32c
from holdfast.formats.sst.rows import column

Hashes = npt.NDArray[np.uint32]

HEADER_SIZE = 8
BITS_PER_KEY = 14
_PATTERN_COUNT = 4096
_PATTERN_BITS = 5
# Keys of one length are hashed without a call for each, if they are worth the tables it takes.
_MANY_KEYS = 4096
_WIDTH_MAX = 32


def _patterns() -> npt.NDArray[np.uint64]:
    mixed = np.arange(1, _PATTERN_COUNT + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> 32
    found = np.zeros(_PATTERN_COUNT, np.uint64)
    for i in range(_PATTERN_BITS):
        found |= np.uint64(1) << (mixed >> np.uint64(6 * i) & np.uint64(63))
    return found


_PATTERNS = _patterns()
_MASKS: list[int] = _PATTERNS.tolist()


def key_hashes(keys: Any) -> Hashes:
    """Return the hash of every key of an Arrow array."""
    if len(keys) >= _MANY_KEYS:
        ends, data = column(keys)
        width = int(ends[1] - ends[0])
        if width <= _WIDTH_MAX and (np.diff(ends) == width).all():
            return crc32_each(data[ends[0] : ends[-1]], width)
    return np.fromiter(map(crc32, keys.to_pylist()), np.uint32, len(keys))


def encode_filter(hashes: Hashes, bits_per_key: int = BITS_PER_KEY) -> bytes:
    """Return the filter of keys with these hashes; it returns True for all of them."""
    if not len(hashes) or not bits_per_key:
        return b""
    words = np.zeros(-(-len(hashes) * bits_per_key // 64), np.uint64)
    places = hashes.astype(np.uint64) * np.uint64(len(words)) >> np.uint64(32)
    np.bitwise_or.at(words, places.astype(np.intp), _PATTERNS[hashes % _PATTERN_COUNT])
    rest = bytes(4) + words.tobytes()
    return crc32c(rest).to_bytes(4, "little") + rest


class Filter:
    """Returns False only for missing keys; returns True for about one in a hundred of them."""

    __slots__ = ("_count", "_words")

    def __init__(self, words: memoryview) -> None:
        self._words, self._count = words, len(words)

    def may_contain(self, key: bytes) -> bool:
        """Return whether the SST may contain this key."""
        if not self._count:
            return True
        hashed = crc32(key)
        mask = _MASKS[hashed & 4095]
        return bool(self._words[hashed * self._count >> 32] & mask == mask)


def decode_filter(data: bytes | memoryview, *, where: str = "filter", offset: int = 0) -> Filter:
    """Return the filter in these bytes; without bytes, a filter that always returns True."""
    if not len(data):
        return Filter(memoryview(b"").cast("Q"))
    if len(data) <= HEADER_SIZE or len(data) % 8:
        raise CorruptError(where, offset, f"a filter cut to {len(data)} bytes")
    view = memoryview(data)
    if crc32c(view[4:]) != int.from_bytes(view[:4], "little"):
        raise CorruptError(where, offset, "a filter with a bad checksum")
    return Filter(view[HEADER_SIZE:].cast("Q"))
