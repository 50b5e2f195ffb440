"""Rows appended to logs: see holdfast.logs.staging.

The entries are in the order of the partitions and, in each, of the rows; or in that of the column
`orderBy`, where equal values keep the former order and nulls come last.  That sort runs on the
driver, in memory.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from holdfast.disk import OsDisk
from holdfast.doors.logs import DEFAULT_FORMAT, create_log, find_format, open_log
from holdfast.errors import NotFoundError
from holdfast.logs import staging
from holdfast.logs.log import Log
from holdfast.spark.log_options import LogOptions
from holdfast.spark.sinks import Job

_LOG = logging.getLogger("holdfast")
_UNSORTABLE = (ArrayType, MapType, StructType, VariantType)


class LogTarget:
    """A log to append to; it is created if there is none."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._path, self._format = options.directories[0], options.format
        size = options.max_segment_bytes
        self._log_options: dict[str, Any] = {} if size is None else {"segment_size_max": size}
        self._payload, self._order = choose_columns(schema, options.order_by)

    @property
    def _disk(self) -> OsDisk:
        return OsDisk(self._path)

    def prepare(self, job: Job) -> None:
        """Prepare nothing: a task creates what it needs."""

    def stage(self, job: Job, partition: int, batches: Iterator[pa.RecordBatch]) -> staging.Staged:
        return staging.stage(self._disk, job.name, partition, map(self._shaped, batches))

    def commit(self, job: Job, staged: Sequence[staging.Staged]) -> None:
        with self._owner() as log:
            ordered = self._order is not None
            staging.commit(log, self._disk, staged, job.transaction, ordered=ordered)
            try:
                staging.sweep(self._disk, job.name)
            except OSError as error:
                # The rows are committed.  A failure now would make Spark append them again.
                _LOG.warning("%s: cannot remove orphans: %s", self._path, error)

    def abort(self, job: Job) -> None:
        staging.sweep(self._disk, job.name)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {"payload": batch.column(self._payload).cast(pa.binary())}
        if self._order is not None:
            columns["order"] = batch.column(self._order)
        return pa.record_batch(columns)

    def _owner(self) -> Log:
        try:
            found = find_format(self._disk).name
        except NotFoundError:
            format = self._format or DEFAULT_FORMAT
            return create_log(self._path, format=format, **self._log_options)
        if self._format not in (None, found):
            raise ValueError(f"remove the option format: {self._path} has a {found} log")
        return open_log(self._path, **self._log_options)


def choose_columns(schema: StructType, order_by: str | None) -> tuple[str, str | None]:
    """Return the column of the payloads and the column of the order, if there is one."""
    names = schema.fieldNames()
    if order_by is not None and order_by not in names:
        raise ValueError(f"set orderBy to one of {', '.join(names)}, not {order_by!r}")
    if order_by is not None and isinstance(schema[order_by].dataType, _UNSORTABLE):
        raise ValueError(f"set orderBy to a column that can be sorted, not {order_by!r}")
    rest = [name for name in names if name != order_by] or names
    payload = "payload" if "payload" in names else rest[0]
    if [name for name in rest if name != payload] or not rest:
        had = ", ".join(names)
        raise ValueError(f"select only the column payload and that of orderBy, not {had}")
    kind = schema[payload].dataType
    if kind not in (BinaryType(), StringType()):
        raise ValueError(f"cast {payload} to BINARY: it is {kind.simpleString()}")
    return payload, order_by
