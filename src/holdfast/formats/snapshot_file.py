"""Snapshot files of a FileLog, bytes to values and back.  The page: docs/formats/snapshot_file.md

file := "SNAP" 28:u32 version:u32 index:u64 term:u64 data_size:u64 chunk* "DATA" 0:u32 data
                                                            integers are little-endian
"""

import struct
from dataclasses import dataclass

from holdfast.errors import UnsupportedError
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog import INDEX_MAX
from holdfast.formats.rlog_entry import TERM_MAX
from holdfast.formats.token_file import (
    CHUNK_HEADER_SIZE,
    Meta,
    Read,
    encode_chunk,
    encode_meta,
    find_chunks,
    meta_of,
)

HEADER_SIZE = 36
DATA_SIZE_OFFSET = 28  # where the size is written once it is known

_TOKEN, _MARKER = b"SNAP", b"DATA"
_VERSION = 1
_HEADER = struct.Struct("<4sIIQQQ")


@dataclass(frozen=True, slots=True)
class Head:
    """Everything before the data."""

    index: int  # of the last entry that the snapshot covers; 0 for none
    term: int  # of that entry
    data_size: int
    data_start: int
    meta: Meta


def encode_head(index: int, term: int, data_size: int, meta: Meta) -> bytes:
    if not (0 <= index <= INDEX_MAX and 0 <= term <= TERM_MAX):
        raise ValueError(
            f"a snapshot of entry {index}, term {term}; expected 0 to {INDEX_MAX}, 0 to {TERM_MAX}"
        )
    header = _HEADER.pack(_TOKEN, HEADER_SIZE - CHUNK_HEADER_SIZE, _VERSION, index, term, data_size)
    return header + encode_meta(meta) + encode_chunk(_MARKER, b"")


def encode_data_size(data_size: int) -> bytes:
    return data_size.to_bytes(8, "little")


def decode_head(read: Read, file_size: int) -> Head | Flaw:
    """Decode the head of a snapshot; a Flaw also if the file does not have the size it states."""
    data = read(0, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        return Flaw(len(data), "the file ends inside its header")
    token, size, version, index, term, data_size = _HEADER.unpack(data)
    if token != _TOKEN:
        return Flaw(0, f"begins with {token!r}, not {_TOKEN!r}")
    if version != _VERSION:
        raise UnsupportedError(f"version {version} of a snapshot file; this release reads 1")
    if size != HEADER_SIZE - CHUNK_HEADER_SIZE:
        return Flaw(4, f"a header of {size} bytes, not {HEADER_SIZE - CHUNK_HEADER_SIZE}")
    if index > INDEX_MAX or term > TERM_MAX or (index == 0) != (term == 0):
        return Flaw(12, f"a snapshot of entry {index}, term {term}")
    chunks = find_chunks(read, HEADER_SIZE, _MARKER)
    if isinstance(chunks, Flaw):
        return chunks
    start = chunks[-1].start
    if start + data_size != file_size:
        why = f"{file_size - start} bytes of data, not {data_size}"
        return Flaw(min(file_size, start), why)
    return Head(index, term, data_size, start, meta_of(read, chunks[:-1]))
