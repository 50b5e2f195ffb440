"""The footer of an SST: where its parts are, its writer, and what it holds.

footer := first_key last_key first_key_size:u32 last_key_size:u32         little-endian
          filter_offset:u32 filter_len:u32 block_meta_offset:u32 block_meta_len:u32
          row_count:u64 tombstone_count:u64 min_seq:u64 max_seq:u64 writer_epoch:u64
          unique_id[16] kind:u8 compression:u8 version:u16 crc32c:u32 "HOLDFSST"

The checksum covers all bytes before it.  The last 96 bytes contain the size of the footer.

    footer_size(tail)         how many bytes from the end to read; tail has at least TAIL_SIZE
    decode_info(tail, size)   the Info of an object of `size` bytes that ends with `tail`
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats.checksums import crc32c
from holdfast.formats.sst.block import CODECS, Compression

MAGIC = b"HOLDFSST"
VERSION = 1
KEY_SIZE_MAX = 1 << 16
OBJECT_SIZE_MAX = 2**32 - 1  # the text's offsets have 32 bits
_FIXED = struct.Struct("<IIIIIIQQQQQ16sBBHI8s")
_CRC_AT = _FIXED.size - 12
TAIL_SIZE = _FIXED.size
FOOTER_SIZE_MAX = TAIL_SIZE + 2 * KEY_SIZE_MAX


class Kind(IntEnum):
    """The kind of an SST.  SSTs of the WAL have no filter: they are read as a whole."""

    WAL = 1
    LEVEL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """The fields of a footer.  Without rows, keys are empty and seqs are 0."""

    kind: Kind
    writer_epoch: int
    unique_id: bytes
    compression: Compression
    first_key: bytes
    last_key: bytes
    row_count: int
    tombstone_count: int
    min_seq: int
    max_seq: int
    filter_offset: int
    filter_len: int
    block_meta_offset: int
    block_meta_len: int
    size: int

    @property
    def is_fence(self) -> bool:
        """Return whether this is a fence: an SST without rows that stops older writers."""
        return not self.row_count


def encode_footer(info: Info) -> bytes:
    """Return the footer, whose end is the end of the object."""
    fixed = _FIXED.pack(
        len(info.first_key),
        len(info.last_key),
        info.filter_offset,
        info.filter_len,
        info.block_meta_offset,
        info.block_meta_len,
        info.row_count,
        info.tombstone_count,
        info.min_seq,
        info.max_seq,
        info.writer_epoch,
        info.unique_id,
        info.kind,
        CODECS[info.compression],
        VERSION,
        0,
        MAGIC,
    )
    body = info.first_key + info.last_key + fixed[:_CRC_AT]
    return body + crc32c(body).to_bytes(4, "little") + MAGIC


def footer_size(tail: bytes | memoryview, *, where: str = "sst", size: int | None = None) -> int:
    """Return how many bytes the footer takes, from the last TAIL_SIZE bytes of an SST or more."""
    if len(tail) < TAIL_SIZE:
        raise CorruptError(where, 0, f"an SST cut to {len(tail)} bytes")
    if bytes(tail[-8:]) != MAGIC:
        raise CorruptError(
            where, (size or len(tail)) - 8, "not an SST: it does not end with the magic bytes"
        )
    first_key_size, last_key_size = struct.unpack_from("<II", tail, len(tail) - TAIL_SIZE)
    if max(first_key_size, last_key_size) > KEY_SIZE_MAX:
        raise CorruptError(where, (size or len(tail)) - TAIL_SIZE, "a key of more than 64 KiB")
    return TAIL_SIZE + int(first_key_size) + int(last_key_size)


def decode_info(tail: bytes | memoryview, size: int, *, where: str = "sst") -> Info:
    """Decode the footer at the end of `tail`, the last bytes of an object of `size` bytes."""
    length = footer_size(tail, where=where, size=size)
    start = size - length
    if start < 0:
        raise CorruptError(where, 0, f"an SST cut to {size} bytes")
    if length > len(tail):
        raise ValueError(f"the footer takes {length} bytes; got {len(tail)}")
    data = bytes(tail[len(tail) - length :])
    fields = _FIXED.unpack_from(data, length - TAIL_SIZE)
    if crc32c(data[:-12]) != fields[15]:
        raise CorruptError(where, start, "a footer with a bad checksum")
    if fields[14] != VERSION:
        raise UnsupportedError(f"{where}: SST version {fields[14]}; this release reads {VERSION}")
    return _info(data, fields, start, size, where)


def _info(data: bytes, fields: tuple[int, ...], start: int, size: int, where: str) -> Info:
    first_size, last_size, filter_offset, filter_len, meta_offset, meta_len = fields[:6]
    if filter_offset + filter_len != meta_offset or meta_offset + meta_len != start:
        raise CorruptError(where, start, "sections that do not fill the object")
    kinds, codecs = [kind.value for kind in Kind], list(CODECS.values())
    if fields[12] not in kinds or fields[13] not in codecs:
        raise CorruptError(where, start, f"kind {fields[12]}, compression {fields[13]}")
    if bool(fields[6]) != bool(filter_offset) or bool(fields[6]) != bool(first_size and last_size):
        raise CorruptError(where, start, f"{fields[6]} rows in {filter_offset} bytes of blocks")
    return Info(
        kind=Kind(fields[12]),
        writer_epoch=fields[10],
        unique_id=bytes(data[-TAIL_SIZE:][64:80]),
        compression=list(CODECS)[codecs.index(fields[13])],
        first_key=data[:first_size],
        last_key=data[first_size : first_size + last_size],
        row_count=fields[6],
        tombstone_count=fields[7],
        min_seq=fields[8],
        max_seq=fields[9],
        filter_offset=filter_offset,
        filter_len=filter_len,
        block_meta_offset=meta_offset,
        block_meta_len=meta_len,
        size=size,
    )
