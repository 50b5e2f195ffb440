"""The record of a commit under way, behind the last byte of an index file that is being written.

record := "hfcr" first_slot:u32 start:u32 data_crc32:u32 end:u32* size:u32 crc32:u32

It says which slots are about to get which ends, so that a write of slots that a crash has torn can
be done again.  It is synced with the entries themselves, before any slot is written.  It is not a
part of the format: whoever reads by the slots never sees it, and a log that was closed has none.
It lies at the very end of the file, and is found from there.  `data_crc32` is that of the entries;
if those are others by now, someone else has written since, and the record means nothing.
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
    start: int  # where the first of them begins, counted as ends are
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


def encode_commit(first_slot: int, start: int, data: bytes, ends: Slots) -> bytes:
    body = _START.pack(_MAGIC, first_slot, start, crc32(data)) + ends.astype("<u4").tobytes()
    body += (len(body) + FOOTER_SIZE).to_bytes(4, "little")
    return body + crc32(body).to_bytes(4, "little")


def size_in_footer(footer: bytes, slots_max: int) -> int:
    """How long the record before this end of a file says it is; 0 if there can be none."""
    if len(footer) != FOOTER_SIZE:
        return 0
    size, _ = _FOOTER.unpack(footer)
    is_possible = record_size(1) <= size <= record_size(slots_max) and size % SLOT_SIZE == 0
    return int(size) if is_possible else 0


def decode_commit(record: bytes) -> Commit | None:
    """The commit, or None: torn, or something else altogether."""
    if len(record) < record_size(1):
        return None
    magic, first_slot, start, data_crc32 = _START.unpack_from(record)
    if magic != _MAGIC or crc32(record[:-4]) != _FOOTER.unpack(record[-FOOTER_SIZE:])[1]:
        return None
    ends = np.frombuffer(record, "<u4", offset=_START.size)[:-2]
    return Commit(first_slot, start, data_crc32, ends)


def is_data_of(commit: Commit, data: bytes) -> bool:
    """Are these still the entries that the commit was of?"""
    return crc32(data) == commit.data_crc32
