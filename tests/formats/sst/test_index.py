import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.formats.sst import Index, decode_index
from holdfast.formats.sst.index import encode_index

key_sets = st.sets(st.binary(min_size=1, max_size=12))
key = st.binary(max_size=12)
INDEX = decode_index(encode_index([b"b", b"d", b"f"], [0, 8, 24, 80]))


@given(key_sets, st.integers(8, 2**32))
def test_an_index_is_read_as_written(keys: set[bytes], step: int) -> None:
    first_keys = sorted(keys)
    offsets = [step * i for i in range(len(keys) + 1)]
    data = encode_index(first_keys, offsets)
    assert decode_index(memoryview(data)) == Index(first_keys, offsets)
    assert len(data) % 8 == 0


@given(key_sets, key, key)
def test_blocks_that_may_hold_a_range(keys: set[bytes], start: bytes, stop: bytes) -> None:
    """Block i may hold what is from its first key up to the next one's."""
    first_keys = sorted(keys)
    index = Index(first_keys, list(range(0, 8 * len(keys) + 8, 8)))
    bounds = [*first_keys[1:], None][: len(keys)]
    for number, (low, high) in enumerate(zip(first_keys, bounds, strict=True)):
        meets = low < stop and (high is None or start < high) and start < stop
        assert (number in index.range(start, stop)) >= meets
    assert index.find(start) == sum(low <= start for low in first_keys) - 1
    assert list(index.range(None, None)) == list(range(len(keys)))


def test_finding() -> None:
    assert [INDEX.find(key) for key in (b"a", b"b", b"c", b"d", b"z")] == [-1, 0, 0, 1, 2]
    assert INDEX.range(b"c", b"d") == range(0, 1)
    assert INDEX.range(b"d", b"d\0") == range(1, 2)
    assert INDEX.range(b"x", None) == range(2, 3)
    assert not INDEX.range(None, b"b")
    assert (len(INDEX), INDEX.span(1)) == (3, (8, 24))


@pytest.mark.parametrize(
    ("keys", "offsets", "why"),
    [
        ([b"a", b"a"], [0, 8, 16], "do not rise"),
        ([b"b", b"a"], [0, 8, 16], "do not rise"),
        ([b"a", b"b"], [8, 16, 24], "from byte 0"),
        ([b"a", b"b"], [0, 16, 16], "from byte 0"),
        ([b"a", b"b"], [0, 16], "bytes for an index of 2 blocks"),
    ],
)
def test_an_invalid_index_is_refused(keys: list[bytes], offsets: list[int], why: str) -> None:
    with pytest.raises(CorruptError, match=why):
        decode_index(encode_index(keys, offsets))


@pytest.mark.parametrize("size", [0, 15, 16, 40])
def test_a_cut_index_is_refused(size: int) -> None:
    with pytest.raises(CorruptError):
        decode_index(encode_index([b"a"], [0, 8])[:size])
