"""Streaming reads of logs: an offset is the index of the next entry to read.

The same range of offsets is the same rows whenever it is read, so a batch that Spark replays is the
batch that it was.  Entries that compaction removed before they were read are an error, unless
`failOnDataLoss` is false: then the stream goes on at the first entry that is left.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from holdfast.errors import HoldfastError
from holdfast.logs.log import Damage
from holdfast.logs.scan_plan import plan_scan
from holdfast.reports import InspectableGuest, open_guest
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import LogPartition, corrupt, plan_partitions, read_partition

_LOG = logging.getLogger("holdfast")

Offset = dict[str, int]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one log.  It lives as long as the query, and its guest with it."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._path = options.paths[0]
        self._guest: InspectableGuest | None = None
        self._target: int | None = None  # where an available-now run stops

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_guest": None}  # open files do not travel

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        guest, start = self._look(), self._options.start
        if start == "earliest":
            return {"index": guest.first_index}
        if start == "latest":
            return {"index": guest.last_index + 1}
        if start > guest.last_index + 1:
            raise HoldfastError(
                f"set startingIndex to {guest.last_index + 1} or less, or to latest: "
                f"{self._path} has no entry {start - 1} yet"
            )
        return {"index": start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.entries_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        guest = self._look()
        begin = self._begin(start["index"], guest)
        stop = guest.last_index + 1
        if self._target is not None:
            stop = min(stop, self._target)
        if isinstance(limit, ReadMaxRows):
            stop = min(stop, begin + limit.max_rows)
        if stop == guest.last_index + 1:
            self._refuse_lost_tail(guest)
        return {"index": max(stop, start["index"])}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {"index": self._look().last_index + 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._look().last_index + 1

    def partitions(self, start: Offset, end: Offset) -> Sequence[LogPartition]:
        guest = self._look()
        begin = self._begin(start["index"], guest)
        if begin >= end["index"]:
            return []
        return plan_partitions(self._path, guest, self._options, begin, end["index"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options)

    def commit(self, end: Offset) -> None:
        """A guest keeps nothing and frees nothing."""

    def stop(self) -> None:
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _look(self) -> InspectableGuest:
        """The log as it is now."""
        if self._guest is not None:
            self._guest.refresh()
            if not self._guest.damage:
                return self._guest
            self._guest.close()  # it may be repaired by now, from the first segment on
        self._guest = open_guest(self._path)
        return self._guest

    def _begin(self, start: int, guest: InspectableGuest) -> int:
        """Where there is still something to read from `start` on; loud about what is not."""
        stop = guest.last_index + 1
        if guest.first_index <= start <= stop:
            return start
        if start < guest.first_index:
            what = f"entries {start}..{guest.first_index - 1} were removed before they were read"
        else:
            what = f"it ends at {guest.last_index}, before {start}, where this query has come to"
        advice = "set failOnDataLoss to false to go on without them, or begin a new checkpoint"
        if self._options.fail_on_data_loss:
            raise HoldfastError(f"{self._path}: {what}; {advice}")
        _LOG.warning("%s: %s; failOnDataLoss is false, so the stream goes on", self._path, what)
        return max(start, guest.first_index)

    def _refuse_lost_tail(self, guest: InspectableGuest) -> None:
        """Entries lost behind all that can be read have no offsets: the stream would just end."""
        lost = [d for d in plan_scan(guest, guest.last_index + 1) if isinstance(d, Damage)]
        for damage in lost:
            if self._options.mode == "FAILFAST":
                raise corrupt(self._path, damage)
            _LOG.warning("%s ends in damage, where the stream stops: %s", self._path, damage)
