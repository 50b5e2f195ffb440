import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats.sst import EMPTY, Rows

PAIRS: list[tuple[bytes, bytes | None, int]] = [
    (b"ant", b"1", 7),
    (b"bee", None, 2**64 - 1),
    (b"cat", b"", 9),
    (b"dog", b"four", 1),
]
ROWS = Rows.from_pairs(PAIRS)
keys = st.binary(min_size=1, max_size=5)
pairs = st.lists(st.tuples(keys, st.none() | st.binary(max_size=9), st.integers(0, 2**64 - 1)))


@given(pairs)
def test_pairs_go_in_and_come_out(rows: list[tuple[bytes, bytes | None, int]]) -> None:
    assert Rows.from_pairs(rows).to_pairs() == rows
    assert Rows.from_batch(Rows.from_pairs(rows).to_batch()).to_pairs() == rows


@given(st.lists(keys))
def test_sorted_means_that_every_key_is_above_the_one_before(found: list[bytes]) -> None:
    rows = Rows.from_pairs([(key, b"", 0) for key in found])
    assert rows.is_sorted() == (found == sorted(set(found)))


@given(st.sets(keys, min_size=1), keys, keys)
def test_ranges_of_slices_are_those_of_lists(found: set[bytes], start: bytes, stop: bytes) -> None:
    ordered = sorted(found)
    rows = Rows.from_pairs([(b"", b"first", 0), *((key, key, 1) for key in ordered)])
    rows = rows.slice(1, len(rows))
    assert rows.find(start) == sum(key < start for key in ordered)
    wanted = [key for key in ordered if start <= key < stop]
    assert rows.range(start, stop).keys.to_pylist() == wanted
    assert rows.range(None, None).values.to_pylist() == ordered


def test_concat_slice_take_and_size() -> None:
    halves = [ROWS.slice(0, 1), EMPTY, ROWS.slice(1, 4)]
    assert Rows.concat(halves).to_pairs() == PAIRS
    assert Rows.concat([]) is EMPTY
    assert Rows.concat([ROWS]) is ROWS
    assert ROWS.take(np.array([3, 1])).to_pairs() == [PAIRS[3], PAIRS[1]]
    assert (ROWS.size, ROWS.slice(3, 4).size, EMPTY.size) == (12 + 5 + 32, 3 + 4 + 8, 0)
    assert (len(ROWS), len(EMPTY), EMPTY.find(b"x"), EMPTY.is_sorted()) == (4, 0, 0, True)


def test_what_spark_hands_over_is_cast() -> None:
    large = pa.table(
        {
            "seq": pa.array([7], pa.int64()),
            "key": pa.array([b"ant"], pa.large_binary()),
            "value": pa.array([b"1"], pa.large_binary()),
        }
    )
    assert Rows.from_batch(large.to_batches()[0]).to_pairs() == PAIRS[:1]


def test_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must have the types"):
        Rows(pa.array(["text"]), ROWS.values, ROWS.seqs)
    with pytest.raises(ValueError, match=r"lengths: \[1, 4, 4\]"):
        Rows(ROWS.keys[:1], ROWS.values, ROWS.seqs)


def test_more_than_offsets_can_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.formats.sst.rows.SIZE_MAX", 60)
    with pytest.raises(ValueError, match="more than 60 bytes"):
        Rows.concat([ROWS, ROWS])
