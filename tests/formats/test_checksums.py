from random import Random
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats import checksums


def laid_out(
    payloads: list[bytes], gap: bytes = b"\0GAP\xff\1\2\3"
) -> tuple[bytearray, np.ndarray, np.ndarray]:
    starts, stops, data = [], [], bytearray()
    for payload in payloads:
        data += gap
        starts.append(len(data))
        data += payload
        stops.append(len(data))
    return data, np.array(starts, np.int64), np.array(stops, np.int64)


def stored(payloads: list[bytes]) -> np.ndarray:
    return np.array([crc32(payload) for payload in payloads], np.uint32)


lists = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30)


@given(lists)
def test_right_checksums_pass(payloads: list[bytes]) -> None:
    data, starts, stops = laid_out(payloads)
    assert checksums.mismatches(memoryview(data), starts, stops, stored(payloads)) == []


@given(lists, st.data())
def test_a_flipped_bit_is_found_where_it_is(payloads: list[bytes], draw: st.DataObject) -> None:
    data, starts, stops = laid_out(payloads)
    which = draw.draw(st.integers(0, len(payloads) - 1))
    bit = draw.draw(st.integers(int(starts[which]) * 8, int(stops[which]) * 8 - 1))
    data[bit // 8] ^= 1 << bit % 8
    assert checksums.mismatches(memoryview(data), starts, stops, stored(payloads)) == [which]


@given(lists, st.data())
def test_a_wrong_stored_checksum_is_found(payloads: list[bytes], draw: st.DataObject) -> None:
    data, starts, stops = laid_out(payloads)
    crcs = stored(payloads)
    which = draw.draw(st.integers(0, len(payloads) - 1))
    crcs[which] ^= np.uint32(1 << draw.draw(st.integers(0, 31)))
    assert checksums.mismatches(memoryview(data), starts, stops, crcs) == [which]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 8, 9, 100, 3_000_000])
def test_every_size_over_many_regions(size: int) -> None:
    random = Random(size)
    payloads = [
        random.randbytes(size) for _ in range(max(2, 3_000_000 // size) if size < 9 else 40)
    ]
    payloads = payloads[:30_000]
    data, starts, stops = laid_out(payloads)
    crcs = stored(payloads)
    assert checksums.mismatches(memoryview(data), starts, stops, crcs) == []
    data[int(stops[-1]) - 1] ^= 0x80
    found = checksums.mismatches(memoryview(data), starts, stops, crcs)
    assert found == [len(payloads) - 1]


@pytest.mark.parametrize("width", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("count", [0, 1, 9000])
def test_records_of_one_width_are_summed_as_if_alone(width: int, count: int) -> None:
    data = Random(width).randbytes(width * count)
    alone = [crc32(data[start : start + width]) for start in range(0, len(data), width)]
    assert checksums.crc32_each(memoryview(data), width).tolist() == alone
