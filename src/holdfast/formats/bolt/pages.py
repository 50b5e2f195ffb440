"""The layout of the pages of a bbolt file.  The page: docs/formats/bolt.md

file    := meta meta page*                                  integers are little-endian
page    := id:u64 flags:u16 count:u16 overflow:u32 body     of 1 + overflow times the page size
meta    := magic:u32 version:u32 page_size:u32 flags:u32 root:u64 sequence:u64 freelist:u64
           high_water:u64 txid:u64 fnv1a:u64                the body of pages 0 and 1
leaf    := (flags:u32 pos:u32 key_size:u32 value_size:u32)* (key value)*
branch  := (pos:u32 key_size:u32 child:u64)* key*
bucket  := root:u64 sequence:u64 page?                      the value of a leaf element of flag 1
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.formats.flaw import Flaw

Bytes = bytes | bytearray | memoryview

BRANCH, LEAF, META, FREE_LIST = 1, 2, 4, 16  # flags of a page
IS_BUCKET = 1  # flag of a leaf element
NO_FREE_LIST = 2**64 - 1  # if bbolt is configured to keep none
COUNT_IN_BODY = 0xFFFF  # a free list's count that does not fit its page header
PAGE_SIZES = [1 << bits for bits in range(9, 17)]
KEY_SIZE_MAX = 32768
VALUE_SIZE_MAX = 2**31 - 2

PAGE = struct.Struct("<QHHI")
LEAF_ELEMENT = struct.Struct("<IIII")
BRANCH_ELEMENT = struct.Struct("<IIQ")
BUCKET = struct.Struct("<QQ")
ID = struct.Struct("<Q")
HEADER_SIZE = ELEMENT_SIZE = BUCKET_SIZE = 16
META_SIZE = HEADER_SIZE + 64

_META = struct.Struct("<IIIIQQQQQ")
_MAGIC, _VERSION = 0xED0CDAED, 2


@dataclass(frozen=True, slots=True)
class Bucket:
    """Keys to values or further buckets, and the number that bbolt's NextSequence counts."""

    items: "Mapping[bytes, bytes | Bucket]"
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """The contents of a file, and what a next transaction needs to know."""

    txid: int
    page_size: int
    buckets: Mapping[bytes, Bucket]
    size: int  # of the file
    high_water: int  # the first page that was never used
    used: frozenset[int]  # pages that this transaction refers to


@dataclass(frozen=True, slots=True)
class Meta:
    page_size: int
    root: int
    free_list: int
    high_water: int
    txid: int

    @property
    def offset(self) -> int:
        """Transactions alternate between the two meta pages: the last one is never overwritten."""
        return self.txid % 2 * self.page_size


def encode_meta(meta: Meta) -> bytes:
    """The meta page as far as it is used."""
    body = _META.pack(
        *(_MAGIC, _VERSION, meta.page_size, 0, meta.root, 0),
        *(meta.free_list, meta.high_water, meta.txid),
    )
    return PAGE.pack(meta.txid % 2, META, 0, 0) + body + ID.pack(_fnv1a(body))


def decode_meta(data: Bytes, offset: int) -> Meta | Flaw:
    if offset + META_SIZE > len(data):
        return Flaw(offset, f"a file of {len(data)} bytes is too short for a meta page")
    body = bytes(data[offset + HEADER_SIZE : offset + META_SIZE])
    magic, version, page_size, _, root, _, free_list, high_water, txid = _META.unpack_from(body)
    if magic != _MAGIC:
        return Flaw(offset, f"invalid meta page: magic is {magic:#x}")
    if ID.unpack_from(body, _META.size)[0] != _fnv1a(body[: _META.size]):
        return Flaw(offset, "the meta page does not match its checksum")
    if version != _VERSION or page_size not in PAGE_SIZES:
        return Flaw(offset, f"version {version} with pages of {page_size} bytes is not supported")
    meta = Meta(page_size, root, free_list, high_water, txid)
    if meta.offset != offset:
        return Flaw(offset, f"transaction {txid} does not belong on this meta page")
    return meta


def meta_pages(data: Bytes, page_size: int) -> bytes:
    """Return both meta pages as far as they are used.  Each transaction changes them."""
    return bytes(data[:META_SIZE]) + bytes(data[page_size : page_size + META_SIZE])


def find_metas(data: Bytes) -> list[Meta] | Flaw:
    """Return the valid meta pages, newest first.  A flaw if there are none."""
    first = decode_meta(data, 0)
    sizes = PAGE_SIZES if isinstance(first, Flaw) else [first.page_size]
    second = next((m for size in sizes if isinstance(m := decode_meta(data, size), Meta)), first)
    metas = [meta for meta in {first, second} if isinstance(meta, Meta)]
    if not metas:
        return first if isinstance(first, Flaw) else Flaw(0, "no meta page")
    metas.sort(key=lambda meta: -meta.txid)
    return [meta for meta in metas if meta.page_size == metas[0].page_size]


def _fnv1a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    hash = 0xCBF29CE484222325
    for byte in data:
        hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return hash
