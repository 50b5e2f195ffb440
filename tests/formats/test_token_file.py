from pathlib import Path

import pytest

from holdfast.formats.flaw import Flaw
from holdfast.formats.token_file import (
    Meta,
    Read,
    decode_meta,
    encode_chunk,
    encode_meta,
    find_chunks,
    meta_of,
    padded,
)

GOLDEN = Path(__file__).parents[1] / "golden/token_file/chunks.bin"
CHUNKS = {
    b"HEAD": bytes([1, 2, 3, 4]),
    b"ODD1": b"x",
    b"VOID": b"",
    b"ODD3": b"seven b",
    b"META": b"82a0c0",
    b"DONE": b"",
}


def reading(data: bytes) -> Read:
    return lambda offset, size: data[offset : offset + size]


def test_writes_what_the_original_writes() -> None:
    assert b"".join(encode_chunk(*chunk) for chunk in CHUNKS.items()) == GOLDEN.read_bytes()
    with pytest.raises(ValueError, match="four bytes"):
        encode_chunk(b"LONGER", b"")


def test_known_chunks_are_found_and_unknown_ones_skipped() -> None:
    data = GOLDEN.read_bytes()
    found = find_chunks(reading(data), 0, b"DONE")
    assert not isinstance(found, Flaw)
    assert {c.token: data[c.start : c.start + c.size] for c in found} == CHUNKS
    assert found[-1].stop == len(data)
    assert all(chunk.start % 4 == 0 for chunk in found)
    assert [padded(size) for size in (0, 1, 3, 4, 5)] == [0, 4, 4, 4, 8]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file ends"),
        (GOLDEN.read_bytes()[:-1], "the file ends"),
        (encode_chunk(b"HUGE", b"")[:4] + b"\xff" * 4 + bytes(100), "the file ends"),
        (bytes(16), "no token"),
        (encode_chunk(b"DONE", b"x"), "DONE of 1 bytes"),
        (encode_chunk(b"LOOP", b"") * 2000, "1000 chunks"),
    ],
)
def test_reports_the_first_invalid_chunk(data: bytes, why: str) -> None:
    found = find_chunks(reading(data), 0, b"DONE")
    assert isinstance(found, Flaw)
    assert why in found.why


def test_invalid_meta_chunks_are_ignored() -> None:
    meta = Meta("2024-01-02T03:04:05.678Z", "golden-host")
    chunk = encode_meta(meta)
    found = find_chunks(reading(chunk + encode_chunk(b"DONE", b"")), 0, b"DONE")
    assert not isinstance(found, Flaw)
    assert meta_of(reading(chunk), found) == meta
    for data in (
        b"",
        b"\xc1",
        b"\x01",
        b"\x81\xa7created\x07",
        b"\x81\x80\x01",
        b"\xdf\xff\xff\xff\xff",
    ):
        assert decode_meta(data) == Meta()
