"""Logs exported to files of other formats, one file for each segment, written by the workers.

A worker holds one segment at a time in memory.
"""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast import runtime
from holdfast.disk import OsDisk
from holdfast.logs.log import SegmentInfo
from holdfast.logs.opening import FORMATS
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.tabular import write_table

FileKind = Literal["parquet", "jsonl"]


def export(
    spark: SparkSession,
    source: str,
    format: str,
    segments: Sequence[SegmentInfo],
    target: str,
    kind: FileKind,
    *,
    text: bool,
) -> None:
    """Write the files part-00000.parquet, part-00001.parquet, ... into the directory `target`.

    Workers write them durably, under names that no other attempt has.  The driver renames them.
    """
    payload = pa.binary() if kind == "parquet" else pa.string()
    schema = pa.schema([pa.field("index", pa.int64(), False), pa.field("payload", payload, False)])

    def rows(segment: SegmentInfo | None) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([], schema)  # an empty log has one file too
        if segment is None:
            return
        scan, stop = FORMATS[format].scan_segment, segment.last_index + 1
        for batch in scan(OsDisk(source), segment, segment.first_index, stop):
            shown = batch.column("payload").cast(pa.binary())
            if kind == "jsonl":
                shown = _as_text(batch) if text else _as_base64(batch)
            yield pa.RecordBatch.from_arrays([batch.column("index"), shown], schema=schema)

    def write(segment: SegmentInfo | None) -> str:
        name, sink = runtime.new_id().hex, pa.BufferOutputStream()
        write_table(rows(segment), sink, kind)
        OsDisk(target).create(name, memoryview(sink.getvalue()))
        return name

    disk = OsDisk(target)
    names = [f"part-{number:05}.{kind}" for number in range(len(segments) or 1)]
    for written, name in zip(run_tasks(spark, segments or [None], write), names, strict=True):
        disk.rename(written, name)
    drop_others(target, set(names))
    disk.create("_SUCCESS", b"")


def drop_others(directory: str, kept: set[str]) -> None:
    """Delete the files of attempts that were killed, or that another attempt overtook."""
    for file in Path(directory).iterdir():
        if file.name not in kept and file.is_file():
            file.unlink()


def _as_base64(batch: pa.RecordBatch) -> pa.Array:
    payloads = batch.column("payload").to_pylist()
    return pa.array([base64.b64encode(one).decode("ascii") for one in payloads], pa.string())


def _as_text(batch: pa.RecordBatch) -> pa.Array:
    shown = []
    for row in batch.select(["index", "payload"]).to_pylist():
        try:
            shown.append(row["payload"].decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"entry {row['index']} is not UTF-8: convert it as base64") from error
    return pa.array(shown, pa.string())
