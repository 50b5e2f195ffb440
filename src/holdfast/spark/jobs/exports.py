"""Logs into files of other systems, one file for each segment, made in the workers.

A file is complete and durable under a name of its own when its task returns; the driver then gives
it its place in the order.  One segment at a time is held in a worker's memory.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from holdfast import runtime
from holdfast.disk import OsDisk
from holdfast.logs.log import SegmentInfo
from holdfast.logs.open import FORMATS
from holdfast.spark.jobs.tasks import run_tasks

FileKind = Literal["parquet", "jsonl"]

_SCHEMA = pa.schema([pa.field("index", pa.int64(), False), pa.field("payload", pa.binary(), False)])


@dataclass(frozen=True, slots=True)
class _Work:
    source: str
    format: str
    segment: SegmentInfo
    target: str
    kind: FileKind
    text: bool


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
    """Write the files part-00000.parquet, part-00001.parquet, ... into the directory `target`."""
    work = [_Work(source, format, segment, target, kind, text) for segment in segments]
    disk, kept = OsDisk(target), {"_SUCCESS"}
    for number, name in enumerate(run_tasks(spark, work, _export_segment)):
        kept.add(f"part-{number:05}.{kind}")
        disk.rename(name, f"part-{number:05}.{kind}")
    if not work:  # so that the schema of nothing can be read
        kept.add(f"part-00000.{kind}")
        disk.create(f"part-00000.{kind}", _encode([], kind, text=text))
    drop_others(target, kept)
    disk.create("_SUCCESS", b"")


def drop_others(directory: str, kept: set[str]) -> None:
    """Remove what attempts left that were killed, or overtaken by their twins."""
    for file in Path(directory).iterdir():
        if file.name not in kept and file.is_file():
            file.unlink()


def _export_segment(work: _Work) -> str:
    segment = work.segment
    batches = FORMATS[work.format].scan_segment(
        OsDisk(work.source), segment, segment.first_index, segment.last_index + 1
    )
    name = f"{segment.name}.{runtime.new_id().hex}"  # no other attempt's
    OsDisk(work.target).create(name, _encode(batches, work.kind, text=work.text))
    return name


def _encode(batches: Iterable[pa.RecordBatch], kind: FileKind, *, text: bool) -> memoryview:
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        with pq.ParquetWriter(sink, _SCHEMA, compression="zstd") as writer:
            for batch in batches:
                columns = [batch.column("index"), batch.column("payload").cast(pa.binary())]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    else:
        for batch in batches:
            sink.write(_json_lines(batch, text=text))
    return memoryview(sink.getvalue())


def _json_lines(batch: pa.RecordBatch, *, text: bool) -> bytes:
    lines = []
    for index, payload in zip(
        batch.column("index").to_pylist(), batch.column("payload").to_pylist(), strict=True
    ):
        try:
            shown = payload.decode() if text else base64.b64encode(payload).decode("ascii")
        except UnicodeDecodeError as error:
            raise ValueError(f"entry {index} is not UTF-8: convert it as base64") from error
        lines.append(json.dumps({"index": index, "payload": shown}, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
