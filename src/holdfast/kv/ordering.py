"""The order of keys that lie in any order, faster than comparing them.

Eight bytes of each key, those behind what all keys begin with, become a number, and numbers are
sorted without looking at keys.  Keys that are the same in these bytes are then compared whole.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from holdfast.formats.sst.rows import booleans, column, integers, numbers

Places = npt.NDArray[np.int64]

_WORD = 8
_FEW = 200  # keys that are sorted faster than looked at


def sort_order(keys: Any, shared: int | None = None) -> Places:
    """The places of a binary array's keys in rising order; equal ones stay as they were.

    `shared`: how many bytes all of them begin with, if known.
    """
    return _ordered(keys, shared)[0]


def distinct_order(keys: Any, shared: int | None = None) -> Places:
    """The same, with only the first of equal keys."""
    order, repeats = _ordered(keys, shared)
    return np.delete(order, repeats) if len(repeats) else order


def common_prefix(low: bytes, high: bytes) -> int:
    """How many bytes all keys between these two begin with."""
    for place, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return place
    return min(len(low), len(high))


def _shared(keys: Any) -> int:
    extremes = pc.min_max(keys)
    return common_prefix(extremes["min"].as_py(), extremes["max"].as_py())


def _ordered(keys: Any, shared: int | None) -> tuple[Places, Places]:
    """The order, and which places in it have the key of the one before."""
    if len(keys) < _FEW:
        order = integers(pc.array_sort_indices(keys)).astype(np.int64)
        before = np.arange(max(len(keys) - 1, 0))
        return order, before[_equal(keys, order[:-1], order[1:])] + 1
    words = _words(keys, _shared(keys) if shared is None else shared)
    order = np.argsort(words, kind="stable")  # integers in sorted runs are merged
    ordered = words[order]
    before = np.flatnonzero(ordered[1:] == ordered[:-1])
    equal = _equal(keys, order[before], order[before + 1])
    if not equal.all():
        tied = np.union1d(before, before + 1)
        # Those with one number lie together, between smaller and larger keys, so that sorting all
        # of the tied at once leaves each group in its place.
        inner = pc.array_sort_indices(keys.take(numbers(order[tied])))  # it is stable
        order[tied] = order[tied][integers(inner)]
        equal = _equal(keys, order[before], order[before + 1])
    return order, before[equal] + 1


def _equal(keys: Any, places: Places, others: Places) -> npt.NDArray[np.bool_]:
    if not len(places):
        return np.zeros(0, np.bool_)
    return booleans(pc.equal(keys.take(numbers(places)), keys.take(numbers(others))))


def _words(keys: Any, skipped: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key as a number; a key that ends before them counts as zeros there."""
    ends, data = column(keys)
    if len(data) < _WORD:
        data = memoryview(bytes(data) + bytes(_WORD))
    starts, lengths = ends[:-1] + np.int32(skipped), np.diff(ends) - np.int32(skipped)
    shortest, width = int(lengths.min()), skipped + int(lengths.max())
    if shortest >= _WORD and shortest + skipped == width:  # of one length: a column of a matrix
        return np.ndarray(len(keys), ">u8", data, int(starts[0]), (width,)).astype(np.uint64)
    # Eight bytes from every place, without a copy; those of the last keys begin before the key.
    raw = np.ndarray(len(data) - _WORD + 1, ">u8", data, strides=(1,))
    places = np.minimum(starts, len(raw) - 1)
    words: npt.NDArray[np.uint64] = raw[places].astype(np.uint64)
    if places[-1] < starts[-1]:
        words <<= 8 * (starts - places).astype(np.uint64)
    if shortest < _WORD:
        beyond = 8 * np.maximum(_WORD - lengths, 0).astype(np.uint64)
        words >>= beyond
        words <<= beyond
    return words
