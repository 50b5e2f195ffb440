"""Compare the entries of two logs, of any formats."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.logs.log import LogReader


def aligned(
    ones: "Iterable[pa.RecordBatch]", twos: "Iterable[pa.RecordBatch]"
) -> "Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]":
    """Yield two scans as pairs of batches of equal length, until one of them ends."""
    rest, others = iter(ones), iter(twos)
    one, two = next(rest, None), next(others, None)
    while one is not None and two is not None:
        size = min(one.num_rows, two.num_rows)
        yield one.slice(0, size), two.slice(0, size)
        one = one.slice(size) if size < one.num_rows else next(rest, None)
        two = two.slice(size) if size < two.num_rows else next(others, None)


def difference(one: "pa.RecordBatch", two: "pa.RecordBatch") -> int | None:
    """Return the first row whose payloads differ, of two batches of equal length."""
    import pyarrow.compute as pc

    if one.column("payload").equals(two.column("payload")):
        return None
    equal = pc.equal(one.column("payload"), two.column("payload"))
    return int(np.argmin(equal.to_numpy(zero_copy_only=False)))


def first_difference(one: "LogReader", two: "LogReader", start: int, stop: int) -> int | None:
    """Return the first of entries start..stop-1 whose payload differs; both logs have them all."""
    for mine, theirs in aligned(one.scan(start, stop), two.scan(start, stop)):
        row = difference(mine, theirs)
        if row is not None:
            return start + row
        start += mine.num_rows
    return start if start < stop else None
