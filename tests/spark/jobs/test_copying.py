"""The table of docs/jobs.md, walked: every pair for which it has `copy`, with real stores."""

import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark import bar_samples
from typer.testing import CliRunner

import holdfast
from holdfast.cli.app import app
from holdfast.doors import open_bars, open_kv, read_bars
from holdfast.spark.jobs import Place, copy
from holdfast.spark.jobs.copying import KINDS
from holdfast.spark.progress import progress

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"
BARS = {"timeframe": "1Min", "attributes": "CLOSE"}
COUNT = 4
EPOCH_S = 1_609_459_200
# Every row says its number: as a payload, a value, a price.
SQL = {
    ("log", "bars"): "SELECT 'A' AS symbol, 1609459200000000000 + CAST(CAST(payload AS STRING) "
    "AS BIGINT) * 60000000000 AS epoch_ns, CAST(CAST(payload AS STRING) AS DOUBLE) AS Close "
    "FROM source",
    ("log", "csv"): "SELECT index, CAST(payload AS STRING) AS payload FROM source",
    ("kv", "bars"): "SELECT 'A' AS symbol, 1609459200000000000 + CAST(CAST(value AS STRING) "
    "AS BIGINT) * 60000000000 AS epoch_ns, CAST(CAST(value AS STRING) AS DOUBLE) AS Close "
    "FROM source",
    ("kv", "csv"): "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM source",
}
NUMBER = "CAST(CAST(CAST(Close AS DOUBLE) AS INT) AS STRING)"
FROM_FILES = {
    "log": f"SELECT {NUMBER} AS payload FROM source ORDER BY epoch_ns",
    "kv": f"SELECT symbol || epoch_ns AS key, {NUMBER} AS value FROM source",
    "bars": "SELECT symbol, CAST(epoch_ns AS BIGINT) AS epoch_ns, CAST(Close AS DOUBLE) AS Close "
    "FROM source",
}


def pairs() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|(.*)\|$", PAGE.read_text(), flags=re.M)
    assert [name for name, _ in rows] == list(KINDS)
    return [
        (source, target)
        for source, cells in rows
        for target, cell in zip(KINDS, cells.split("|"), strict=True)
        if "`copy`" in cell
    ]


def make_log(path: Path) -> None:
    with holdfast.create_log(path) as log:
        log.append([b"%d" % n for n in range(COUNT)])


def make_kv(path: Path) -> None:
    with open_kv(str(path), create=True, maintain=False) as db:
        db.write({b"key/%d" % n: b"%d" % n for n in range(COUNT)}).result()


def make_bars(path: Path) -> None:
    rows = np.zeros(COUNT, [("Epoch", "<i8"), ("Close", "<f8")])
    rows["Epoch"], rows["Close"] = EPOCH_S + 60 * np.arange(COUNT), np.arange(COUNT)
    with open_bars(path, create=True) as store:
        store.write(rows, "1Min", "CLOSE", symbol="A")


MAKERS: dict[str, Callable[[Path], None]] = {"log": make_log, "kv": make_kv, "bars": make_bars}


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    root = tmp_path_factory.mktemp("sources")
    for kind, make in MAKERS.items():
        make(root / kind)
    found = {
        "log": Place("log", str(root / "log")),
        "kv": Place("kv", str(root / "kv")),
        "bars": Place("bars", str(root / "bars"), BARS),
    }
    for kind in ("parquet", "csv", "json"):
        options = {"header": "true"} if kind == "csv" else {}
        found[kind] = Place(kind, str(root / kind), options)  # type: ignore[arg-type]
        assert copy(spark, found["bars"], found[kind]).rows == COUNT
    return found


def numbers_in(spark: SparkSession, place: Place) -> list[int]:
    """The numbers of the rows, by any column that has them."""
    if place.kind == "log":
        with holdfast.read_log(place.path) as log:
            values = [payload for batch in log.scan() for payload in batch["payload"].to_pylist()]
            return [_number(value) for value in values]
    if place.kind == "kv":
        with open_kv(place.path, create=True, maintain=False) as db:
            return sorted(_number(value) for _, value in db.items())
    if place.kind == "bars":
        with read_bars(place.path) as store:
            return [int(one) for one in store.query("*", "1Min", "CLOSE")["Close"].to_pylist()]
    rows = spark.read.format(place.kind).options(**dict(place.options)).load(place.path)
    name = next(name for name in ("payload", "value", "Close") if name in rows.columns)
    return sorted(_number(row[name]) for row in rows.collect())


def _number(value: object) -> int:
    text = bytes(value).decode() if isinstance(value, bytes | bytearray) else str(value)
    if text.startswith("{"):
        return int(json.loads(text)["Close"])
    return int(b64decode(text)) if text.endswith("=") else int(float(text))


@pytest.mark.parametrize(("source", "target"), pairs(), ids=lambda kind: kind)
def test_every_pair_of_the_page(
    spark: SparkSession, sources: dict[str, Place], tmp_path: Path, source: str, target: str
) -> None:
    options = BARS if target == "bars" else {"header": "true"} if target == "csv" else {}
    place = Place(target, str(tmp_path / "target"), options)  # type: ignore[arg-type]
    sql = SQL.get((source, target)) if source in MAKERS else FROM_FILES[target]
    if target == "log":
        holdfast.create_log(place.path).close()
    report = copy(spark, sources[source], place, sql=sql)
    assert (report.rows, report.source_kind, report.target_kind) == (COUNT, source, target)
    assert numbers_in(spark, place) == list(range(COUNT))
    assert not spark.catalog.tableExists("source")


