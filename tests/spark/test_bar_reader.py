"""What Spark reads of a bar store is what a query answers, pruned, and one state of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from tests.spark.bar_samples import YEAR_S, asked, load, make_bars, ohlcv, rows_of, ticks
from tests.spark.samples import tree

from holdfast.doors import open_bars
from holdfast.spark import bars_frame
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.bar_reader import pin_bars, share_out


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bars(tmp_path_factory.mktemp("bars"))


def test_a_read_is_a_query(spark: SparkSession, path: Path) -> None:
    before = tree(path)
    frame = load(spark, path)
    assert frame.columns == ["symbol", "epoch_ns", "Open", "High", "Low", "Close", "Volume"]
    assert rows_of(frame) == asked(path)
    assert tree(path) == before


def test_options_prune(spark: SparkSession, path: Path) -> None:
    some = load(
        spark,
        path,
        symbols="NVDA,AAPL,NONE",
        years="2021",
        endingTime="2021-01-02T03:01",
        columns="Close,symbol,timeframe,time",
        maxPartitionBytes=1,
    )
    assert some.rdd.getNumPartitions() == 2
    assert some.dtypes == [
        ("Close", "float"),
        ("symbol", "string"),
        ("timeframe", "string"),
        ("time", "timestamp"),
    ]
    end_ns = (YEAR_S[2021] + 86_400 + 3 * 3600) * 10**9
    begin_ns = YEAR_S[2021] * 10**9
    expected = [row for row in asked(path) if row[0] != "MSFT" and begin_ns <= row[1] <= end_ns]
    assert 0 < len(expected) < 300
    found = [(row[1], row[2], row[0]) for row in rows_of(some)]
    assert sorted(found) == sorted((row[0], "1Min", row[5]) for row in expected)


def test_files_that_are_not_asked_for_are_not_touched(tmp_path: Path, path: Path) -> None:
    def files(**options: str) -> list[list[str]]:
        wanted = {"path": str(path), "timeframe": "1Min", "attributes": "OHLCV"} | options
        pin = pin_bars(BarOptions.parse(wanted))
        return [
            [file.path.replace("/1Min/OHLCV/", " ")[:-4] for file in part.files]
            for part in share_out(pin, int(options.get("maxPartitionBytes", 2**40)))
        ]

    assert files(symbols="MSFT") == [["MSFT 2020", "MSFT 2021"]]
    assert files(symbols="MSFT", startingTime="2021-06-01") == [["MSFT 2021"]]
    assert files(symbols="MSFT,AAPL", years="2015-2020") == [["AAPL 2020", "MSFT 2020"]]
    assert len(files()) == 1
    assert len(files(maxPartitionBytes="1")) == 6
    assert files(endingTime="2020-01-01") == []


def test_the_log_is_read_with_the_files_and_one_state_of_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = make_bars(tmp_path / "bars")
    with open_bars(path, create=True) as store:
        store.write(ohlcv(YEAR_S[2021] + 86_400, 200, 99), "1Min", "OHLCV", symbol="MSFT")
        store.write(ohlcv(YEAR_S[2021] + 5 * 86_400, 50, 98), "1Min", "OHLCV", symbol="NEW")
        frame, expected = load(spark, path, maxPartitionBytes=1), asked(path)
        assert rows_of(frame) == expected
        store.flush()
        later = ohlcv(YEAR_S[2021] + 90 * 86_400, 50, 97)
        for symbol in ("AAPL", "NVDA"):
            store.write(later, "1Min", "OHLCV", symbol=symbol)
        store.flush()
        assert rows_of(frame) == expected, "the state of the plan"
        assert rows_of(load(spark, path)) == asked(path) != expected
        store.delete("AAPL", "1Min", "OHLCV")
        store.flush()
        with pytest.raises(PythonException, match="load it again"):
            frame.collect()


def test_ticks_and_every_type_are_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "bars"
    kinds = ["<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", "<U16"]
    every = np.zeros(2, [("Epoch", "<i8"), *((f"c{n}", kind) for n, kind in enumerate(kinds))])
    every["Epoch"] = [YEAR_S[2021], YEAR_S[2021] + 60]
    for number, kind in enumerate(kinds):
        kept: Any = np.iinfo(kind).max if kind[1] in "iu" else "x" if kind[1] == "U" else 1
        every[f"c{number}"] = [kept, np.zeros(1, kind)[0]]
    with open_bars(path, create=True) as store:
        store.write(every, "1Min", "EVERY", symbol="A")
        store.write(ticks(YEAR_S[2021], 500), "1Min", "TICK", symbol="A", is_variable=True)
        store.flush()
        store.write(ticks(YEAR_S[2021], 200, 1), "1Min", "TICK", symbol="A", is_variable=True)
        frame = load(spark, path, attributes="TICK")
        assert rows_of(frame) == asked(path, "1Min", "TICK")
        packed = bars_frame(spark, str(path), "1Min", "TICK")
        assert (packed.schema, rows_of(packed)) == (frame.schema, rows_of(frame))
    frame = load(spark, path, attributes="EVERY")
    assert rows_of(frame) == asked(path, "1Min", "EVERY")
    packed = bars_frame(spark, str(path), "1Min", "EVERY")
    assert (packed.schema, rows_of(packed)) == (frame.schema, rows_of(frame))


def test_a_packed_read_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Of symbols with less than a packed row, with many, and with nothing in between."""
    path = tmp_path / "bars"
    with open_bars(path, create=True) as store:
        for number, count in enumerate((5, 70_000, 1, 4096)):
            bars = ohlcv(YEAR_S[2021], count, number)
            store.write(bars, "1Min", "OHLCV", symbol=f"S{number}")
        store.delete("S2", "1Min", "OHLCV")
    rows, packed = load(spark, path), bars_frame(spark, str(path), "1Min", "OHLCV")
    assert packed.schema == rows.schema
    assert rows_of(packed) == rows_of(rows)
    some = {"symbols": "S0,S3", "endingTime": "2021-01-01T02:01"}
    wanted = ["timeframe", "time", "symbol", "Close"]
    rows = load(spark, path, columns=",".join(wanted), **some)
    packed = bars_frame(spark, str(path), "1Min", "OHLCV", columns=wanted, **some)
    assert packed.schema == rows.schema
    assert rows_of(packed) == rows_of(rows) != []


