"""`export_bars` and `import_bars`: bars into Parquet, and back.

Files are made in the workers, one for each task: `symbol`, `epoch_ns`, and the bucket's columns, as
the data source has them.  The target appears whole, under its name, when all is done, or not at
all (`making`).  An import is one write of the data source: all or nothing, and with a transaction
once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast import runtime
from holdfast.bars.pinned import Pin
from holdfast.bars.staging import Transaction
from holdfast.disk import OsDisk
from holdfast.spark.bar_columns import Shape, spark_schema
from holdfast.spark.bar_options import parse_options
from holdfast.spark.bar_reader import pin_bars, read_batches, share_out
from holdfast.spark.jobs.exports import drop_others
from holdfast.spark.jobs.making import made_whole
from holdfast.spark.jobs.tasks import run_tasks


@dataclass(frozen=True, slots=True)
class BarsExported:
    target: str
    rows: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class _Work:
    path: str
    timeframe: str
    pin: Pin
    schema: StructType
    making: str


def export_bars(
    spark: SparkSession, path: str, timeframe: str, attributes: str, target: str, **options: Any
) -> BarsExported:
    """Make the directory `target`, which must not exist, of one state of the store.

    options  symbols, years, start, end, columns and maxPartitionBytes, as of a read
    """
    target = OsDisk(target).path
    wanted = {"path": path, "timeframe": timeframe, "attributes": attributes}
    chosen = parse_options(wanted | {name: str(value) for name, value in options.items()})
    pin = pin_bars(chosen.only_for("read"))
    if pin is None:
        raise ValueError(f"{path}: no {timeframe}/{attributes} to export")
    schema = spark_schema(pin.schema, chosen.columns)
    # So that the schema of nothing can be read, one file is made in any case.
    parts = share_out(pin, chosen.partition_bytes) or [pin]
    with made_whole(target, "export") as making:
        work = [_Work(chosen.path, timeframe, part, schema, making) for part in parts]
        made = run_tasks(spark, work, _export)
        disk = OsDisk(making)
        for number, (name, _) in enumerate(made):
            disk.rename(name, f"part-{number:05}.parquet")
        drop_others(making, {f"part-{number:05}.parquet" for number in range(len(made))})
        disk.create("_SUCCESS", b"")
        size = sum(file.stat().st_size for file in Path(making).iterdir())
    return BarsExported(target, sum(rows for _, rows in made), len(made), size)


def import_bars(
    spark: SparkSession,
    source: str,
    path: str,
    timeframe: str,
    attributes: str,
    *,
    ticks: bool = False,
    symbol: str | None = None,
    transaction: Transaction | None = None,
) -> int:
    """Write the rows of Parquet files to a store; how many there were.

    They have the columns that a frame must have to be written.
    """
    rows = spark.read.parquet(Path(OsDisk(source).path).as_uri())
    options = {"timeframe": timeframe, "attributes": attributes, "ticks": str(ticks)}
    if symbol is not None:
        options["symbol"] = symbol
    if transaction is not None:
        options |= {"txnAppId": transaction.app, "txnVersion": str(transaction.version)}
    counter = Observation()
    rows = rows.observe(counter, F.count(F.lit(1)).alias("rows"))
    rows.write.format("holdfast-bars").options(**options).mode("append").save(OsDisk(path).path)
    return int(counter.get["rows"])


def _export(work: _Work) -> tuple[str, int]:
    """In a worker: one file, durable under a name that no other attempt has; and its rows."""
    sink, count = pa.BufferOutputStream(), 0
    schema = to_arrow_schema(work.schema, timezone="UTC")
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in read_batches(work.path, work.pin, Shape(work.schema, work.timeframe)):
            writer.write_batch(batch)
            count += batch.num_rows
    name = f"{runtime.new_id().hex}.parquet"
    OsDisk(work.making).create(name, memoryview(sink.getvalue()))
    return name, count
