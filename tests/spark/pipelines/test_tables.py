"""Tables that SQL joins with: what is there as a whole, and stops the pipeline when it is not."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.samples import entries, write, write_ticks

from holdfast.doors import open_bars, open_kv
from holdfast.errors import HoldfastError
from holdfast.spark.pipelines import Batch, ChangedError, InvalidError, Trigger, read, run, validate

JOINED = (
    """
name = "joined"
checkpoint = "state"

[source.ticks]
format = "holdfast-log"
path = "ticks-log"
parse = "json"
schema = "symbol STRING NOT NULL, size BIGINT"

[table.names]
format = "parquet"
path = "names"

[table.prices]
format = "holdfast-kv"
path = "prices"

[table.closes]
format = "holdfast-bars"
path = "bars"
options = { timeframe = "1D", attributes = "CLOSE" }

[step.priced]
sql = "SELECT cast(key AS STRING) AS symbol, cast(value AS STRING) AS price FROM prices"

[step.lines]
sql = """
    + '"""'
    + """
SELECT concat_ws(' ', _index, name, price, int(Close)) AS payload
FROM ticks JOIN names USING (symbol) JOIN priced USING (symbol) JOIN closes USING (symbol)
WHERE symbol IN (SELECT symbol FROM closes)
"""
    + '"""'
    + """

[sink.lines]
from = "lines"
format = "holdfast-log"
path = "lines"
"""
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_ticks(tmp_path / "ticks-log", 1, 2)
    (tmp_path / "names").mkdir()
    write_names(tmp_path, {"symbol": ["A", "B"], "name": ["Ada", "Bob"]})
    put(tmp_path, "7")
    rows = np.zeros(1, [("Epoch", "<i8"), ("Close", "<f8")])
    rows["Epoch"], rows["Close"] = 1_609_459_200, 5
    with open_bars(tmp_path / "bars", create=True) as store:
        for symbol in "AB":
            store.write(rows, "1D", "CLOSE", symbol=symbol)
    return write(tmp_path / "joined.toml", JOINED)


def write_names(path: Path, columns: dict[str, list[str]]) -> None:
    pq.write_table(pa.table(columns), path / "names" / "part.parquet")


def put(path: Path, price: str) -> None:
    with open_kv(str(path / "prices"), create=True) as db:
        db.write({b"A": price.encode(), b"B": price.encode()}).result()


def test_rows_are_joined_with_what_was_there_at_the_start(
    spark: SparkSession, tmp_path: Path, file: Path
) -> None:
    def change(batch: Batch) -> None:
        if batch.sink == "lines" and batch.batch == 0:
            put(tmp_path, "8")
            write_ticks(tmp_path / "ticks-log", 3, 3)
        elif batch.sink == "lines":
            (tmp_path / "names" / "part.parquet").unlink()
            write_ticks(tmp_path / "ticks-log", 4, 4)

    with pytest.raises(HoldfastError, match=r"^sink\.lines: .*part\.parquet"):
        run(spark, read(file), trigger=Trigger("continuous", 100), on_batch=change)
    assert sorted(entries(tmp_path / "lines")) == [b"1 Bob 7 5", b"2 Ada 7 5", b"3 Bob 7 5"]

    write_names(tmp_path, {"symbol": ["A", "B"], "label": ["Ann", "Ben"], "name": ["x", "y"]})
    with pytest.raises(ChangedError, match=r"table\.names\.columns has changed"):
        run(spark, read(file))
    run(spark, read(file), accept_changes=True)
    assert entries(tmp_path / "lines")[3:] == [b"4 x 8 5"]
    other = JOINED.replace('attributes = "CLOSE"', 'attributes = "CLOSE", symbols = "A"')
    with pytest.raises(ChangedError, match=r"table\.closes\.options has changed"):
        run(spark, read(write(file, other)))


def test_a_missing_table_stops_the_pipeline(
    spark: SparkSession, tmp_path: Path, file: Path
) -> None:
    shutil.rmtree(tmp_path / "prices" / "manifest")
    with pytest.raises(HoldfastError, match=r"^sink\.lines: .*no kv store in"):
        run(spark, read(file))
    shutil.rmtree(tmp_path / "prices")
    (tmp_path / "names" / "part.parquet").unlink()
    with pytest.raises(InvalidError, match=r"table\.prices\.path: .* does not exist"):
        read(file)
    wrong = JOINED.replace('"1D"', '"1H"').replace("[step.priced]", "[step.names]")
    found = {problem.key: problem.what for problem in validate(spark, write(file, wrong))}
    assert found["step.names"] == "use another name: names is a source or a table already"
    assert found["table.names"].startswith("[UNABLE_TO_INFER_SCHEMA]")
    assert "no symbol has 1H/CLOSE" in found["table.closes"]