def test_a_schema_may_choose_and_no_more(spark: SparkSession, path: Path) -> None:
    reader = spark.read.format("holdfast-bars").options(timeframe="1Min", attributes="OHLCV")
    chosen = reader.schema("Volume INT, symbol STRING").load(str(path))
    assert rows_of(chosen) == sorted((row[6], row[0]) for row in asked(path))
    with pytest.raises(AnalysisException, match="Volume is int: cast it after the read"):
        reader.schema("Volume LONG").load(str(path)).collect()
    with pytest.raises(AnalysisException, match="'Size' does not exist"):
        reader.schema("Size INT").load(str(path)).collect()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"symbols": "NONE"}, "none of NONE has 1Min/OHLCV"),
        ({"attributes": "OTHER"}, "no symbol has 1Min/OTHER"),
        ({"columns": "Closed"}, "'Closed' does not exist"),
        ({"ticks": "true"}, "remove the option ticks"),
        ({"timeframe": "1Mon"}, "is not a timeframe"),
    ],
)
def test_missing_bar_buckets_are_refused(
    spark: SparkSession, path: Path, options: dict[str, str], advice: str
) -> None:
    with pytest.raises(AnalysisException, match=advice):
        load(spark, path, **options)
    with pytest.raises(AnalysisException, match="set attributes"):
        spark.read.format("holdfast-bars").option("timeframe", "1D").load(str(path))
