"""Many CRC-32 checksums verified with two calls: CRC-32/ISO-HDLC (zlib's) and CRC-32C.

A checksum call per entry costs more than the checksum.  But a CRC is linear.  Replace a payload by
zeros, except that its first four bytes undo the initial value and its last four bytes undo the
stored checksum.  If the stored checksum was right, any CRC over a region around it stays the same.
So a region is compared with its stand-in, one call each, and entries are verified one by one only
where the two differ.  A damaged region is not detected with probability 2^-32, as with a single
damaged entry; any burst of up to 32 bits is detected.
"""

from collections.abc import Callable
from functools import lru_cache

import google_crc32c
import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

Offsets = npt.NDArray[np.int64]
Crcs = npt.NDArray[np.uint32]

_REGION_SIZE = 1 << 20  # stays in the processor's cache
_GROUP_COUNT = 8192
_ONES = 0xFFFFFFFF


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C (Castagnoli).  Its library takes bytes and arrays, but not memoryviews."""
    if isinstance(data, bytes):
        return int(google_crc32c.value(data))
    return int(google_crc32c.value(np.frombuffer(data, np.uint8))) if len(data) else 0


class Kind:
    """One polynomial: its function, and the tables that undo four bytes of it."""

    def __init__(
        self, of: Callable[[bytes | memoryview], int], extend: Callable[[int, bytes], int]
    ) -> None:
        self.of = of
        self._step = np.array([extend(_ONES, bytes([i])) ^ _ONES for i in range(256)], np.uint32)
        self._step_back = np.zeros(256, np.uint32)
        self._step_back[self._step >> 24] = np.arange(256)
        bytes_at = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)]
        self._undo = [self._undo_four_bytes(state) for state in bytes_at]

    def undo(self, states: Crcs) -> Crcs:
        """Return the four bytes that bring a register of zero to each of these states."""
        found: Crcs = self._undo[0][states & 255]
        for k in (1, 2, 3):
            found ^= self._undo[k][(states >> (8 * k)) & 255]
        return found

    def _undo_four_bytes(self, state: Crcs) -> Crcs:
        for _ in range(4):
            byte = self._step_back[state >> 24]
            state = ((state ^ self._step[byte]) << 8) | byte
        return state


CRC32 = Kind(crc32, lambda crc, data: int(crc32(data, crc)))
CRC32C = Kind(crc32c, google_crc32c.extend)


def crc32_each(data: memoryview, width: int) -> Crcs:
    """Return the CRC-32 of each `width` bytes of data.

    A CRC is linear: the CRC of a record is the XOR of the effects of its bytes.  So tables, one for
    two bytes, replace calls.  Records are processed in groups that stay in the processor's cache.
    """
    count, pairs = len(data) // width, width // 2
    words = np.ndarray((count, pairs), "<u2", data, strides=(width, 2))
    columns = [words[:, place] for place in range(pairs)]
    if width % 2:
        columns.append(np.frombuffer(data, np.uint8)[width - 1 :: width])
    found = np.full(count, crc32(bytes(width)), np.uint32)
    for start in range(0, count, _GROUP_COUNT):
        here = slice(start, start + _GROUP_COUNT)
        for column, table in zip(columns, _tables(width), strict=True):
            found[here] ^= table.take(column[here])
    return found


@lru_cache(maxsize=8)
def _tables(width: int) -> list[Crcs]:
    """Return tables: the effect of each pair of bytes of a record on its CRC."""
    alone = np.array(
        [
            [crc32(bytes(place) + bytes([byte]) + bytes(width - 1 - place)) for byte in range(256)]
            for place in range(width)
        ],
        np.uint32,
    ) ^ np.uint32(crc32(bytes(width)))
    pairs = zip(alone[:-1:2], alone[1::2], strict=False)
    return [*((first ^ second[:, None]).ravel() for first, second in pairs), *alone[width & ~1 :]]


def mismatches(
    data: memoryview, starts: Offsets, stops: Offsets, crcs: Crcs, kind: Kind = CRC32
) -> list[int]:
    """Return which slices of `data` do not match their given checksums.

    Between two neighbours lie eight bytes, which are taken as they are.
    """
    spare = np.empty(_REGION_SIZE, np.uint8)
    bad: list[int] = []
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(stops, starts[first] + _REGION_SIZE, "right"))
        last = max(last, first + 1)
        here = slice(first, last)
        slices = starts[here], stops[here], crcs[here]
        if not _region_holds(kind, data, *slices, spare):
            bad += [first + i for i in _one_by_one(kind, data, *slices)]
        first = last
    return bad


def _region_holds(
    kind: Kind,
    data: memoryview,
    starts: Offsets,
    stops: Offsets,
    crcs: Crcs,
    spare: npt.NDArray[np.uint8],
) -> bool:
    begin, end = int(starts[0]), int(stops[-1])
    if len(starts) == 1 or (stops - starts).min() < 4:  # too short to stand in for
        return not _one_by_one(kind, data, starts, stops, crcs)
    region, size = data[begin:end], end - begin
    starts, stops = starts - begin, stops - begin
    standin = spare[:size]
    standin[:] = 0
    between = stops[:-1]
    np.ndarray(size - 7, "V8", standin.data, strides=(1,))[between] = np.ndarray(
        size - 7, "V8", region, strides=(1,)
    )[between]
    words = np.ndarray(size - 3, "<u4", standin.data, strides=(1,))
    words[starts] = _ONES
    words[stops - 4] ^= kind.undo(~crcs)
    return bool(kind.of(region) == kind.of(standin.data))


def _one_by_one(
    kind: Kind, data: memoryview, starts: Offsets, stops: Offsets, crcs: Crcs
) -> list[int]:
    slices = map(slice, starts.tolist(), stops.tolist())
    actual = np.fromiter(map(kind.of, map(data.__getitem__, slices)), np.uint32, len(starts))
    return [int(i) for i in np.flatnonzero(actual != crcs)]
