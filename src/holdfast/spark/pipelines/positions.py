"""Offsets of our sources, and how far behind the newest they are.  Nothing here needs Spark.

A log counts entries, a kv store SSTs of its WAL.  Spark's own sources number their batches, which
tells nothing, so their lag is not known.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.kv.names import contiguous, wal_ids
from holdfast.reports import open_guest
from holdfast.spark.kv_options import parse_options
from holdfast.spark.pipelines.declared import Source

COUNTS = {"holdfast-log": ("index", "entry"), "holdfast-kv": ("walId", "SST")}
"""What an offset holds, and what the distance of two counts."""

Offset = Mapping[str, Any] | None


def lag_of(source: Source, offset: Offset, newest: Offset) -> int | None:
    """What lies between two offsets of a source."""
    if source.format not in COUNTS or not offset or not newest:
        return None
    name, _ = COUNTS[source.format]
    return max(0, int(newest[name]) - int(offset[name]))


def newest_of(source: Source, offset: Offset) -> Offset:
    """Behind the last that can be read now, from `offset` on.  None if the source does not say."""
    try:
        if source.format == "holdfast-log":
            with closing(open_guest(source.path or "")) as guest:
                return {"index": guest.last_index + 1}
        if source.format == "holdfast-kv" and offset:
            bucket = parse_options(
                {**source.options, "path": source.path or ""}
            ).address.open_to_read()
            begin = int(offset["walId"])
            return {"walId": contiguous(begin, wal_ids(bucket, after=begin - 1)) + 1}
    except (HoldfastError, FileNotFoundError):
        return None
    return None
