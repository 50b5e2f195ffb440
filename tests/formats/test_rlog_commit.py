import numpy as np
from isal.isal_zlib import crc32

from holdfast.formats.rlog_commit import (
    FOOTER_SIZE,
    decode_commit,
    encode_commit,
    is_data_of,
    record_size,
    size_in_footer,
)

ENDS = np.array([21, 50, 71], np.uint32)
RECORD = encode_commit(4, 7, crc32(b"entries"), ENDS)


def test_says_which_slots_get_which_ends() -> None:
    assert len(RECORD) == record_size(3) == size_in_footer(RECORD[-FOOTER_SIZE:], 100)
    commit = decode_commit(RECORD)
    assert commit is not None
    assert (commit.first_slot, commit.start, commit.stop, commit.size) == (4, 7, 71, len(RECORD))
    assert commit.ends.tolist() == ENDS.tolist()
    assert is_data_of(commit, b"entries")
    assert not is_data_of(commit, b"entrieS")


def test_a_torn_record_is_ignored() -> None:
    for bit in range(8 * len(RECORD)):
        torn = bytearray(RECORD)
        torn[bit // 8] ^= 1 << bit % 8
        assert decode_commit(bytes(torn)) is None
    for size in range(len(RECORD)):
        assert decode_commit(RECORD[:size]) is None


def test_a_length_that_cannot_be_is_not_followed() -> None:
    for footer in (b"", bytes(8), b"\xff" * 8, (30).to_bytes(4, "little") + bytes(4)):
        assert size_in_footer(footer, 100) == 0
    assert size_in_footer(RECORD[-FOOTER_SIZE:], 2) == 0
