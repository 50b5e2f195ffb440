from random import Random

import numpy as np
import pyarrow as pa
import pytest

from holdfast.formats.views import binary_views


@pytest.mark.parametrize("size", [0, 1, 3, 4, 11, 12, 13, 500])
def test_views_are_the_slices(size: int) -> None:
    random = Random(size)
    data = memoryview(random.randbytes(size))
    cuts = [sorted((random.randint(0, size), random.randint(0, size))) for _ in range(200)]
    starts = np.array([a for a, _ in cuts], np.int64)
    lengths = np.array([b - a for a, b in cuts], np.int64)
    views = pa.py_buffer(binary_views(data, starts, lengths))
    array = pa.Array.from_buffers(
        pa.binary_view(), len(cuts), [None, views, pa.py_buffer(bytes(data) or b" ")]
    )
    array.validate(full=True)
    assert array.to_pylist() == [bytes(data[a:b]) for a, b in cuts]


def test_no_slices_no_views() -> None:
    none = np.zeros(0, np.int64)
    assert len(binary_views(memoryview(b"abc"), none, none)) == 0
