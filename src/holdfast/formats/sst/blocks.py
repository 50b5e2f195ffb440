"""Encode and decode many blocks at once, without a call for every column of every block.

out = Output()                                      memory to write into, and to use again
append_blocks(out, rows, stops, compression)        a block up to each of these places
encode_block(rows, compression)                     bytes of a single one
decode_blocks(blocks, offsets)                      Rows of all of them, copied once
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.formats.checksums import crc32c
from holdfast.formats.sst.block import (
    BODY_SIZE_MAX,
    CODECS,
    CRC,
    END,
    HEADER,
    UNPACKED_SIZE_MAX,
    ZSTD,
    Bytes,
    Compression,
    decode_block,
    padded,
    sections,
    unpacked,
)
from holdfast.formats.sst.rows import (
    EMPTY,
    SIZE_MAX,
    Rows,
    binary,
    booleans,
    column,
    integers,
    numbers,
)

_FILLING = bytes(8)


class Output:
    """A buffer to write to.  `clear` keeps the memory, because new memory takes time to get."""

    __slots__ = ("_memory", "size")

    def __init__(self, size_hint: int = 4096) -> None:
        # Of numpy's memory, large pieces come in large pages, in a fifth of the time.
        self._memory, self.size = np.empty(size_hint, np.uint8).data, 0

    def reserve(self, size: int) -> memoryview:
        """Return the next so many bytes, for the caller to fill."""
        start, self.size = self.size, self.size + size
        if self.size > len(self._memory):
            grown = np.empty(max(self.size, 2 * len(self._memory)), np.uint8).data
            grown[:start] = self._memory[:start]
            self._memory = grown
        return self._memory[start : self.size]

    def append(self, data: bytes) -> None:
        self.reserve(len(data))[:] = data

    def clear(self) -> None:
        """Start again.  The memory that `view` returned will be overwritten."""
        self.size = 0

    def view(self) -> memoryview:
        """Return all that is written, without a copy."""
        return self._memory[: self.size]


def encode_block(rows: Rows, compression: Compression = None) -> bytes:
    """Return the block of these rows, at least one."""
    out = Output()
    append_blocks(out, rows, [len(rows)], compression)
    return bytes(out.view())


def append_blocks(
    out: Output, rows: Rows, stops: Sequence[int], compression: Compression = None
) -> list[int]:
    """Write the rows up to each of these places as a block; return where each block ends."""
    columns, ends = _Columns(rows), []
    for start, stop in pairwise([0, *stops]):
        _append(out, columns, start, stop, compression)
        ends.append(out.size)
    return ends


class _Columns:
    """The memory of rows, to be copied from."""

    __slots__ = ("key_ends", "keys", "seqs", "valid", "value_ends", "values")

    def __init__(self, rows: Rows) -> None:
        self.valid: npt.NDArray[np.bool_] | None = None
        values = rows.values
        if values.null_count:
            self.valid = booleans(values.is_valid())
            if np.diff(column(values)[0])[~self.valid].any():  # nothing is kept under a tombstone
                values = binary(values.to_pylist())
        self.key_ends, keys = column(rows.keys)
        self.value_ends, found = column(values)
        self.keys, self.values = keys.cast("B"), found.cast("B")
        self.seqs = integers(rows.seqs).data.cast("B")

    def valid_bits(self, start: int, stop: int) -> bytes:
        """Return Arrow's bitmap of these rows."""
        if self.valid is None:
            return ((1 << (stop - start)) - 1).to_bytes((stop - start + 7) // 8, "little")
        return np.packbits(self.valid[start:stop], bitorder="little").tobytes()


def _append(
    out: Output, columns: _Columns, start: int, stop: int, compression: Compression
) -> None:
    key, key_stop = int(columns.key_ends[start]), int(columns.key_ends[stop])
    value, value_stop = int(columns.value_ends[start]), int(columns.value_ends[stop])
    counts = stop - start, key_stop - key, value_stop - value
    at = sections(*counts)
    if at.stop > BODY_SIZE_MAX:
        raise ValueError(f"a block has {at.stop} bytes; at most {BODY_SIZE_MAX} fit")
    begun = out.size
    block = out.reserve(HEADER.size + at.stop)
    body = block[HEADER.size :]
    for end in at:  # what is then not written over fills a section up
        body[end - len(_FILLING) : end] = _FILLING
    ends = np.frombuffer(body, np.int32, counts[0] + 1)
    np.subtract(columns.key_ends[start : stop + 1], key, out=ends)
    ends = np.frombuffer(body, np.int32, counts[0] + 1, at.value_ends)
    np.subtract(columns.value_ends[start : stop + 1], value, out=ends)
    body[at.seqs : at.valid] = columns.seqs[8 * start : 8 * stop]
    bits = columns.valid_bits(start, stop)
    body[at.valid : at.valid + len(bits)] = bits
    body[at.keys : at.keys + counts[1]] = columns.keys[key:key_stop]
    body[at.values : at.values + counts[2]] = columns.values[value:value_stop]
    size, codec = at.stop, None
    if compression and size <= UNPACKED_SIZE_MAX:
        packed = ZSTD.compress(body, asbytes=True)
        if len(packed) < size:
            size, codec = len(packed), compression
            block = block[: HEADER.size + padded(size)]
            block[HEADER.size :] = packed + bytes(-size % 8)
            out.size = begun + len(block)
    HEADER.pack_into(block, 0, 0, CODECS[codec], *counts, size)
    CRC.pack_into(block, 0, crc32c(block[CRC.size :]))


def decode_blocks(
    blocks: Sequence[Bytes], offsets: Sequence[int], *, where: str = "blocks"
) -> Rows:
    """Return the rows of blocks at these offsets of `where`, in this order, verified."""
    if not blocks:
        return EMPTY
    if len(blocks) == 1:  # without a copy
        return decode_block(blocks[0], where=where, offset=offsets[0])
    keys, values, seqs, valid = _Binary(), _Binary(), [], []
    for data, offset in zip(blocks, offsets, strict=True):
        count, at, body = unpacked(data, where, offset)
        keys.add(body, count, 0, at.keys, at.values)
        values.add(body, count, at.value_ends, at.values, at.stop)
        seqs.append(body[at.seqs : at.valid])
        valid.append((count, body[at.valid : at.valid + (count + 7) // 8]))
    if not (keys.is_sound() and values.is_sound()):
        for data, offset in zip(blocks, offsets, strict=True):
            decode_block(data, where=where, offset=offset)  # raises an error that names the place
        raise ValueError(f"rows of more than {SIZE_MAX} bytes")
    found = np.frombuffer(b"".join(seqs), np.uint64)
    return Rows(keys.array(None), values.array(_bitmap(valid)), numbers(found))


class _Binary:
    """A column of several blocks."""

    __slots__ = ("_data", "_ends", "_is_sound", "_size")

    def __init__(self) -> None:
        self._ends: list[npt.NDArray[np.int32]] = [np.zeros(1, np.int32)]
        self._data: list[memoryview] = []
        self._size, self._is_sound = 0, True

    def add(self, body: memoryview, count: int, ends: int, start: int, stop: int) -> None:
        """Add a block's part: where its ends lie, and the section that they are offsets in."""
        (first,), (size,) = END.unpack_from(body, ends), END.unpack_from(body, ends + 4 * count)
        self._is_sound &= not first and 0 <= size <= stop - start and self._size + size <= SIZE_MAX
        if self._is_sound:
            self._ends.append(np.frombuffer(body, np.int32, count, ends + 4) + self._size)
            self._data.append(body[start : start + size])
            self._size += size

    def is_sound(self) -> bool:
        """Return whether offsets rise within every block: Arrow does not check them."""
        self._ends = [np.concatenate(self._ends)]
        ends = self._ends[0]
        return self._is_sound and not (ends[1:] < ends[:-1]).any()

    def array(self, valid: Any) -> Any:
        data, ends = pa.py_buffer(b"".join(self._data)), pa.py_buffer(self._ends[0])
        return pa.Array.from_buffers(pa.binary(), len(self._ends[0]) - 1, [valid, ends, data])


def _bitmap(parts: Sequence[tuple[int, memoryview]]) -> Any:
    """The bitmaps of several blocks as one; None if all bits are set."""
    if all(int.from_bytes(bits, "little") == (1 << count) - 1 for count, bits in parts):
        return None
    unpacked_bits = [
        np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little")
        for count, bits in parts
    ]
    return pa.py_buffer(np.packbits(np.concatenate(unpacked_bits), bitorder="little"))
