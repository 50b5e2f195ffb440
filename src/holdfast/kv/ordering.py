"""The order of keys that lie in any order, faster than comparing them.

Eight bytes of each key, those behind what all keys begin with, become a number, and numbers are
sorted without looking at keys.  Keys that are the same in these bytes are then compared whole.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from holdfast.formats.sst.rows import column, integers, numbers

Places = npt.NDArray[np.int64]

_WORD = 8
_FEW = 200  # keys that are sorted faster than looked at


def sort_order(keys: Any) -> Places:
    """The places of a binary array's keys in rising order; equal ones stay as they were."""
    if len(keys) < _FEW:
        few: Places = integers(pc.array_sort_indices(keys)).astype(np.int64)
        return few
    words = _words(keys)
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        # Those with one number lie together, between smaller and larger keys, so that sorting all
        # of the tied at once leaves each group in its place.
        inner = pc.array_sort_indices(keys.take(numbers(order[tied])))  # it is stable
        order[tied] = order[tied][integers(inner)]
    return order


def _words(keys: Any) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key as a number; a key that ends before them counts as zeros there."""
    ends, data = column(keys)
    skipped = _common(keys)
    starts, lengths = ends[:-1].astype(np.int64) + skipped, np.diff(ends) - skipped
    raw = np.frombuffer(data, np.uint8)
    words = np.zeros(len(keys), np.uint64)
    for place in range(_WORD):
        words <<= np.uint64(8)
        inside = lengths > place
        if inside.all():
            words |= raw[starts + place]
        else:
            words[inside] |= raw[starts[inside] + place]
    return words


def _common(keys: Any) -> int:
    """How many bytes all keys begin with."""
    extremes = pc.min_max(keys)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    for place, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return place
    return min(len(low), len(high))
