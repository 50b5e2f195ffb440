"""Slices of one buffer as Arrow's binary views: no copy, and no loop over the long ones."""

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]

INLINE_SIZE_MAX = 12  # Arrow wants what is this short inside the view itself
_VIEW = [("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("start", "<i4")]


def binary_views(data: memoryview, starts: Offsets, lengths: Offsets) -> npt.NDArray[np.void]:
    """Arrow's string-view structs for the slices of `data` that begin at `starts`."""
    views = np.zeros(len(lengths), _VIEW)
    views["length"] = lengths
    views["start"] = starts
    if not len(lengths):
        return views
    if len(data) >= 4:
        views["prefix"] = np.ndarray(len(data) - 3, "V4", data, strides=(1,))[
            np.minimum(starts, len(data) - 4)
        ]
    short = np.flatnonzero(lengths <= INLINE_SIZE_MAX)
    if len(short):
        views[short] = _inlined(data, starts[short], lengths[short])
    return views


def _inlined(data: memoryview, starts: Offsets, lengths: Offsets) -> npt.NDArray[np.void]:
    """A length and up to twelve bytes, the rest zeros."""
    rows = np.zeros((len(lengths), 4 + INLINE_SIZE_MAX), np.uint8)
    rows[:, :4] = lengths.astype("<i4").view(np.uint8).reshape(-1, 4)
    if len(data):
        places = starts[:, None] + np.arange(INLINE_SIZE_MAX)
        found = np.frombuffer(data, np.uint8)[np.minimum(places, len(data) - 1)]
        rows[:, 4:] = np.where(np.arange(INLINE_SIZE_MAX) < lengths[:, None], found, 0)
    return rows.view(_VIEW).ravel()
