"""Sorted string tables of the kv store: pure bytes.  The page: docs/formats/sst.md

sst := block* filter index footer             each part 8-byte aligned, each with a CRC-32C

A whole SST: encode_sst, SstWriter, decode_sst.  A part of one: decode_info (from the object's
last bytes), decode_index, decode_filter, then decode_blocks for Rows, open_block for single keys.
Damage is a CorruptError that names `where`; another version is an UnsupportedError.
"""

from holdfast.formats.sst.block import Block, Found, block_get, decode_block, open_block
from holdfast.formats.sst.blocks import Output, decode_blocks
from holdfast.formats.sst.filter import Filter, decode_filter
from holdfast.formats.sst.footer import (
    FOOTER_SIZE_MAX,
    KEY_SIZE_MAX,
    OBJECT_SIZE_MAX,
    TAIL_SIZE,
    Info,
    Kind,
    decode_info,
    footer_size,
)
from holdfast.formats.sst.index import Index, decode_index
from holdfast.formats.sst.rows import EMPTY, SCHEMA, Rows
from holdfast.formats.sst.writer import BLOCK_SIZE, SstWriter, decode_sst, encode_sst

__all__ = [
    "BLOCK_SIZE",
    "EMPTY",
    "FOOTER_SIZE_MAX",
    "KEY_SIZE_MAX",
    "OBJECT_SIZE_MAX",
    "SCHEMA",
    "TAIL_SIZE",
    "Block",
    "Filter",
    "Found",
    "Index",
    "Info",
    "Kind",
    "Output",
    "Rows",
    "SstWriter",
    "block_get",
    "decode_block",
    "decode_blocks",
    "decode_filter",
    "decode_index",
    "decode_info",
    "decode_sst",
    "encode_sst",
    "footer_size",
    "open_block",
]
