"""The mark of a log: how far it was once complete.  The page: docs/formats/mark.md

file := slot[4096] slot[4096]                                  integers are little-endian
slot := fixed moving crc32:u32 zero*

`fixed` changes when files come or go, `moving` with every commit.  A slot is valid if its checksum
is.  Of two valid slots the one with the higher counter counts.
"""

import struct
from dataclasses import dataclass

from isal.isal_zlib import crc32

from holdfast.errors import UnsupportedError
from holdfast.formats.flaw import Flaw

MAGIC, VERSION = b"holdmark", 1
SLOT_SIZE = 4096
FILE_SIZE = 2 * SLOT_SIZE
NAME_SIZE_MAX = 64
WORD_SIZE = 24
FORMATS = ("", "shanghai", "raft-wal", "file-log")  # the number of each is its place

_FIXED = struct.Struct("<8sHBxII4xQQ16s64s16s64sQ")
_MOVING = struct.Struct("<QQQI4x24s")
_CRC = struct.Struct("<I")
MOVING_OFFSET = _FIXED.size
CRC_OFFSET = _FIXED.size + _MOVING.size
ENCODED_SIZE = CRC_OFFSET + _CRC.size


@dataclass(frozen=True, slots=True)
class MarkedFile:
    """A file of the log: its name, and what distinguishes it from another file of that name."""

    name: str = ""
    id: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class Mark:
    """Entries first_index..last_index were durable, in these files.

    `last_index` is first_index - 1 if there were none.  A mark without files promises nothing.
    """

    format: str
    first_index: int = 1
    files: int = 0  # how many, from the first to the last
    list_crc: int = 0  # of their names and ids, in order: see extend_list
    first: MarkedFile = MarkedFile()
    last: MarkedFile = MarkedFile()
    base_index: int = 1  # of the last file: the index of its first entry
    size: int = 0  # of the last file: its first bytes, which were complete
    last_index: int = 0
    tail_crc: int = 0  # of the last batch or entry: the format says which checksum
    word: bytes = bytes(WORD_SIZE)  # shows whether another program has written since
    lowered: int = 0  # how often the mark was lowered, because entries were removed
    counter: int = 0  # how often a slot was written


def extend_list(list_crc: int, file: MarkedFile) -> int:
    """Return the checksum of a list of files and one more."""
    return int(crc32(b"%s\0%s" % (file.name.encode(), file.id), list_crc))


def encode(mark: Mark) -> bytearray:
    """Encode a slot, without the zeros after it.  ValueError if a name is too long."""
    names = [file.name.encode() for file in (mark.first, mark.last)]
    if too_long := [name for name in names if len(name) > NAME_SIZE_MAX]:
        raise ValueError(f"the name {too_long[0]!r} is longer than {NAME_SIZE_MAX} bytes")
    slot = bytearray(ENCODED_SIZE)
    _FIXED.pack_into(
        slot,
        0,
        MAGIC,
        VERSION,
        FORMATS.index(mark.format),
        mark.files,
        mark.list_crc,
        mark.lowered,
        mark.first_index,
        mark.first.id,
        names[0],
        mark.last.id,
        names[1],
        mark.base_index,
    )
    move(slot, mark.counter, mark.size, mark.last_index, mark.tail_crc, mark.word)
    return slot


def move(
    slot: bytearray, counter: int, size: int, last_index: int, tail_crc: int, word: bytes
) -> None:
    """Change what changes with every commit.  Few calls: this is the hot path."""
    _MOVING.pack_into(slot, MOVING_OFFSET, counter, size, last_index, tail_crc, word)
    _CRC.pack_into(slot, CRC_OFFSET, crc32(memoryview(slot)[:CRC_OFFSET]))


def decode(slot: bytes) -> Mark | Flaw:
    """Decode a slot.  UnsupportedError for a version that is not ours, if the slot is valid."""
    if len(slot) < ENCODED_SIZE:
        return Flaw(len(slot), f"a slot of {ENCODED_SIZE} bytes is cut to {len(slot)}")
    if crc32(slot[:CRC_OFFSET]) != _CRC.unpack_from(slot, CRC_OFFSET)[0]:
        return Flaw(0, "checksum mismatch")
    magic, version, format, files, list_crc, lowered, first_index, *rest = _FIXED.unpack_from(slot)
    if magic != MAGIC:
        return Flaw(0, f"no mark: magic is {magic!r}")
    if version != VERSION:
        raise UnsupportedError(f"mark of version {version}; this release reads version {VERSION}")
    first_id, first_name, last_id, last_name, base_index = rest
    counter, size, last_index, tail_crc, word = _MOVING.unpack_from(slot, MOVING_OFFSET)
    try:
        first, last = first_name.rstrip(b"\0").decode(), last_name.rstrip(b"\0").decode()
        name = FORMATS[format]
    except (UnicodeDecodeError, IndexError) as error:
        return Flaw(0, f"cannot parse the mark: {error}")
    return Mark(
        format=name,
        first_index=first_index,
        files=files,
        list_crc=list_crc,
        first=MarkedFile(first, first_id),
        last=MarkedFile(last, last_id),
        base_index=base_index,
        size=size,
        last_index=last_index,
        tail_crc=tail_crc,
        word=word,
        lowered=lowered,
        counter=counter,
    )


def decode_file(data: bytes) -> Mark | Flaw:
    """Return the newest valid slot of a file, or what is wrong with the first slot."""
    slots = [decode(data[at : at + ENCODED_SIZE]) for at in (0, SLOT_SIZE)]
    valid = [slot for slot in slots if isinstance(slot, Mark)]
    if valid:
        return max(valid, key=lambda mark: mark.counter)
    flaw = slots[0]
    assert isinstance(flaw, Flaw)
    return Flaw(flaw.offset, f"{flaw.why}; the other slot is not valid either")


def encode_file(mark: Mark) -> bytes:
    """Encode a whole new file: both slots hold the same."""
    slot = bytes(encode(mark)).ljust(SLOT_SIZE, b"\0")
    return slot + slot
