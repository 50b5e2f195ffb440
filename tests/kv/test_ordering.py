import random

import pyarrow as pa
import pytest

from holdfast.kv.merging import common_prefix, distinct_order, sort_order


def _keys(seed: int) -> list[bytes]:
    choose = random.Random(seed)
    stem = choose.randbytes(choose.randrange(12))
    alphabet = choose.choice([b"\0a", b"\0\1\xff", bytes(range(256))])
    return [
        stem + bytes(choose.choices(alphabet, k=choose.randrange(14)))
        for _ in range(choose.choice([0, 1, 7, 300, 900]))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_of_bytes_and_equal_keys_stay(seed: int) -> None:
    keys = _keys(seed)
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    array = pa.array(keys, pa.binary())
    assert sort_order(array).tolist() == expected
    if keys:
        shared = common_prefix(min(keys), max(keys))
        assert all(key[:shared] == keys[0][:shared] for key in keys)
        assert sort_order(array, shared).tolist() == expected
    firsts = [place for place in expected if keys.index(keys[place]) == place]
    assert distinct_order(array).tolist() == firsts


@pytest.mark.parametrize("count", [3, 300])
def test_a_slice_is_ordered_by_its_own_keys(count: int) -> None:
    falling = [b"key/%03d" % number for number in reversed(range(count))]
    keys = pa.array([b"zz", *falling, b"aa"], pa.binary())
    assert sort_order(keys[1:-1]).tolist() == list(reversed(range(count)))
