"""Entries of a scanned batch as columns: index, term, type, request_id, data."""

from typing import TYPE_CHECKING

from holdfast.formats.rlog_entry import TYPE_NAMES, EntryHeaders

if TYPE_CHECKING:
    import pyarrow as pa


def entry_columns(batch: "pa.RecordBatch", headers: EntryHeaders) -> "pa.RecordBatch":
    """The batch, with the headers of its entries beside their data."""
    import numpy as np
    import pyarrow as pa

    types = pa.DictionaryArray.from_arrays(pa.array(headers.types, pa.uint8()), [*TYPE_NAMES])
    ids = np.ascontiguousarray(headers.request_ids)
    width = pa.binary(ids.shape[1])
    return pa.RecordBatch.from_arrays(
        [
            batch.column("index"),
            pa.array(headers.terms),
            types.cast(pa.string()),
            pa.Array.from_buffers(width, len(ids), [None, pa.py_buffer(ids)]),
            batch.column("payload"),
        ],
        ["index", "term", "type", "request_id", "data"],
    )
