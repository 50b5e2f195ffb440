"""Batch reads of logs: planned from headers on the driver, scanned in the workers.

A partition is one segment, cut to the range that was asked for.  Rows travel as Arrow batches from
the vectorised scan; no Python runs per row.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.errors import ChangedError, CorruptError, HoldfastError
from holdfast.logs.log import Damage, LogReader
from holdfast.logs.opening import FORMATS, format_of
from holdfast.logs.scan_plan import ScanTask, plan_scan
from holdfast.spark.log_options import CORRUPT_COLUMN, LogOptions
from holdfast.spark.workers import in_worker

_TYPES = {"index": LongType(), "payload": BinaryType(), "segment": StringType()}


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """What one task reads: a part of a log, or a report that a part is lost."""

    path: str
    format: str
    step: ScanTask | Damage


def log_schema(options: LogOptions) -> StructType:
    """Return the schema.  With PERMISSIVE, damage whose index is unknown gives a row with nulls."""
    permissive = options.mode == "PERMISSIVE"
    fields = [
        StructField(name, _TYPES.get(name, LongType()), permissive and name in ("index", "payload"))
        for name in options.columns
    ]
    corrupt = [StructField(CORRUPT_COLUMN, StringType(), True)] if permissive else []
    return StructType(fields + corrupt)


class LogFrameReader(DataSourceReader):
    """Reads the logs that the options name, one after the other."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[LogPartition]:
        options = self._options
        start = options.starting_index if isinstance(options.starting_index, int) else 1
        found: list[LogPartition] = []
        for path in options.directories:
            with closing(read_log(path)) as log:
                found += plan_partitions(path, log, options, start, options.ending_index)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options)


def plan_partitions(
    path: str, log: LogReader, options: LogOptions, start: int, stop: int
) -> list[LogPartition]:
    """Plan a partition for each part.  CorruptError if one is lost and the mode is FAILFAST."""
    format = format_of(OsDisk(path)).name
    plan = [LogPartition(path, format, step) for step in plan_scan(log, start, stop)]
    if options.mode == "PERMISSIVE":
        return plan
    for partition in plan:
        if isinstance(partition.step, Damage) and options.mode == "FAILFAST":
            raise corrupt(path, partition.step)
    return [partition for partition in plan if isinstance(partition.step, ScanTask)]


def corrupt(path: str, damage: Damage) -> CorruptError:
    """Return the error for damage, with what to do about it."""
    lost = f"entries {damage.first_index}..{damage.last_index}" if damage.first_index else "entries"
    advice = "read with mode PERMISSIVE or DROPMALFORMED to get the rest"
    why = f"{damage.why}; {lost} of the log are lost; {advice}"
    return CorruptError(f"{path}/{damage.file}", damage.offset, why)


def read_partition(partition: InputPartition, options: LogOptions) -> Iterator[pa.RecordBatch]:
    """Scan a partition in a worker, and yield Arrow batches of the schema that Spark knows."""
    part = in_worker(partition, LogPartition)
    if part is None:
        return
    shape = _Shape(options)
    if isinstance(part.step, Damage):
        yield shape.damaged(part.step)
        return
    path, segment = part.path, part.step.segment
    found: list[Damage] = []
    try:
        for batch in FORMATS[part.format].scan_segment(
            OsDisk(path),
            segment,
            part.step.start,
            part.step.stop,
            on_damage=None if options.mode == "FAILFAST" else found.append,
            verify=options.verify,
        ):
            yield from shape.reported(found)
            yield shape.rows(batch, segment.name)
    except (FileNotFoundError, ChangedError) as error:
        raise HoldfastError(
            f"{path}/{segment.name} was deleted or changed after the read was planned: "
            "load the log again"
        ) from error
    except CorruptError as error:
        advice = "read with mode PERMISSIVE or DROPMALFORMED to get the rest"
        raise CorruptError(
            f"{path}/{error.where}", error.offset, f"{error.why}; {advice}"
        ) from None
    yield from shape.reported(found)


class _Shape:
    """Converts scanned batches to the columns that were asked for."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._schema = to_arrow_schema(log_schema(options), timezone="UTC")
        self._segment = pa.array([], pa.string())

    def rows(self, batch: pa.RecordBatch, segment: str) -> pa.RecordBatch:
        count = batch.num_rows
        columns = [self._column(batch, name, segment) for name in self._options.columns]
        if self._options.mode == "PERMISSIVE":
            columns.append(pa.nulls(count, pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def reported(self, found: list[Damage]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each new damage, if the mode is PERMISSIVE."""
        damages = found.copy()
        found.clear()
        if self._options.mode == "PERMISSIVE":
            yield from map(self.damaged, damages)

    def damaged(self, damage: Damage) -> pa.RecordBatch:
        row = {
            "index": damage.first_index or None,
            "payload": None,
            "segment": damage.file,
            "offset": damage.offset,
            CORRUPT_COLUMN: str(damage),
        }
        columns = [pa.array([row[field.name]], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, batch: pa.RecordBatch, name: str, segment: str) -> pa.Array:
        if name == "payload":
            return batch.column(name).cast(pa.binary())  # Spark does not take views
        if name != "segment":
            return batch.column(name)
        if len(self._segment) < batch.num_rows:
            self._segment = pa.repeat(segment, batch.num_rows)
        return self._segment.slice(0, batch.num_rows)
