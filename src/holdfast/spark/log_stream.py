"""Streaming reads of logs: an offset is the index of the next entry to read."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from holdfast.doors import read_log
from holdfast.errors import HoldfastError
from holdfast.logs.log import Damage, LogReader
from holdfast.logs.scan_plan import plan_scan
from holdfast.spark.following import LOG, FollowingReader, Offset
from holdfast.spark.log_options import LogOptions
from holdfast.spark.log_reader import LogPartition, corrupt, plan_partitions, read_partition


class LogStreamReader(FollowingReader):
    """Follows one log.  Its reader stays open as long as the query runs."""

    position = "index"
    limit = ReadMaxRows

    def __init__(self, options: LogOptions) -> None:
        path, most = options.directories[0], options.max_entries_per_trigger
        super().__init__(path, most, fail_on_data_loss=options.fail_on_data_loss)
        self._options = options

    def first(self) -> int:
        log, start = self._look(), self._options.starting_index
        if start == "earliest":
            return log.first_index
        if start == "latest":
            return log.last_index + 1
        if start > log.last_index + 1:
            raise HoldfastError(
                f"set startingIndex to {log.last_index + 1} or less, or to latest: "
                f"{self._where} has no entry {start - 1} yet"
            )
        return start

    def begin(self, start: int) -> int:
        log = self._look()
        if log.first_index <= start <= log.last_index + 1:
            return start
        if start < log.first_index:
            what = f"entries {start}..{log.first_index - 1} were deleted before they were read"
        else:
            what = f"it ends at {log.last_index}, but this query has already read to {start - 1}"
        self.lost(what, "set failOnDataLoss to false to skip them, or use a new checkpoint")
        return max(start, log.first_index)

    def end(self, begin: int | None = None) -> int:
        return self._look().last_index + 1

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        offset = super().latestOffset(start, limit)
        if offset[self.position] == self.end():
            self._refuse_lost_tail(self._look())
        return offset

    def partitions(self, start: Offset, end: Offset) -> Sequence[LogPartition]:
        begin = self.begin(start[self.position])
        if begin >= end[self.position]:
            return []
        stop = end[self.position]
        return plan_partitions(self._where, self._look(), self._options, begin, stop)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _look(self) -> LogReader:
        """Return the log in its newest state."""
        if self._opened is not None:
            self._opened.refresh()
            if not self._opened.damage:
                return self._opened  # type: ignore[no-any-return]
            self._opened.close()  # it may be repaired by now, from the first segment on
        self._opened = read_log(self._where)
        return self._opened  # type: ignore[no-any-return]

    def _refuse_lost_tail(self, log: LogReader) -> None:
        """Report damage after the last readable entry: without an offset, it would stay unseen."""
        lost = [d for d in plan_scan(log, log.last_index + 1) if isinstance(d, Damage)]
        for damage in lost:
            if self._options.mode == "FAILFAST":
                raise corrupt(self._where, damage)
            LOG.warning("%s ends in damage, where the stream stops: %s", self._where, damage)
