"""Write whole SSTs, block by block or at once; read them back at once.

encode_sst(rows, writer_epoch=..., unique_id=...) -> bytes          no rows: a fence
SstWriter(writer_epoch=..., unique_id=...)                          the same, in pieces:
    .add(rows)         in key order over all calls
    .size              what is written so far; the caller decides when it is enough
    .finish()          (memoryview, Info)
decode_sst(data) -> (Info, Rows)                                    everything verified
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from holdfast.errors import CorruptError
from holdfast.formats.sst.block import Compression
from holdfast.formats.sst.blocks import Output, append_blocks, decode_blocks
from holdfast.formats.sst.filter import (
    BITS_PER_KEY,
    Hashes,
    decode_filter,
    encode_filter,
    key_hashes,
)
from holdfast.formats.sst.footer import (
    KEY_SIZE_MAX,
    OBJECT_SIZE_MAX,
    Info,
    Kind,
    decode_info,
    encode_footer,
)
from holdfast.formats.sst.index import decode_index, encode_index
from holdfast.formats.sst.rows import EMPTY, Rows, column, integers

BLOCK_SIZE = 1 << 16
BLOCK_SIZE_MAX = VALUE_SIZE_MAX = 1 << 30
UNIQUE_ID_SIZE = 16
_ROW_OVERHEAD = 16  # two offsets and a sequence number


class SstWriter:
    """One SST in the making.  It keeps its output, four bytes a key, and less than one block."""

    def __init__(
        self,
        *,
        writer_epoch: int,
        unique_id: bytes,
        kind: Kind = Kind.LEVEL,
        compression: Compression = None,
        block_size: int = BLOCK_SIZE,
        filter_bits: int = BITS_PER_KEY,
        out: Output | None = None,
    ) -> None:
        """`out` is memory to write to; nothing else may use it."""
        if len(unique_id) != UNIQUE_ID_SIZE:
            raise ValueError(f"the unique id has {len(unique_id)} bytes; expected {UNIQUE_ID_SIZE}")
        if not 0 <= writer_epoch < 2**64 or not 0 < block_size <= BLOCK_SIZE_MAX:
            raise ValueError(f"invalid writer epoch {writer_epoch} or block size {block_size}")
        self._info = _blank(kind, writer_epoch, unique_id, compression)
        self._block_size = block_size
        self._filter_bits = filter_bits if kind is Kind.LEVEL else 0
        self._rest = EMPTY
        self._out = out or Output()
        self._out.clear()
        self._first_keys: list[bytes] = []
        self._offsets = [0]
        self._hashes: list[Hashes] = []

    @property
    def size(self) -> int:
        """Return the bytes of the blocks so far, with the rows for the next one."""
        return self._offsets[-1] + self._rest.size

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return self._info.row_count

    def add(self, rows: Rows) -> None:
        """Write these rows, whose keys all follow those that were added before."""
        if not len(rows):
            return
        self._take_note(rows)
        if self._filter_bits:
            self._hashes.append(key_hashes(rows.keys))
        held = self._rest.size + (_ROW_OVERHEAD - 8) * len(self._rest)
        cuts = _cuts(rows, self._block_size, held)
        if cuts:
            first, last = (cuts[0] if held else 0), cuts[-1]
            if held:
                self._write(Rows.concat([self._rest, rows.slice(0, first)]))
            if last > first:
                stops = [stop - first for stop in cuts if stop > first]
                self._write(rows.slice(first, last), stops)
            self._rest = EMPTY
            rows = rows.take(np.arange(last, len(rows)))  # a slice would keep all of them
        self._rest = Rows.concat([self._rest, rows]) if len(self._rest) else rows

    def finish(self) -> tuple[memoryview, Info]:
        """Finish; return the whole object and what its footer says.  Call it once, at the end."""
        if len(self._rest):
            self._write(self._rest)
            self._rest = EMPTY
        hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint32)
        bloom = encode_filter(hashes, self._filter_bits)
        index = encode_index(self._first_keys, self._offsets)
        filter_offset = self._offsets[-1]
        info = replace(
            self._info,
            filter_offset=filter_offset,
            filter_len=len(bloom),
            block_meta_offset=filter_offset + len(bloom),
            block_meta_len=len(index),
        )
        if info.block_meta_offset + len(index) > OBJECT_SIZE_MAX:
            raise ValueError(f"an SST of more than {OBJECT_SIZE_MAX} bytes")
        footer = encode_footer(info)
        for part in (bloom, index, footer):
            self._out.append(part)
        return self._out.view(), replace(info, size=self._out.size)

    def _write(self, rows: Rows, stops: Sequence[int] = ()) -> None:
        """Blocks that end at these places, or a single one."""
        stops = stops or [len(rows)]
        self._offsets += append_blocks(self._out, rows, stops, self._info.compression)
        self._first_keys += [rows.keys[start].as_py() for start in (0, *stops[:-1])]

    def _take_note(self, rows: Rows) -> None:
        """Refuse rows that the format cannot hold; update the counts for the footer."""
        info, first_key = self._info, rows.keys[0].as_py()
        _check(rows)
        if info.row_count and first_key <= info.last_key:
            raise ValueError(f"key {first_key!r} does not follow {info.last_key!r}")
        seqs = integers(rows.seqs)
        low, high = int(seqs.min()), int(seqs.max())
        self._info = replace(
            info,
            first_key=info.first_key or first_key,
            last_key=rows.keys[-1].as_py(),
            row_count=info.row_count + len(rows),
            tombstone_count=info.tombstone_count + rows.values.null_count,
            min_seq=min(info.min_seq, low) if info.row_count else low,
            max_seq=max(info.max_seq, high),
        )


def encode_sst(
    rows: Rows,
    *,
    writer_epoch: int,
    unique_id: bytes,
    kind: Kind = Kind.LEVEL,
    compression: Compression = None,
    block_size: int = BLOCK_SIZE,
    filter_bits: int = BITS_PER_KEY,
) -> bytes:
    """Encode an SST of rows, sorted by key with no key twice.  Without rows it is a fence."""
    writer = SstWriter(
        writer_epoch=writer_epoch,
        unique_id=unique_id,
        kind=kind,
        compression=compression,
        block_size=block_size,
        filter_bits=filter_bits,
        out=Output(rows.size + rows.size // 4 + 4096),
    )
    writer.add(rows)
    return bytes(writer.finish()[0])


def decode_sst(data: bytes | memoryview, *, where: str = "sst") -> tuple[Info, Rows]:
    """Decode footer and rows of a whole object, less than 2 GiB; verify every checksum."""
    info = decode_info(data, len(data), where=where)
    view = memoryview(data)
    meta, stop = info.block_meta_offset, info.block_meta_offset + info.block_meta_len
    decode_filter(view[info.filter_offset : meta], where=where, offset=info.filter_offset)
    index = decode_index(view[meta:stop], where=where, offset=meta)
    if (
        index.offsets[-1] != info.filter_offset
        or index.first_keys[:1] != [info.first_key][: len(index)]
    ):
        raise CorruptError(where, meta, "an index of other blocks")
    blocks = [view[a:b] for a, b in map(index.span, range(len(index)))]
    rows = decode_blocks(blocks, index.offsets[:-1], where=where)
    if len(rows) != info.row_count:
        raise CorruptError(where, 0, f"{len(rows)} rows, not {info.row_count}")
    return info, rows


def _blank(kind: Kind, writer_epoch: int, unique_id: bytes, compression: Compression) -> Info:
    return Info(
        kind=kind,
        writer_epoch=writer_epoch,
        unique_id=unique_id,
        compression=compression,
        first_key=b"",
        last_key=b"",
        row_count=0,
        tombstone_count=0,
        min_seq=0,
        max_seq=0,
        filter_offset=0,
        filter_len=0,
        block_meta_offset=0,
        block_meta_len=0,
        size=0,
    )


def _check(rows: Rows) -> None:
    lengths = np.diff(column(rows.keys)[0])
    if rows.keys.null_count or rows.seqs.null_count:
        raise ValueError("a row has no key or no seq")
    if lengths.min() < 1 or lengths.max() > KEY_SIZE_MAX:
        raise ValueError(f"keys must have 1 to {KEY_SIZE_MAX} bytes")
    if np.diff(column(rows.values)[0]).max() > VALUE_SIZE_MAX:
        raise ValueError(f"values must have at most {VALUE_SIZE_MAX} bytes")
    if not rows.is_sorted():
        raise ValueError("keys do not rise")


def _cuts(rows: Rows, block_size: int, held: int) -> list[int]:
    """Where full blocks end, `held` bytes being in the first already; then less than a block."""
    key_ends, value_ends = column(rows.keys)[0], column(rows.values)[0]
    sizes = key_ends.astype(np.int64) + value_ends
    sizes += _ROW_OVERHEAD * np.arange(len(sizes))
    cuts, start, begun = [], 0, sizes[0] - held
    while sizes[-1] - begun >= block_size:
        fitting = int(np.searchsorted(sizes, begun + block_size, "right")) - 1
        start = fitting if held else max(fitting, start + 1)
        cuts.append(start)
        begun, held = sizes[start], 0
    return cuts
