"""Checkpoints of raft-wal's verifier: a leader's sums over its entries, kept in the log itself.

A checkpoint is an entry whose extensions hold the first index of a range and the sum of all
entries from there to itself.  Where the entries do not give that sum, something has changed them.
The sum goes byte by byte, so this is slow, and done only where there are checkpoints.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdfast.formats.raft_entry import (
    CHECKPOINT_SIZE,
    RaftEntry,
    add_to_checksum,
    decode_checkpoint,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.logs.raft_wal.guest import RaftWalGuest


def find_checkpoints(guest: "RaftWalGuest") -> Iterator[tuple[int, int, int]]:
    """Index, first index of its range, and sum of each checkpoint whose range is still there."""
    for batch in guest.scan():
        columns = guest.decode_columns(batch)
        for index, extensions in _extended(columns) if columns is not None else ():
            found = decode_checkpoint(extensions)
            if found is not None and guest.first_index <= found[0] <= index:
                yield index, *found


def check_checkpoints(guest: "RaftWalGuest") -> Iterator[tuple[int, int, str]]:
    """The ranges that do not give the sum of their checkpoint: first and last index, and why."""
    for index, start, wanted in find_checkpoints(guest):
        total = 0
        for entry in _entries(guest, start, index):
            total = add_to_checksum(total, entry)
        if total != wanted:
            why = f"checkpoint {index} says {wanted:016x}, but the entries sum to {total:016x}"
            yield start, index - 1, why


def _extended(columns: "pa.RecordBatch") -> Iterator[tuple[int, bytes]]:
    """Only those entries whose extensions are as long as a checkpoint's."""
    import pyarrow.compute as pc

    extensions = columns.column("extensions")
    is_long = pc.equal(pc.binary_length(extensions.cast("large_binary")), CHECKPOINT_SIZE)
    for row in np.flatnonzero(is_long.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        yield columns.column("index")[row].as_py(), extensions[row].as_py()


def _entries(guest: "RaftWalGuest", start: int, stop: int) -> Iterator[RaftEntry]:
    for index in range(start, stop):
        yield guest.get_log(index)
