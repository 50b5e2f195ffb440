from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.bar_samples import YEAR_S, make_bars, ohlcv

from holdfast.doors import open_bars, read_bars
from holdfast.spark.jobs import scrub_bars


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def test_the_verdict_is_that_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    path = make_bars(tmp_path / "bars")
    clean = scrub_bars(spark, str(path))
    assert (clean.verdict, clean.rows, len(clean.year_files)) == ("clean", 1800, 6)
    assert clean == read_bars(path).verify()

    log = Path(f"{tmp_path}/log")
    with open_bars(path, create=True) as store:
        store.write(ohlcv(YEAR_S[2021], 5), "1Min", "OHLCV", symbol="MSFT")
        log = next(path.glob("WALFile.*"))
        store.write(ohlcv(YEAR_S[2021], 5), "1Min", "OHLCV", symbol="MSFT")
        whole = log.read_bytes()
    log.write_bytes(whole)  # as a crash leaves it
    assert scrub_bars(spark, str(path)).groups == 2
    flip(log, 100)  # in the first of two groups: its checksum is wrong
    flip(path / "NVDA/1Min/OHLCV/2020.bin", 37_024 + 32 * 1441)  # an interval's own number
    found = scrub_bars(spark, str(path))
    assert found.verdict == "corrupt"
    bad = [one.name for one in (*found.logs, *found.year_files) if one.verdict == "corrupt"]
    assert bad == [log.name, "NVDA/1Min/OHLCV/2020.bin"]
    assert found == read_bars(path).verify()
