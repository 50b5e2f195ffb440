"""The bytes of marks."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import UnsupportedError
from holdfast.formats import mark as fmt
from holdfast.formats.flaw import Flaw

MARK = fmt.Mark(
    "raft-wal",
    first_index=7,
    files=3,
    list_crc=0xDEADBEEF,
    first=fmt.MarkedFile("one.wal", b"1" * 16),
    last=fmt.MarkedFile("x" * 64, b"3" * 16),
    base_index=2**40,
    size=2**33,
    last_index=2**63,
    tail_crc=2**32 - 1,
    word=bytes(range(24)),
    lowered=2,
    counter=2**50,
)


def test_a_file_is_rebuilt_to_the_byte() -> None:
    golden = (Path(__file__).parents[1] / "golden/mark/holdfast.mark").read_bytes()
    assert fmt.encode_file(MARK) == golden
    assert fmt.decode_file(golden) == MARK


def test_a_slot_reads_back() -> None:
    slot = bytes(fmt.encode(MARK))
    assert len(slot) == fmt.ENCODED_SIZE < 512  # one sector
    assert fmt.decode(slot) == MARK


def test_moving_a_slot_is_the_same_as_encoding_it_anew() -> None:
    slot = fmt.encode(MARK)
    fmt.move(slot, 5, 6, 7, 8, b"w" * 24)
    moved = replace(MARK, counter=5, size=6, last_index=7, tail_crc=8, word=b"w" * 24)
    assert slot == fmt.encode(moved)


def test_no_flipped_bit_goes_unnoticed() -> None:
    slot = bytes(fmt.encode(MARK))
    for bit in range(8 * len(slot)):
        flipped = bytearray(slot)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(fmt.decode(bytes(flipped)), Flaw)


def test_a_slot_that_was_cut_is_a_flaw() -> None:
    slot = bytes(fmt.encode(MARK))
    for size in range(len(slot)):
        assert isinstance(fmt.decode(slot[:size]), Flaw)


def test_the_newer_slot_counts_and_one_valid_slot_is_enough() -> None:
    newer = replace(MARK, counter=MARK.counter + 1, size=1)
    pair = [bytes(fmt.encode(one)).ljust(fmt.SLOT_SIZE, b"\0") for one in (MARK, newer)]
    none = bytes(fmt.SLOT_SIZE)
    assert fmt.decode_file(pair[0] + pair[1]) == newer
    assert fmt.decode_file(pair[1] + pair[0]) == newer
    assert fmt.decode_file(pair[0] + none) == MARK
    assert fmt.decode_file(none + pair[0]) == MARK
    assert isinstance(fmt.decode_file(none + none), Flaw)
    assert isinstance(fmt.decode_file(b""), Flaw)


def test_another_version_is_refused() -> None:
    slot = fmt.encode(MARK)
    slot[8] = 2
    fmt.move(slot, 1, 2, 3, 4, b"")
    with pytest.raises(UnsupportedError, match="version 2"):
        fmt.decode(bytes(slot))


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 64"):
        fmt.encode(replace(MARK, first=fmt.MarkedFile("x" * 65)))


def test_the_checksum_of_a_list_depends_on_order_names_and_ids() -> None:
    files = [fmt.MarkedFile(name, id * 16) for name in "ab" for id in (b"1", b"2")]
    sums = set()
    for one in files:
        for two in files:
            sums.add(fmt.extend_list(fmt.extend_list(0, one), two))
    assert len(sums) == 16
