"""The record of a commit in progress, at the end of an index file that is being written.

record := "hfcr" first_slot:u32 start:u32 data_crc32:u32 end:u32* size:u32 crc32:u32

It contains the ends that the slots will get, so that slots torn by a crash can be written again.
It is synced together with the entries, before any slot is written.  It is not a part of the format:
a reader that follows the slots never sees it, and a closed log has none.  It is found from the end
of the file.  `data_crc32` is that of the entries; if they differ, another program has written
since, and the record is void.
"""

import struct
from dataclasses import dataclass

import numpy as np
from isal.isal_zlib import crc32

from holdfast.formats.rlog import SLOT_SIZE, Slots

FOOTER_SIZE = 8

_MAGIC = b"hfcr"
_START = struct.Struct("<4sIII")
_FOOTER = struct.Struct("<II")


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Entries that were made durable before their slots."""

    first_slot: int
    start: int  # where the first of them begins, in bytes after the first entry of the file
    data_crc32: int
    ends: Slots

    @property
    def stop(self) -> int:
        return int(self.ends[-1])

    @property
    def size(self) -> int:
        return record_size(len(self.ends))


def record_size(count: int) -> int:
    return _START.size + SLOT_SIZE * count + FOOTER_SIZE


def encode_commit(first_slot: int, start: int, data_crc32: int, ends: Slots) -> bytes:
    body = _START.pack(_MAGIC, first_slot, start, data_crc32) + ends.astype("<u4").tobytes()
    body += (len(body) + FOOTER_SIZE).to_bytes(4, "little")
    return body + crc32(body).to_bytes(4, "little")


def size_in_footer(footer: bytes, slots_max: int) -> int:
    """Return the size of the record that ends with this footer; 0 if it cannot be a record."""
    if len(footer) != FOOTER_SIZE:
        return 0
    size, _ = _FOOTER.unpack(footer)
    is_possible = record_size(1) <= size <= record_size(slots_max) and size % SLOT_SIZE == 0
    return int(size) if is_possible else 0


def decode_commit(record: bytes) -> Commit | None:
    """Decode a record; None if it is torn, or not a record."""
    if len(record) < record_size(1):
        return None
    magic, first_slot, start, data_crc32 = _START.unpack_from(record)
    if magic != _MAGIC or crc32(record[:-4]) != _FOOTER.unpack(record[-FOOTER_SIZE:])[1]:
        return None
    ends = np.frombuffer(record, "<u4", offset=_START.size)[:-2]
    return Commit(first_slot, start, data_crc32, ends)


def is_data_of(commit: Commit, data: bytes) -> bool:
    """Return whether these are the entries of the commit."""
    return crc32(data) == commit.data_crc32
