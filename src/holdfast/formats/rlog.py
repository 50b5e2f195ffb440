"""Index files of a FileLog, bytes to values and back.  The page: docs/formats/rlog.md

file   := header slot*capacity chunk* "ITMZ" 0:u32 entry*       integers are little-endian
header := "RLOG" size:u32 version:u32 capacity:u32 first_index:u64
slot   := end:u32       where an entry ends, in bytes after the first one begins; 0: no entry

An entry is the bytes between two ends, at least one; holdfast.formats.rlog_entry decodes it.  The
entries of a file are those of the slots before the first that is 0.
"""

import re
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.errors import UnsupportedError
from holdfast.formats.flaw import Flaw
from holdfast.formats.token_file import (
    CHUNK_HEADER_SIZE,
    Meta,
    Read,
    encode_chunk,
    encode_meta,
    find_chunks,
    meta_of,
)

HEADER_SIZE = TABLE_START = 24
SLOT_SIZE = 4
CAPACITY_DEFAULT = 16_384
CAPACITY_MAX = 0x00FF_FFFF
DATA_SIZE_MAX = 0x3FFF_FFFF  # of all entries of one file
INDEX_MAX = 2**53 - 1  # what the original can count to

Slots = npt.NDArray[np.uint32]

_TOKEN, _MARKER = b"RLOG", b"ITMZ"
_VERSION = 1
_HEADER = struct.Struct("<4sIIIQ")
_PATH = re.compile(r"([0-9a-f]{5})/([0-9a-f]{2})/([0-9a-f]{2})/([0-9a-f]{14})\.rlog", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """The first 24 bytes."""

    first_index: int
    capacity: int

    @property
    def table_stop(self) -> int:
        return TABLE_START + SLOT_SIZE * self.capacity

    @property
    def stop_index(self) -> int:
        """The index after the last one that has a slot."""
        return self.first_index + self.capacity


@dataclass(frozen=True, slots=True)
class Head:
    """Everything before the entries, without the slots."""

    header: Header
    data_start: int
    meta: Meta


def capacity_for(index: int, nominal: int) -> int:
    """Return the capacity of a file that begins at `index`: files end at multiples of `nominal`."""
    return nominal - index % nominal


def nominal_capacity(first_file: int) -> int:
    """Return the power of two at whose multiples files end, from the first file's capacity."""
    return 1 << (first_file - 1).bit_length()


def path_of(index: int) -> str:
    """Return the name of the file that begins at `index`, with its directories."""
    digits = f"{index:014x}"
    return f"{digits[:5]}/{digits[5:7]}/{digits[7:9]}/{digits}.rlog"


def index_of(path: str) -> int | None:
    """Return the index in a path; None unless path_of returns this path for it."""
    match = _PATH.fullmatch(path)
    if match is None or int(match[4], 16) > INDEX_MAX:
        return None
    return int(match[4], 16) if path_of(int(match[4], 16)) == path else None


def encode_file(header: Header, meta: Meta) -> bytes:
    """Encode a complete file without entries."""
    capacity = header.capacity
    if not (0 < capacity <= CAPACITY_MAX and 0 < header.first_index <= INDEX_MAX):
        raise ValueError(
            f"capacity {capacity} and first index {header.first_index}; "
            f"expected 1 to {CAPACITY_MAX} and 1 to {INDEX_MAX}"
        )
    size = HEADER_SIZE - CHUNK_HEADER_SIZE + SLOT_SIZE * capacity
    start = _HEADER.pack(_TOKEN, size, _VERSION, capacity, header.first_index)
    marker = encode_chunk(_MARKER, b"")
    return b"".join((start, bytes(SLOT_SIZE * capacity), encode_meta(meta), marker))


def decode_header(data: bytes) -> Header | Flaw:
    if len(data) < HEADER_SIZE:
        return Flaw(len(data), "the file ends inside its header")
    token, size, version, capacity, first_index = _HEADER.unpack_from(data)
    if token != _TOKEN:
        return Flaw(0, f"begins with {token!r}, not {_TOKEN!r}")
    if version != _VERSION:
        raise UnsupportedError(f"version {version} of an index file; this release reads 1")
    if not 0 < capacity <= CAPACITY_MAX:
        return Flaw(12, f"capacity {capacity}; expected 1 to {CAPACITY_MAX}")
    if size != HEADER_SIZE - CHUNK_HEADER_SIZE + SLOT_SIZE * capacity:
        return Flaw(4, f"a header of {size} bytes for {capacity} slots")
    if not 0 < first_index <= INDEX_MAX:
        return Flaw(16, f"first index {first_index}; expected 1 to {INDEX_MAX}")
    return Header(first_index, capacity)


def decode_head(read: Read) -> Head | Flaw:
    """Decode everything before the entries; `read` returns bytes of the file."""
    header = decode_header(read(0, HEADER_SIZE))
    if isinstance(header, Flaw):
        return header
    chunks = find_chunks(read, header.table_stop, _MARKER)
    if isinstance(chunks, Flaw):
        return chunks
    return Head(header, chunks[-1].start, meta_of(read, chunks[:-1]))


def decode_slots(data: bytes | memoryview) -> Slots:
    return np.frombuffer(data, "<u4", len(data) // SLOT_SIZE)


def encode_slots(ends: Slots) -> bytes:
    return ends.astype("<u4").tobytes()


def count_used(slots: Slots) -> int:
    """Count the slots before the first that is zero: later ones do not count."""
    if not len(slots) or not slots[0]:
        return 0
    free = int((slots == 0).argmax())
    return free if not slots[free] else len(slots)


def count_ordered(ends: Slots) -> int:
    """Count the first entries whose ends increase."""
    if len(ends) < 2:
        return len(ends)
    falls = ends[1:] <= ends[:-1]
    first = int(falls.argmax())
    if not falls[first]:
        return len(ends)
    # If the next end is also before the previous one, it is wrong; else either may be.
    return first + 1 if ends[first + 1] <= (ends[first - 1] if first else 0) else first


def dirty_run(slots: Slots, at: int) -> int:
    """Count the slots from `at` to the next zero."""
    return count_used(slots[at:])
