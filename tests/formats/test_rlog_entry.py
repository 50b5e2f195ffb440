from random import Random

import numpy as np
import pytest

from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_entry import (
    CHECKPOINT,
    CHECKPOINT_DATA,
    CONFIG,
    FileEntry,
    bad_entries,
    decode_entry,
    decode_headers,
    encode_entries,
)


def test_the_layout() -> None:
    entry = FileEntry(0x0102030405, b"data", CONFIG, b"request id12")
    encoded = b"request id12" + b"\1" + b"\5\4\3\2\1\0\0" + b"data"
    assert encode_entries([entry])[0] == encoded
    assert decode_entry(encoded) == entry
    checkpoint = encode_entries([FileEntry(3, CHECKPOINT_DATA, CHECKPOINT)])[0]
    assert checkpoint == bytes(12) + b"\2\3" + bytes(6) + b"\xc0"


def test_many_are_taken_apart_at_once() -> None:
    random = Random(1)
    entries = [
        FileEntry(random.choice((1, 255, 2**53 - 1)), random.randbytes(random.choice((0, 1, 90))),
                  random.randrange(3), random.randbytes(12))
        for _ in range(200)
    ]  # fmt: skip
    data, ends = encode_entries(entries)
    starts = np.concatenate([[0], ends[:-1]])
    headers = decode_headers(memoryview(data), starts)
    assert headers.terms.tolist() == [entry.term for entry in entries]
    assert headers.types.tolist() == [entry.type for entry in entries]
    assert [bytes(row) for row in headers.request_ids] == [entry.request_id for entry in entries]
    assert not bad_entries(memoryview(data), np.array([0, *ends])).any()
    for entry, begin, end in zip(entries, starts, ends, strict=True):
        assert decode_entry(data[begin:end]) == entry
    assert len(decode_headers(memoryview(b""), np.zeros(0, np.int64)).terms) == 0


def test_bytes_that_are_not_an_entry() -> None:
    for data in (b"", bytes(19), bytes(20), b"r" * 12 + b"\3" + bytes(7)):
        assert isinstance(decode_entry(data), Flaw)
    rows = bytes(20) + b"r" * 12 + b"\3\1" + bytes(6) + b"r" * 12 + b"\0" + b"\xff" * 7
    assert bad_entries(memoryview(rows), np.array([0, 20, 40, 60])).all()
    assert bad_entries(memoryview(rows), np.array([0, 19, 40])).all()


def test_what_cannot_be_written_is_refused() -> None:
    for entry in (
        FileEntry(-1),
        FileEntry(2**53),
        FileEntry(1, b"", 3),
        FileEntry(1, b"", 0, b"short"),
    ):
        with pytest.raises(ValueError, match=r"term|type|request"):
            encode_entries([entry])
