from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.formats import state_file as fmt

GOLDEN = (Path(__file__).parents[1] / "golden/state_file/raft.pers").read_bytes()


def test_reads_and_writes_the_original_s() -> None:
    found = fmt.decode_records(GOLDEN)
    assert (found.flaw, found.stop, len(found.records)) == (None, len(GOLDEN), 20)
    assert found.records[0] == {"currentTerm": 1, "votedFor": "id1"}
    assert {"currentTerm": 2**53 - 1} in found.records
    assert b"".join(map(fmt.encode_record, found.records)) == GOLDEN


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (2**31 - 1, "ce7fffffff"),
        (2**31, "cb41e0000000000000"),
        (-(2**31), "d280000000"),
        (-(2**31) - 1, "cbc1e0000000200000"),
        (3.0, "03"),
        (0.5, "cb3fe0000000000000"),
        (True, "c3"),
        (None, "c0"),
        ([2**40], "91cb4270000000000000"),
        ({"a": 2**40}, "81a161cb4270000000000000"),
        ("ż", "a2c5bc"),
    ],
)
def test_numbers_are_javascript_s(value: Any, encoded: str) -> None:
    record = fmt.encode_record({"k": value})
    assert record == b"\x81\xa1k" + bytes.fromhex(encoded)
    assert fmt.decode_records(record).records == ({"k": value},)


def test_numbers_that_javascript_cannot_count_to_are_refused() -> None:
    with pytest.raises(ValueError, match="can count to"):
        fmt.encode_record({"k": 2**53})


def test_a_record_that_is_cut_short_is_torn() -> None:
    ends = {0}
    for record in fmt.decode_records(GOLDEN).records:
        ends.add(max(ends) + len(fmt.encode_record(record)))
    for size in range(len(GOLDEN)):
        found = fmt.decode_records(GOLDEN[:size])
        assert found.stop == max(end for end in ends if end <= size)
        assert (found.flaw is None) == (size in ends)
        assert found.is_torn == (size not in ends)


def test_zeros_are_unwritten_space_and_others_are_not_records() -> None:
    blank = fmt.decode_records(GOLDEN + bytes(16))
    assert (blank.stop, blank.is_torn) == (len(GOLDEN), True)
    for junk in (b"\xc1", b"\x05", b"\xc0\x80", b"\x90", b"\x81\x01\x02", b"\x81\x80\x02", b"\0\1"):
        found = fmt.decode_records(GOLDEN + junk)
        assert (found.stop, found.is_torn) == (len(GOLDEN), False)
        assert found.flaw is not None


def test_garbage_is_never_an_error_and_takes_no_memory() -> None:
    random = Random(5)
    for _ in range(3000):
        data = bytearray(GOLDEN[: random.randrange(60)] + random.randbytes(random.randrange(30)))
        found = fmt.decode_records(bytes(data))
        assert 0 <= found.stop <= len(data)
    assert fmt.decode_records(b"\xdf\xff\xff\xff\xff").flaw is not None
    assert fmt.decode_records(b"\x91" * 5000).flaw is not None


def test_a_redo_is_whole_or_none() -> None:
    redo = fmt.Redo(1213, 77, fmt.encode_record({"currentTerm": 3}))
    data = fmt.encode_redo(redo)
    assert fmt.decode_redo(data) == fmt.decode_redo(data + b"older and longer") == redo
    for bit in range(8 * len(data)):
        torn = bytearray(data)
        torn[bit // 8] ^= 1 << bit % 8
        assert fmt.decode_redo(bytes(torn)) is None
    assert fmt.decode_redo(data[:-1]) is None
    old = fmt.Redo(1213, 77, redo.record, binds=False)
    assert fmt.decode_redo(fmt.encode_redo(old)) == old


def test_keys_give_a_lower_bound_of_the_records() -> None:
    record = fmt.encode_record({"currentTerm": 1, "votedFor": "votedFor"})
    keys = ("currentTerm", "votedFor")
    assert fmt.counts_keys(b"", keys) == 0
    assert fmt.counts_keys(fmt.encode_record({"currentTerm": 1}), keys) == 1
    assert fmt.counts_keys(record * 2, keys) >= 2
