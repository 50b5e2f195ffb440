"""Offsets of Holdfast's sources, and their distance to the newest.  This module does not need
Spark.

A log counts entries, a kv store SSTs of its WAL.  Spark's own sources number their batches, which
gives no distance, so their lag is unknown.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from holdfast.doors import read_log
from holdfast.errors import HoldfastError
from holdfast.kv.names import contiguous, wal_ids
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.pipelines.declared import Source

COUNTS = {"holdfast-log": ("index", "entry"), "holdfast-kv": ("walId", "SST")}
"""What an offset holds, and what the distance of two counts."""

Offset = Mapping[str, Any] | None


def lag_of(source: Source, offset: Offset, newest: Offset) -> int | None:
    """Return the distance of two offsets of a source."""
    if source.format not in COUNTS or not offset or not newest:
        return None
    name, _ = COUNTS[source.format]
    return max(0, int(newest[name]) - int(offset[name]))


def newest_of(source: Source, offset: Offset) -> Offset:
    """Return the newest offset that can be read from `offset` on.  None if it is unknown."""
    try:
        if source.format == "holdfast-log":
            with closing(read_log(source.path or "")) as guest:
                return {"index": guest.last_index + 1}
        if source.format == "holdfast-kv" and offset:
            options = KvOptions.parse({**source.options, "path": source.path or ""})
            bucket = options.address.open_to_read()
            begin = int(offset["walId"])
            return {"walId": contiguous(begin, wal_ids(bucket, after=begin - 1)) + 1}
    except (HoldfastError, FileNotFoundError):
        return None
    return None
