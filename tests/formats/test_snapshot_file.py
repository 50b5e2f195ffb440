from pathlib import Path

import pytest

from holdfast.errors import UnsupportedError
from holdfast.formats import snapshot_file as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.token_file import Meta, encode_chunk

GOLDEN = (Path(__file__).parents[1] / "golden/snapshot_file/snap").read_bytes()
META = Meta("2024-01-02T03:04:05.678Z", "golden-host")


def head_of(data: bytes, size: int | None = None) -> fmt.Head | Flaw:
    size = len(data) if size is None else size
    return fmt.decode_head(lambda offset, count: data[offset : offset + count], size)


def test_reads_and_writes_the_original_s() -> None:
    assert head_of(GOLDEN) == fmt.Head(20, 2, 1000, 108, META)
    head = fmt.encode_head(20, 2, 0, META)
    size = fmt.encode_data_size(1000)
    patched = head[: fmt.DATA_SIZE_OFFSET] + size + head[fmt.DATA_SIZE_OFFSET + len(size) :]
    assert patched == fmt.encode_head(20, 2, 1000, META) == GOLDEN[:108]


def test_the_size_must_be_right() -> None:
    for size in (len(GOLDEN) - 1, len(GOLDEN) + 1):
        found = head_of(GOLDEN, size)
        assert isinstance(found, Flaw)
        assert "bytes of data, not 1000" in found.why


@pytest.mark.parametrize(
    ("offset", "data", "why"),
    [
        (0, b"snap", "begins with"),
        (4, b"\x24", "a header of 36 bytes"),
        (12, b"\xff" * 8, "a snapshot of entry"),
        (20, bytes(8), "a snapshot of entry 20, term 0"),
        (36, bytes(4), "no token"),
        (28, b"\xff" * 8, "bytes of data"),
    ],
)
def test_an_invalid_head(offset: int, data: bytes, why: str) -> None:
    found = head_of(GOLDEN[:offset] + data + GOLDEN[offset + len(data) :])
    assert isinstance(found, Flaw)
    assert why in found.why


def test_a_head_that_is_cut_short_or_newer() -> None:
    assert all(isinstance(head_of(GOLDEN[:size]), Flaw) for size in range(108))
    with pytest.raises(UnsupportedError, match="version 2"):
        head_of(GOLDEN[:8] + b"\2" + GOLDEN[9:])
    with pytest.raises(ValueError, match="a snapshot of entry -1"):
        fmt.encode_head(-1, 0, 0, META)


def test_unknown_chunks_are_passed_over() -> None:
    at = GOLDEN.index(b"DATA")
    more = GOLDEN[:at] + encode_chunk(b"MORE", b"what") + GOLDEN[at:]
    assert head_of(more) == fmt.Head(20, 2, 1000, 108 + 12, META)
