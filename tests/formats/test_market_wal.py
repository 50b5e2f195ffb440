"""The design's log: what is written is read again, and what is garbled never invents."""

import struct
import tracemalloc
from random import Random

import numpy as np
import pytest

from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw

PATH = "AAPL/1Min/OHLCV/2021.bin"


def group(tgid: int, rows: int = 3) -> bytes:
    place = fmt.encode_place(fmt.FIXED, PATH, 2021, 1440)
    data = np.arange(rows * 20, dtype=np.uint8).reshape(rows, 20)
    sets = fmt.encode_set(place, range(1, rows + 1), data.tobytes(), 20)
    return fmt.encode_group(tgid, sets, 1)


def committed(tgid: int) -> bytes:
    return (
        fmt.encode_info(tgid, fmt.WAL, fmt.PREPARING)
        + group(tgid)
        + fmt.encode_info(tgid, fmt.WAL, fmt.COMPLETE)
    )


def log(*tgids: int) -> bytes:
    return fmt.encode_status(fmt.Status(1, 1, 42)) + b"".join(map(committed, tgids))


def test_it_is_what_the_design_says() -> None:
    data = log(7)
    assert struct.unpack_from("<bbbq", data) == (2, 1, 1, 42)
    assert struct.unpack_from("<bqbb", data, 11) == (1, 7, 0, 0)
    kind, length, tgid, count = struct.unpack_from("<bqqq", data, 22)
    assert (kind, tgid, count) == (0, 7, 1)
    record_type, path_length = struct.unpack_from("<bh", data, 47)
    assert (record_type, data[50 : 50 + path_length].decode()) == (0, PATH)
    shape = struct.unpack_from("<hqiq", data, 50 + path_length)
    assert shape == (2021, 1440, 3, 20)
    assert struct.unpack_from("<qqq", data, 72 + path_length) == (1, 2, 3)
    assert 22 + 9 + length + 16 + 11 == len(data)


def test_sets_come_back() -> None:
    scan = fmt.scan(memoryview(log(1, 2)))
    assert scan.flaw is None
    found = [one for one in scan.messages if isinstance(one, fmt.Group)]
    assert [one.tgid for one in found] == [1, 2]
    sets = fmt.decode_sets(found[0])
    assert isinstance(sets, list)
    assert (sets[0].path, sets[0].index.tolist(), sets[0].rows.shape) == (PATH, [1, 2, 3], (3, 20))


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 3, 2]])
def test_many_sets_at_once_are_as_one_by_one(counts: list[int]) -> None:
    places = [fmt.encode_place(fmt.FIXED, f"S{i}/1D/X/2021.bin", 2021, 1) for i in range(3)]
    bounds = np.cumsum([0, *counts])
    index = np.arange(bounds[-1]) + 1
    rows = np.arange(bounds[-1] * 5, dtype=np.uint8).reshape(-1, 5)
    one_by_one = b"".join(
        fmt.encode_set(place, index[low:high], rows[low:high].tobytes(), 5)
        for place, low, high in zip(places, bounds, bounds[1:], strict=False)
    )
    assert fmt.encode_sets(places, bounds, index, rows) == one_by_one


def test_every_cut_leaves_the_groups_before_it() -> None:
    data = log(1, 2, 3)
    ends = [11 + (len(data) - 11) // 3 * n for n in range(4)]
    for stop in range(11, len(data)):
        scan = fmt.scan(memoryview(data[:stop]))
        whole = sum(end <= stop for end in ends[1:])
        infos = [one for one in scan.messages if isinstance(one, fmt.Info) and one.status == 2]
        assert len(infos) == whole
        assert scan.stop <= stop


def test_damage_before_valid_groups_is_found_and_skipped() -> None:
    data = bytearray(log(1, 2, 3))
    size = (len(data) - 11) // 3
    for offset in range(11 + size + 11, 11 + 2 * size - 11):
        data[offset] ^= 0x55
        scan = fmt.scan(memoryview(data))
        gaps = [one for one in scan.messages if isinstance(one, fmt.Gap)]
        tgids = [one.tgid for one in scan.messages if isinstance(one, fmt.Group)]
        assert (len(gaps), tgids, scan.flaw) == (1, [1, 3], None)
        data[offset] ^= 0x55


def test_zeros_after_the_end_are_not_messages() -> None:
    scan = fmt.scan(memoryview(log(1) + bytes(5000)))
    assert scan.stop == len(log(1))
    assert scan.flaw is not None


@pytest.mark.parametrize("length", [-5, 0, 15, 2**40, 2**62])
def test_lengths_are_checked_before_they_are_used(length: int) -> None:
    data = bytearray(log(1))
    data[23:31] = length.to_bytes(8, "little", signed=True)
    tracemalloc.start()
    scan = fmt.scan(memoryview(data))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert scan.flaw is not None
    assert not [one for one in scan.messages if isinstance(one, fmt.Group)]


@pytest.mark.parametrize(("count", "width"), [(-1, 20), (3, -1), (2**31 - 1, 2**40), (4, 20)])
def test_a_sound_checksum_does_not_make_lengths_right(count: int, width: int) -> None:
    sets = bytearray(fmt.encode_place(fmt.FIXED, PATH, 2021, 1440))
    sets += struct.pack("<iq", count, width) + bytes(3 * 28)
    message = fmt.scan(memoryview(fmt.encode_group(1, bytes(sets), 1)), 0).messages[0]
    assert isinstance(message, fmt.Group)
    assert isinstance(fmt.decode_sets(message), Flaw)


def test_garbage_is_a_flaw_and_nothing_else() -> None:
    random = Random(5)
    for _ in range(3000):
        data = bytearray(log(1, 2))
        for _ in range(random.randrange(1, 6)):
            start = random.randrange(11, len(data))
            data[start : start + random.randrange(1, 30)] = random.randbytes(random.randrange(30))
        for message in fmt.scan(memoryview(data)).messages:
            if isinstance(message, fmt.Group):
                assert message.body in (group(1)[9:-16], group(2)[9:-16])


def test_a_log_full_of_false_starts_takes_no_longer() -> None:
    false = (
        fmt.encode_info(9, 0, 0) + b"\0" + (5000).to_bytes(8, "little") + (9).to_bytes(8, "little")
    )
    data = log(1) + b"\x07" + false * 20_000
    assert fmt.scan(memoryview(data)).stop == len(log(1))


def test_columns_come_back() -> None:
    columns = (("Open", 0), ("Größe", 13))
    data = fmt.encode_columns(columns)
    assert fmt.decode_columns(data) == (columns, len(data))
    for stop in range(len(data)):
        with pytest.raises(ValueError, match=r"cut|decode"):
            fmt.decode_columns(data[:stop])