def test_columns_that_do_not_fit_are_reported(
    spark: SparkSession, sources: dict[str, Place]
) -> None:
    with pytest.raises(ValueError, match="needs the columns key, value, and there are symbol"):
        copy(spark, sources["parquet"], Place("kv", "nowhere"))
    with pytest.raises(ValueError, match="unknown kind 'hive'"):
        Place("hive", "x")  # type: ignore[arg-type]
    spark.range(1).createTempView("source")
    try:
        with pytest.raises(ValueError, match="already has a table 'source'"):
            copy(spark, sources["log"], sources["kv"])
    finally:
        spark.catalog.dropTempView("source")


def test_files_appear_whole_or_not_at_all(
    spark: SparkSession, sources: dict[str, Place], tmp_path: Path
) -> None:
    target = tmp_path / "out"
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        copy(spark, sources["log"], Place("parquet", str(target)), sql="SELECT 1 / 0 FROM source")
    assert not list(tmp_path.iterdir())
    target.mkdir()
    with pytest.raises(FileExistsError, match="copy into a new directory, or remove it first"):
        copy(spark, sources["log"], Place("parquet", str(target)))


def test_a_failed_copy_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("empty", "taken", "garbage"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "garbage" / "segment_00001.wal").write_bytes(b"no segment" * 500)
    make_log(tmp_path / "log")
    wrong = {
        ("kv:empty", "parquet:out"): "no kv store in",
        ("kv:file", "parquet:out"): "file: a file, not a kv store",
        ("log:file", "parquet:out"): "file: a file, not a log store",
        ("log:empty", "parquet:out"): "holds no log of a known format",
        ("log:none", "parquet:out"): "none: no log store; name its directory",
        ("log:loop", "parquet:out"): "loop: Too many levels of symbolic links",
        ("log:garbage", "kv:out"): "invalid segment header",
        ("log:log", "log:file"): "file: a file, not a log store",
        ("log:log", "parquet:taken"): "taken exists: copy into a new directory",
        ("log:log", "parquet:file/out"): "file: Not a directory",
        ("log:log", "bars:out"): "name one, such as --write timeframe=1Min --write attributes=",
        ("bars:empty", "log:log"): "name one, such as --read timeframe=1Min",
        ("parquet:none", "kv:out"): "Path does not exist",
    }
    before = sorted(tmp_path.iterdir())
    for places, why in wrong.items():
        words = [place.replace(":", f":{tmp_path}/", 1) for place in places]
        refused = CliRunner().invoke(app, ["copy", *words])
        assert refused.exit_code == (2 if "garbage" in words[0] else 1), (words, refused.output)
        assert why in refused.stderr
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        assert sorted(tmp_path.iterdir()) == before, words
    assert not capfd.readouterr().err, "the JVM is silent"


def test_the_verb(spark: SparkSession, sources: dict[str, Place], tmp_path: Path) -> None:
    target = tmp_path / "prices"
    words = ["copy", f"bars:{sources['bars'].path}", f"kv:{target}", "--json"]
    options = [word for pair in BARS.items() for word in ("--read", "=".join(pair))]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == COUNT
    with open_kv(str(target), create=True, maintain=False) as db:
        assert json.loads(db.get(b"A/1609459260000000000") or b"")["Close"] == 1
    for wrong, why in (
        (["copy", "here", "kv:x"], "expected KIND:PATH"),
        ([*words, "--read", "x"], "NAME="),
    ):
        refused = CliRunner().invoke(app, wrong)
        assert refused.exit_code == 1
        assert why in refused.stderr


def test_bars_go_into_parquet_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path, again = bar_samples.make_bars(tmp_path / "bars"), str(tmp_path / "again")
    bars = {"timeframe": "1Min", "attributes": "OHLCV"}
    ticks = {"timeframe": "1Min", "attributes": "TICK"}

    def export(name: str, **options: str) -> int:
        target = Place("parquet", str(tmp_path / name))
        return copy(spark, Place("bars", str(path), options), target).rows

    with open_bars(path) as store:
        rows = bar_samples.ticks(bar_samples.YEAR_S[2021], 300)
        store.write(rows, "1Min", "TICK", symbol="A", is_variable=True)
        assert export("all", **bars, maxPartitionBytes="60000") == 1800
        assert export("one", **bars, symbols="MSFT", years="2021") == 300
        assert export("ticks", **ticks) == 300
    assert len(list((tmp_path / "all").glob("*.parquet"))) > 1
    with pytest.raises(PySparkException, match="no symbol has 1Min/NONE"):
        export("none", timeframe="1Min", attributes="NONE")
    for _ in range(2):
        once = {**ticks, "ticks": "true", "txnAppId": "import", "txnVersion": "1"}
        done = copy(spark, Place("parquet", str(tmp_path / "ticks")), Place("bars", again, once))
        assert done.rows == 300
    copy(spark, Place("parquet", str(tmp_path / "all")), Place("bars", again, bars))
    for attributes in ("OHLCV", "TICK"):
        found = bar_samples.asked(Path(again), "1Min", attributes)
        assert found == bar_samples.asked(path, "1Min", attributes)


def test_the_rows_of_an_import_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    columns = "struct<symbol:string,epoch_ns:bigint,Close:double>"
    none = Place("parquet", str(tmp_path / "none"))
    spark.createDataFrame([], columns).write.parquet(none.path)
    with progress(spark, "importing") as group:
        assert copy(spark, none, Place("bars", str(tmp_path / "bars"), BARS)).rows == 0
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert len(jobs) <= 2, "one for the schema, one to write"
