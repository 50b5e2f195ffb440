"""A pipeline that version 0.1.0 ran goes on in this version, and no row comes twice.

Spark's record of a Parquet sink holds absolute paths, so the test moves it.  Nothing else in a
checkpoint depends on its place.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.goldens import Goldens, move_parquet
from tests.spark.pipelines.samples import entries, parquet_rows

from holdfast.doors import read_bars, read_kv
from holdfast.spark.pipelines import read, run, status

STORES = Goldens("0.1.0")


def test_a_pipeline_continues_where_0_1_0_ended(spark: SparkSession, tmp_path: Path) -> None:
    expected = STORES.expected["pipeline"]
    path = STORES.unpack("pipeline", tmp_path)
    move_parquet(path / "archive", expected["written_at"], path)
    assert sinks_of(path) == expected["sinks"]
    declared = read(path / "pipeline.toml")
    names = {"lines", "prices", "bars", "archive", "dead-letters"}
    assert run(spark, declared).rows == dict.fromkeys(names, expected["behind"])
    assert sinks_of(path) == expected["sinks_later"]
    found = status(declared)
    assert {sink.batch for sink in found.sinks} == {expected["batch"] + 1}
    assert {lag.behind for sink in found.sinks for lag in sink.lags} == {0}
    assert run(spark, declared).batches == {}


def sinks_of(path: Path) -> dict[str, Any]:
    """What the sinks hold, in the order in which expected.json has it."""
    with read_kv(str(path / "prices"), lazy=True) as reader:
        prices = {key.decode(): value.decode() for key, value in reader.items()}
    with read_bars(path / "bars") as guest:
        bars = {key: bars_of(guest, key) for key in guest.buckets()}
    letters = entries(path / "state" / "dead-letters")
    return {
        "lines": [line.decode() for line in entries(path / "lines")],
        "prices": prices,
        "bars": bars,
        "archive": sorted(row["_index"] for row in parquet_rows(path / "archive")),
        "dead_letters": [json.loads(letter)["index"] for letter in letters],
    }


def bars_of(guest: Any, key: str) -> list[list[Any]]:
    table = guest.query(*key.split("/"))
    times = table["time"].cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("Open", "High", "Low", "Close", "Volume")]
    return [list(row) for row in zip(times, *columns, strict=True)]
