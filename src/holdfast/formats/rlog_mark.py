"""What the mark of a FileLog says of its files.  The page: docs/formats/mark.md

word := header[20] start:u32       the header of the last entry; bit 31 of start: `has_spare`
id   := capacity:u32 data_start:u32 meta_crc32:u32 0:u32        of an index file; little-endian

The checksum in the mark is that of the entries' bytes from `start` to the end of the last one.
"""

import struct
from dataclasses import dataclass

from isal.isal_zlib import crc32

from holdfast.formats.rlog import Head
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE

TAIL_SIZE_MAX = 2**20  # that the checksum covers

_WORD = struct.Struct(f"<{ENTRY_HEADER_SIZE}sI")
_ID = struct.Struct("<III4x")
_SPARE = 1 << 31


@dataclass(frozen=True, slots=True)
class Word:
    """The last entry that a mark covers."""

    header: bytes = bytes(ENTRY_HEADER_SIZE)  # request id, type and term; zeros if there is none
    start: int = 0  # of the bytes with the checksum, counted like slots
    has_spare: bool = False  # bytes after the last entry belong to entries that were removed


def encode_word(header: bytes, start: int, has_spare: bool) -> bytes:
    return _WORD.pack(header, start | _SPARE if has_spare else start)


def decode_word(word: bytes) -> Word:
    header, start = _WORD.unpack(word)
    return Word(header, start & ~_SPARE, bool(start & _SPARE))


def file_id(head: Head) -> bytes:
    """Return what tells an index file from another of its name."""
    meta = crc32(f"{head.meta.created}\0{head.meta.hostname}".encode())
    return _ID.pack(head.header.capacity, head.data_start, meta)
