from dataclasses import replace

import pytest

from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats.checksums import crc32c
from holdfast.formats.sst import TAIL_SIZE, Info, Kind, decode_info, footer_size
from holdfast.formats.sst.footer import encode_footer

INFO = Info(
    kind=Kind.LEVEL,
    writer_epoch=2**64 - 1,
    unique_id=bytes(range(16)),
    compression="zstd",
    first_key=b"ant",
    last_key=b"zebra",
    row_count=9,
    tombstone_count=2,
    min_seq=5,
    max_seq=2**63,
    filter_offset=800,
    filter_len=24,
    block_meta_offset=824,
    block_meta_len=40,
    size=864 + TAIL_SIZE + 8,
)
FOOTER = encode_footer(INFO)


def resealed(footer: bytes) -> bytes:
    return footer[:-12] + crc32c(footer[:-12]).to_bytes(4, "little") + footer[-8:]


def test_a_footer_is_read_as_written() -> None:
    assert decode_info(FOOTER, INFO.size) == INFO
    assert decode_info(b"what comes before" + FOOTER, INFO.size) == INFO
    assert footer_size(FOOTER[-TAIL_SIZE:]) == len(FOOTER) == TAIL_SIZE + 8
    assert not INFO.is_fence


def test_a_tail_without_the_keys_gives_the_size_to_read() -> None:
    with pytest.raises(ValueError, match=f"takes {len(FOOTER)} bytes; got {TAIL_SIZE}"):
        decode_info(FOOTER[-TAIL_SIZE:], INFO.size)


def test_another_version_is_refused_by_name() -> None:
    newer = FOOTER[:-14] + b"\2\0" + FOOTER[-12:]
    with pytest.raises(UnsupportedError, match="x: SST version 2; this release reads 1"):
        decode_info(resealed(newer), INFO.size, where="x")
    with pytest.raises(CorruptError, match="checksum"):
        decode_info(newer, INFO.size)


@pytest.mark.parametrize(
    ("info", "size", "why"),
    [
        (replace(INFO, filter_len=25), INFO.size, "do not fill"),
        (INFO, INFO.size + 8, "do not fill"),
        (INFO, 100, "cut to 100"),
        (replace(INFO, row_count=0), INFO.size, "0 rows in 800 bytes"),
        (replace(INFO, first_key=b"", last_key=b""), INFO.size - 8, "9 rows in 800 bytes"),
    ],
)
def test_parts_that_do_not_fit_are_refused(info: Info, size: int, why: str) -> None:
    with pytest.raises(CorruptError, match=why):
        decode_info(encode_footer(info), size)


@pytest.mark.parametrize("place", [-16, -15])  # kind, compression
def test_unknown_kinds_are_refused(place: int) -> None:
    data = bytearray(FOOTER)
    data[place] = 77
    with pytest.raises(CorruptError, match="77"):
        decode_info(resealed(bytes(data)), INFO.size)


def test_a_key_of_4_gib_is_refused_before_it_is_looked_for() -> None:
    data = FOOTER[:8] + b"\xff\xff\xff\xff" + FOOTER[12:]
    with pytest.raises(CorruptError, match="more than 64 KiB"):
        decode_info(resealed(data), 2**33)


def test_a_file_that_is_not_an_sst_raises() -> None:
    for data, why in ((b"", "cut to 0"), (b"GARBAGE" * 20, "magic")):
        with pytest.raises(CorruptError, match=why):
            decode_info(data, len(data))
