from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.formats.sst import decode_filter
from holdfast.formats.sst.filter import BITS_PER_KEY, encode_filter, key_hashes

RANDOM = Random(5)
KEY_SETS = {
    "random": [[RANDOM.randbytes(16) for _ in range(20_000)] for _ in range(2)],
    "numbers": [[b"key-%012d" % (2 * i + odd) for i in range(20_000)] for odd in (0, 1)],
    "two parts": [
        [b"user%06d/item%06d" % (i % 300, i // 300 + more) for i in range(20_000)]
        for more in (0, 70)
    ],
}


def filter_of(keys: list[bytes], bits: int = BITS_PER_KEY) -> bytes:
    return encode_filter(key_hashes(pa.array(keys, pa.binary())), bits)


@given(st.lists(st.binary(min_size=1, max_size=70), min_size=1), st.integers(1, 20))
def test_a_filter_admits_every_key_that_it_has(keys: list[bytes], bits: int) -> None:
    found = decode_filter(filter_of(keys, bits))
    assert all(map(found.may_contain, keys))


@pytest.mark.parametrize("name", KEY_SETS)
def test_a_filter_rejects_most_other_keys(name: str) -> None:
    present, absent = KEY_SETS[name]
    data = filter_of(present)
    assert len(data) * 8 / len(present) == pytest.approx(BITS_PER_KEY, rel=0.01)
    assert sum(map(decode_filter(data).may_contain, absent)) / len(absent) < 0.012


def test_a_missing_filter_admits_every_key() -> None:
    assert filter_of([]) == filter_of([b"key"], 0) == b""
    assert decode_filter(b"").may_contain(b"anything")


@pytest.mark.parametrize("size", [1, 7, 8, 15])
def test_a_cut_filter_is_refused(size: int) -> None:
    with pytest.raises(CorruptError, match="cut to"):
        decode_filter(filter_of([b"a", b"b"])[:size])


def test_every_flipped_bit_is_seen() -> None:
    data = np.frombuffer(filter_of([b"a", b"b", b"c"]), np.uint8)
    for bit in range(8 * len(data)):
        rotten = data.copy()
        rotten[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError, match="bad checksum"):
            decode_filter(rotten.tobytes(), where="x", offset=8)
