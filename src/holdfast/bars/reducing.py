"""Join rows to one: the first, last, highest or lowest value of a run, its sum or its mean.

NaN is skipped, as pandas does it: a run of nothing else has the sum 0, and NaN for the rest.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from holdfast.bars.parts import Column

Starts = npt.NDArray[np.intp]
_SAFE = 2.0**62  # a sum below it cannot have overflowed, also if it was rounded


def _first(column: Column, starts: Starts) -> Column:
    picked: Column = column[starts]
    if column.dtype.kind == "f" and np.isnan(picked).any():
        order = np.where(np.isnan(column), len(column), np.arange(len(column)))
        at = np.minimum.reduceat(order, starts)
        picked = column[np.where(at < len(column), at, starts)]
    return picked


def _last(column: Column, starts: Starts) -> Column:
    stops = np.append(starts[1:], len(column))
    picked: Column = column[stops - 1]
    if column.dtype.kind == "f" and np.isnan(picked).any():
        order = np.where(np.isnan(column), -1, np.arange(len(column)))
        at = np.maximum.reduceat(order, starts)
        picked = column[np.where(at >= 0, at, starts)]
    return picked


def _sum(column: Column, starts: Starts) -> Column:
    if column.dtype.kind == "f":
        known = np.nan_to_num(column.astype(np.float64), nan=0.0, posinf=None, neginf=None)
        infinite = np.where(np.isinf(column), column, known)
        sums: Column = np.add.reduceat(infinite, starts)
        return sums
    wide = column.astype(np.uint64 if column.dtype.kind == "u" else np.int64)
    about = np.add.reduceat(column.astype(np.float64), starts)
    if (np.abs(about) >= _SAFE).any():
        _refuse_overflow(wide, starts)
    exact: Column = np.add.reduceat(wide, starts)
    return exact


def _refuse_overflow(column: Column, starts: Starts) -> None:
    limits = np.iinfo(column.dtype)  # type: ignore[type-var]
    totals = np.add.reduceat(column.astype(object), starts)
    if min(totals) < limits.min or max(totals) > limits.max:
        raise ValueError(f"a sum does not fit into {column.dtype}; use shorter intervals, or mean")


def _mean(column: Column, starts: Starts) -> Column:
    values = column.astype(np.float64)
    counts = np.add.reduceat((~np.isnan(values)).astype(np.int64), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Column = np.add.reduceat(np.where(np.isnan(values), 0.0, values), starts) / counts
    return means


def _max(column: Column, starts: Starts) -> Column:
    found: Column = np.fmax.reduceat(column, starts)
    return found


def _min(column: Column, starts: Starts) -> Column:
    found: Column = np.fmin.reduceat(column, starts)
    return found


REDUCE: dict[str, Callable[[Column, Starts], Column]] = {
    "first": _first,
    "last": _last,
    "max": _max,
    "min": _min,
    "sum": _sum,
    "mean": _mean,
}
