import random

import pyarrow as pa
import pytest

from holdfast.kv.ordering import sort_order


def _keys(seed: int) -> list[bytes]:
    choose = random.Random(seed)
    stem = choose.randbytes(choose.randrange(12))
    alphabet = choose.choice([b"\0a", b"\0\1\xff", bytes(range(256))])
    return [
        stem + bytes(choose.choices(alphabet, k=choose.randrange(14)))
        for _ in range(choose.choice([0, 1, 2, 7, 500]))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_of_bytes_and_equal_keys_stay(seed: int) -> None:
    keys = _keys(seed)
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert sort_order(pa.array(keys, pa.binary())).tolist() == expected


def test_a_slice_is_ordered_by_its_own_keys() -> None:
    keys = pa.array([b"zz", b"key/3", b"key/1", b"key/2", b"aa"], pa.binary())
    assert sort_order(keys[1:4]).tolist() == [1, 2, 0]
