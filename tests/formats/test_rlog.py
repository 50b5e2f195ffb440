import tarfile
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import UnsupportedError
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.formats.token_file import Meta, encode_chunk

ARCHIVE = Path(__file__).parents[1] / "golden/rlog/zmq-raft.tar.xz"
META = Meta("2024-01-02T03:04:05.678Z", "golden-host")


def head_of(data: bytes) -> rlog.Head | Flaw:
    return rlog.decode_head(lambda offset, size: data[offset : offset + size])


def test_an_empty_file_is_the_original_s() -> None:
    with tarfile.open(ARCHIVE) as archive:
        for name, capacity in (("a_empty", 16_384), ("a2_empty_cap8", 8)):
            member = archive.extractfile(f"{name}/raft/log/{rlog.path_of(1)}")
            assert member is not None
            header = rlog.Header(1, rlog.capacity_for(1, capacity))
            golden = member.read()
            assert rlog.encode_file(header, META) == golden
            assert head_of(golden) == rlog.Head(header, len(golden), META)


def test_names_are_indexes() -> None:
    assert rlog.path_of(1) == "00000/00/00/00000000000001.rlog"
    assert rlog.path_of(137_438_953_218) == "00001/ff/ff/00001fffffff02.rlog"
    for index in (1, 255, 2**20, 2**53 - 1):
        assert rlog.index_of(rlog.path_of(index)) == index
    for path in (
        "00000/00/00/00000000000001.RLOG",
        "00001/00/00/00000000000001.rlog",
        "00000/00/00/0000000000001.rlog",
        "fffff/ff/ff/ffffffffffffff.rlog",
        "../00/00/00000000000001.rlog",
    ):
        assert rlog.index_of(path) is None


def test_files_end_at_multiples() -> None:
    assert [rlog.capacity_for(index, 8) for index in (1, 7, 8, 9, 101)] == [7, 1, 8, 7, 3]


@pytest.mark.parametrize(
    ("offset", "data", "why"),
    [
        (0, b"rlog", "begins with"),
        (4, b"\xff", "a header of"),
        (12, b"\0\0\0\0", "capacity 0"),
        (12, b"\xff\xff\xff\xff", "capacity"),
        (16, bytes(8), "first index 0"),
        (16, b"\xff" * 8, "first index"),
        (24 + 28, b"\0\0\0\0", "no token"),
    ],
)
def test_an_invalid_head(offset: int, data: bytes, why: str) -> None:
    file = bytearray(rlog.encode_file(rlog.Header(1, 7), META))
    file[offset : offset + len(data)] = data
    found = head_of(bytes(file))
    assert isinstance(found, Flaw)
    assert why in found.why


def test_a_head_that_is_cut_short() -> None:
    file = rlog.encode_file(rlog.Header(1, 7), META)
    assert all(isinstance(head_of(file[:size]), Flaw) for size in range(len(file)))
    newer = file[:8] + b"\2" + file[9:]
    with pytest.raises(UnsupportedError, match="version 2"):
        head_of(newer)
    with pytest.raises(ValueError, match="capacity 0"):
        rlog.encode_file(rlog.Header(1, 0), META)


def test_unknown_chunks_are_skipped() -> None:
    file = rlog.encode_file(rlog.Header(1, 7), META)
    more = file[:-8] + encode_chunk(b"MORE", b"whatever it is") + file[-8:]
    head = head_of(more)
    assert isinstance(head, rlog.Head)
    assert (head.data_start, head.meta) == (len(more), META)


def test_slots_before_the_first_zero_count() -> None:
    def count(*slots: int) -> tuple[int, int]:
        table = np.array(slots, np.uint32)
        return rlog.count_used(table), rlog.count_ordered(table[: rlog.count_used(table)])

    assert count() == (0, 0)
    assert count(0, 0) == (0, 0)
    assert count(5, 9, 0, 12) == (2, 2)
    assert count(5, 9, 12) == (3, 3)
    assert count(5, 5) == (2, 0)
    assert count(5, 20, 12, 30) == (4, 1)  # 20 or 12: who knows
    assert count(5, 9, 4, 30) == (4, 2)  # 4 is wrong in any case
    assert rlog.dirty_run(np.array([5, 0, 7, 8, 0], np.uint32), 2) == 2
