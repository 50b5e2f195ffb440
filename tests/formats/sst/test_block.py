from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.formats.checksums import crc32c
from holdfast.formats.sst import Rows, block, block_get, blocks, decode_block, open_block
from holdfast.formats.sst.block import Compression
from holdfast.formats.sst.blocks import encode_block

tables = st.dictionaries(
    st.binary(min_size=1, max_size=20), st.none() | st.binary(max_size=40), min_size=1
)
COMPRESSIONS: list[Compression] = [None, "zstd"]
SOUND = encode_block(Rows.from_pairs([(b"ant", b"12345678", 5), (b"bee", None, 6)]))


def rows_of(table: dict[bytes, bytes | None]) -> Rows:
    return Rows.from_pairs([(key, table[key], i) for i, key in enumerate(sorted(table))])


def resealed(data: bytes) -> bytes:
    """With the checksum of what it says: a forger's block."""
    return crc32c(data[4:]).to_bytes(4, "little") + data[4:]


@given(tables, st.sampled_from(COMPRESSIONS), st.integers(0, 3))
def test_blocks_are_read_as_written(
    table: dict[bytes, bytes | None], compression: Compression, skipped: int
) -> None:
    rows = rows_of(table)
    rows = rows.slice(min(skipped, len(rows) - 1), len(rows))  # offsets that begin elsewhere
    data = encode_block(rows, compression)
    found = decode_block(data)
    for column in (found.keys, found.values, found.seqs):
        column.validate(full=True)
    assert found == rows
    assert len(data) % 8 == 0
    opened = open_block(memoryview(data))
    there = {key: (value, seq) for key, value, seq in rows.to_pairs()}
    asked = [*table, b"", b"\xff" * 21, *(key + b"\0" for key in table)]
    assert [opened.get(key) for key in asked] == [there.get(key) for key in asked]
    size = opened.size
    opened.list_keys()
    assert [opened.get(key) for key in asked] == [there.get(key) for key in asked]
    assert opened.is_listed
    assert opened.size > size


def test_plain_blocks_become_arrays_without_a_copy() -> None:
    rows = decode_block(SOUND)
    start = pa.py_buffer(SOUND).address
    for column in (rows.keys, rows.values, rows.seqs):
        for buffer in filter(None, column.buffers()):
            assert start <= buffer.address < start + len(SOUND)
            assert (buffer.address - start) % 8 == 0


def test_single_keys_are_found() -> None:
    assert block_get(SOUND, b"ant") == (b"12345678", 5)
    assert block_get(SOUND, b"bee") == (None, 6)
    assert block_get(SOUND, b"cat") is None
    assert len(open_block(SOUND)) == 2
    assert open_block(SOUND).size >= len(SOUND) - 24


def test_nothing_is_kept_under_a_tombstone() -> None:
    valid, ends = pa.py_buffer(b"\1"), pa.py_buffer(np.array([0, 2, 8], np.int32))
    leaky = pa.Array.from_buffers(pa.binary(), 2, [valid, ends, pa.py_buffer(b"okSECRET")])
    data = encode_block(Rows(pa.array([b"a", b"b"]), leaky, pa.array([1, 2], pa.uint64())))
    assert decode_block(data).values.to_pylist() == [b"ok", None]
    assert b"SECRET" not in data


def test_what_does_not_shrink_is_not_packed() -> None:
    random = np.random.default_rng(1).bytes(5000)
    rows = Rows.from_pairs([(random[:50], random, 1)])
    assert encode_block(rows, "zstd") == encode_block(rows)


def test_what_is_too_large_to_unpack_unseen_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows.from_pairs([(b"k", bytes(5000), 1)])
    packed = encode_block(rows, "zstd")
    assert len(packed) < 200
    monkeypatch.setattr(block, "UNPACKED_SIZE_MAX", 4999)
    monkeypatch.setattr(blocks, "UNPACKED_SIZE_MAX", 4999)
    assert encode_block(rows, "zstd") == encode_block(rows)
    with pytest.raises(CorruptError, match="codec 1"):
        decode_block(packed)


FORGERIES: dict[str, tuple[Callable[[bytearray], object], str]] = {
    "no rows": (lambda b: b.__setitem__(slice(8, 12), bytes(4)), "for 0 rows"),
    "4 G rows": (lambda b: b.__setitem__(slice(8, 12), b"\xff" * 4), "for 4294967295 rows"),
    "4 GiB of keys": (lambda b: b.__setitem__(slice(12, 16), b"\xff" * 4), "bytes for 2 rows"),
    "one row more": (lambda b: b.__setitem__(8, 30), "codec 0 with"),
    "longer body": (lambda b: b.__setitem__(20, b[20] + 8), "bytes for 2 rows"),
    "unknown codec": (lambda b: b.__setitem__(4, 9), "codec 9"),
    "zstd that is none": (lambda b: b.__setitem__(4, 1), "ZSTD"),
    "keys backwards": (lambda b: b.__setitem__(28, 99), "offsets"),
    "keys outside": (lambda b: b.__setitem__(32, 99), "offsets"),
    "keys negative": (lambda b: b.__setitem__(slice(28, 32), b"\xff" * 4), "offsets"),
    "values outside": (lambda b: b.__setitem__(48, 99), "offsets"),
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("reader", [decode_block, open_block])
def test_forged_sizes_are_refused(name: str, reader: Callable[..., object]) -> None:
    forge, why = FORGERIES[name]
    data = bytearray(SOUND)
    forge(data)
    with pytest.raises(CorruptError, match=why) as raised:
        reader(resealed(bytes(data)), where="levels/7.sst", offset=4096)
    assert (raised.value.where, raised.value.offset) == ("levels/7.sst", 4096)


@pytest.mark.parametrize("size", [0, 3, 23, 24, len(SOUND) - 1])
def test_a_cut_block_is_refused(size: int) -> None:
    with pytest.raises(CorruptError):
        decode_block(SOUND[:size])


def test_a_block_of_two_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BODY_SIZE_MAX", 64)
    with pytest.raises(ValueError, match="at most 64"):
        encode_block(Rows.from_pairs([(b"k", b"v" * 64, 1)]))
