"""Many CRC-32 checksums verified with two calls.  CRC-32/ISO-HDLC, the one of zlib.

A checksum call per entry costs more than the checksum.  But a CRC is linear: replace a payload
by zeros whose first four bytes undo the initial value and whose last four bytes undo the stored
checksum, and any CRC over a region around it stays the same, provided the stored checksum was
right.  So a region is compared with its stand-in, one call each, and entries are looked at one
by one only where the two differ.  A damaged region passes with probability 2^-32, as a damaged
entry would alone; any burst of up to 32 bits is always seen.
"""

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

Offsets = npt.NDArray[np.int64]
Crcs = npt.NDArray[np.uint32]

_REGION_SIZE = 1 << 20  # stays in the processor's cache
_ONES = 0xFFFFFFFF

_STEP = np.array([crc32(bytes([i]), _ONES) ^ _ONES for i in range(256)], np.uint32)
_STEP_BACK = np.zeros(256, np.uint32)
_STEP_BACK[_STEP >> 24] = np.arange(256)


def _undo_four_bytes(state: Crcs) -> Crcs:
    for _ in range(4):
        byte = _STEP_BACK[state >> 24]
        state = ((state ^ _STEP[byte]) << 8) | byte
    return state


_UNDO = [_undo_four_bytes(np.arange(256, dtype=np.uint32) << np.uint32(8 * k)) for k in range(4)]


def mismatches(data: memoryview, starts: Offsets, stops: Offsets, crcs: Crcs) -> list[int]:
    """Which of the slices of `data` have not the CRC-32 that is given for them.

    Between two neighbours lie eight bytes, which are taken as they are.
    """
    spare = np.empty(_REGION_SIZE, np.uint8)
    bad: list[int] = []
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(stops, starts[first] + _REGION_SIZE, "right"))
        last = max(last, first + 1)
        here = slice(first, last)
        if not _region_holds(data, starts[here], stops[here], crcs[here], spare):
            bad += [first + i for i in _one_by_one(data, starts[here], stops[here], crcs[here])]
        first = last
    return bad


def _region_holds(
    data: memoryview, starts: Offsets, stops: Offsets, crcs: Crcs, spare: npt.NDArray[np.uint8]
) -> bool:
    begin, end = int(starts[0]), int(stops[-1])
    if len(starts) == 1 or (stops - starts).min() < 4:  # too short to stand in for
        return not _one_by_one(data, starts, stops, crcs)
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
    wanted = ~crcs
    tail = _UNDO[0][wanted & 255]
    for k in (1, 2, 3):
        tail ^= _UNDO[k][(wanted >> (8 * k)) & 255]
    words[stops - 4] ^= tail
    return bool(crc32(region) == crc32(standin.data))


def _one_by_one(data: memoryview, starts: Offsets, stops: Offsets, crcs: Crcs) -> list[int]:
    slices = map(slice, starts.tolist(), stops.tolist())
    actual = np.fromiter(map(crc32, map(data.__getitem__, slices)), np.uint32, len(starts))
    return [int(i) for i in np.flatnonzero(actual != crcs)]
