"""Payloads of codec 1 as columns: index, term, type, data, extensions, appended_at.

Vectorised over a whole batch.  A payload that is no Raft entry makes a row of nulls.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.formats import raft_entry as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.views import binary_views
from holdfast.logs.log import Bytes

if TYPE_CHECKING:
    import pyarrow as pa

_MANY = 64  # from here on numpy is quicker than a loop
_NS_PER_SECOND = 10**9
_SECONDS_MAX = (2**63 - 1) // _NS_PER_SECOND - 1  # what nanoseconds since 1970 can count to


def raft_columns(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The entries of a scanned batch, taken apart.

    `appended_at` is null where it was never set, or lies outside of the years 1678 to 2261.
    """
    import pyarrow as pa

    payloads = batch.column("payload").cast(pa.large_binary())
    _, offsets, values = payloads.buffers()
    bounds = np.frombuffer(offsets, np.int64)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = memoryview(values) if values is not None else memoryview(b"")
    found = fmt.decode_columns(data, bounds[:-1], np.diff(bounds))
    bad = found.bad
    seconds = found.appended_s - fmt.UNIX_EPOCH
    told = found.is_appended & (np.abs(seconds) < _SECONDS_MAX) & (found.appended_s > 0)
    appended = np.where(told, seconds, 0) * _NS_PER_SECOND + found.appended_ns
    return pa.RecordBatch.from_arrays(
        [
            batch.column("index"),
            pa.array(found.term, pa.uint64(), mask=bad),
            pa.array(np.where(bad, 0, found.type).astype(np.uint8), pa.uint8(), mask=bad),
            _slices(data, found.data_start, found.data_length, bad),
            _slices(data, found.extensions_start, found.extensions_length, bad),
            pa.array(appended, pa.timestamp("ns", tz="UTC"), mask=~told),
        ],
        ["index", "term", "type", "data", "extensions", "appended_at"],
    )


def first_of(payloads: Sequence[Bytes], lengths: Sequence[int]) -> int:
    """The index of the first of these Raft entries; ValueError unless they all are, in a row."""
    first = _decoded(payloads, 0).index
    if len(payloads) < _MANY:
        suspects: Sequence[int] = range(len(payloads))
    else:
        sizes = np.array(lengths, np.int64)
        found = fmt.decode_columns(memoryview(b"".join(payloads)), np.cumsum(sizes) - sizes, sizes)
        steps = found.index - np.uint64(first) != np.arange(len(sizes), dtype=np.uint64)
        suspects = np.flatnonzero(found.bad | steps).tolist()
    for i in suspects:
        if (index := _decoded(payloads, i).index) != first + i:
            raise ValueError(f"non-monotonic log entries: {index} in place of {first + i}")
    return first


def _decoded(payloads: Sequence[Bytes], i: int) -> fmt.RaftEntry:
    entry = fmt.decode_entry(bytes(payloads[i]))
    if isinstance(entry, Flaw):
        raise ValueError(f"payload {i} is no Raft entry: {entry.why}")  # noqa: TRY004
    return entry


def _slices(
    data: memoryview, starts: fmt.Offsets, lengths: fmt.Offsets, bad: "np.ndarray"
) -> "pa.Array":
    import pyarrow as pa

    validity = pa.py_buffer(np.packbits(~bad, bitorder="little"))
    views = pa.py_buffer(binary_views(data, starts, lengths))
    buffers = [validity, views, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)
