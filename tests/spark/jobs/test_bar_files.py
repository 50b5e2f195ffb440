from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.bar_samples import YEAR_S, asked, make_bars, ticks

from holdfast.bars import open_bars
from holdfast.bars.staging import Transaction
from holdfast.spark.jobs import export_bars, import_bars
from holdfast.spark.progress import progress


def test_bars_go_into_parquet_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path, target, again = make_bars(tmp_path / "bars"), tmp_path / "parquet", tmp_path / "again"
    with open_bars(path) as store:
        store.write(ticks(YEAR_S[2021], 300), "1Min", "TICK", symbol="A", is_variable=True)
        report = export_bars(
            spark, str(path), "1Min", "OHLCV", str(target), maxPartitionBytes=60_000
        )
        export_bars(spark, str(path), "1Min", "TICK", f"{target}.ticks")
        one = export_bars(
            spark, str(path), "1Min", "OHLCV", f"{target}.one", symbols="MSFT", years=2021
        )
    assert (report.rows, one.rows, one.files) == (1800, 300, 1)
    assert report.files > 1
    assert pq.read_table(target).num_rows == 1800
    with pytest.raises(FileExistsError, match="export into a new directory"):
        export_bars(spark, str(path), "1Min", "OHLCV", str(target))
    with pytest.raises(ValueError, match="no 1Min/NONE to export"):
        export_bars(spark, str(path), "1Min", "NONE", f"{target}.none")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "bars",
        "parquet",
        "parquet.one",
        "parquet.ticks",
    ]
    for _ in range(2):
        once = Transaction("import", 1)
        count = import_bars(
            spark, f"{target}.ticks", str(again), "1Min", "TICK", ticks=True, transaction=once
        )
        assert count == 300
    assert import_bars(spark, str(target), str(again), "1Min", "OHLCV") == 1800
    assert asked(again) == asked(path)
    assert asked(again, "1Min", "TICK") == asked(path, "1Min", "TICK")


def test_the_rows_of_an_import_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    bars = "struct<symbol:string,epoch_ns:bigint,Close:double>"
    none, path = tmp_path / "none", tmp_path / "bars"
    spark.createDataFrame([], bars).write.parquet(str(none))
    with progress(spark, "importing") as group:
        assert import_bars(spark, str(none), str(path), "1Min", "CLOSE") == 0
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert len(jobs) <= 2, "one for the schema, one to write"
