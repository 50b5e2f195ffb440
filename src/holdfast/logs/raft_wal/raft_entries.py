"""What a log of Raft entries (codec 1) knows of its payloads: their fields, and checkpoints.

Checkpoints are written by raft-wal's verifier: a leader's sums over its entries, kept in the log.
A checkpoint is an entry whose extensions hold the first index of a range and the sum of all entries
from there to itself.  If the entries have another sum, something has changed them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.formats import raft_entry as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.views import binary_views
from holdfast.logs.log import Bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.logs.raft_wal.reader import RaftWalReader

_MANY = 64  # from here on numpy is faster than a loop
_NS_PER_SECOND = 10**9
_SECONDS_MAX = (2**63 - 1) // _NS_PER_SECOND - 1  # what nanoseconds since 1970 can count to


def raft_columns(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the fields of the entries of a scanned batch; nulls for payloads that are not valid.

    `appended_at` is null where it was never set, or is outside of the years 1678 to 2261.
    """
    import pyarrow as pa

    payloads = batch.column("payload").cast(pa.large_binary())
    _, offsets, values = payloads.buffers()
    bounds = np.frombuffer(offsets, np.int64)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = memoryview(values) if values is not None else memoryview(b"")
    found = fmt.decode_columns(data, bounds[:-1], np.diff(bounds))
    bad = found.bad
    seconds = found.appended_s - fmt.UNIX_EPOCH
    is_set = found.is_appended & (np.abs(seconds) < _SECONDS_MAX) & (found.appended_s > 0)
    appended = np.where(is_set, seconds, 0) * _NS_PER_SECOND + found.appended_ns
    return pa.RecordBatch.from_arrays(
        [
            batch.column("index"),
            pa.array(found.term, pa.uint64(), mask=bad),
            pa.array(np.where(bad, 0, found.type).astype(np.uint8), pa.uint8(), mask=bad),
            _slices(data, found.data_start, found.data_length, bad),
            _slices(data, found.extensions_start, found.extensions_length, bad),
            pa.array(appended, pa.timestamp("ns", tz="UTC"), mask=~is_set),
        ],
        ["index", "term", "type", "data", "extensions", "appended_at"],
    )


def first_of(payloads: Sequence[Bytes], lengths: Sequence[int]) -> int:
    """Return the index of the first Raft entry; ValueError unless all are valid and consecutive."""
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
        raise ValueError(  # noqa: TRY004
            f"payload {i} cannot be decoded as a Raft entry: {entry.why}; for plain payloads "
            "create the log without codec=1"
        )
    return entry


def _slices(
    data: memoryview, starts: fmt.Offsets, lengths: fmt.Offsets, bad: "np.ndarray"
) -> "pa.Array":
    import pyarrow as pa

    validity = pa.py_buffer(np.packbits(~bad, bitorder="little"))
    views = pa.py_buffer(binary_views(data, starts, lengths))
    buffers = [validity, views, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def find_checkpoints(log: "RaftWalReader") -> Iterator[tuple[int, int, int]]:
    """Yield index, first index of its range, and sum of each checkpoint with a complete range."""
    for batch in log.scan():
        columns = log.decode_columns(batch)
        for index, extensions in _extended(columns) if columns is not None else ():
            found = fmt.decode_checkpoint(extensions)
            if found is not None and log.first_index <= found[0] <= index:
                yield index, *found


def check_checkpoints(log: "RaftWalReader") -> Iterator[tuple[int, int, str]]:
    """Yield the ranges whose sum is not that of their checkpoint: first and last index, and why."""
    for index, start, wanted in find_checkpoints(log):
        total = 0
        for one in range(start, index):
            total = fmt.add_to_checksum(total, log.get_log(one))
        if total != wanted:
            why = f"checkpoint {index} says {wanted:016x}, but the entries sum to {total:016x}"
            yield start, index - 1, why


def _extended(columns: "pa.RecordBatch") -> Iterator[tuple[int, bytes]]:
    """Yield the entries whose extensions are as long as a checkpoint's."""
    import pyarrow.compute as pc

    extensions = columns.column("extensions")
    is_long = pc.equal(pc.binary_length(extensions.cast("large_binary")), fmt.CHECKPOINT_SIZE)
    for row in np.flatnonzero(is_long.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        yield columns.column("index")[row].as_py(), extensions[row].as_py()
