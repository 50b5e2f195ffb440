"""The demo with a real Spark, whose Python workers really die."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast
from holdfast.cli.app import app
from holdfast.demo import bars, streams, ticks
from holdfast.demo.upkeep import make_store

COUNT = 40_000


@pytest.fixture(scope="module")
def market() -> ticks.Ticks:
    return ticks.day(11, COUNT)


@pytest.fixture(scope="module")
def log(market: ticks.Ticks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "log"
    with holdfast.create_log(path, segment_size_max=400_000) as owner:
        for at in range(0, COUNT, 5000):
            owner.append([market[i : i + 1].tobytes() for i in range(at, at + 5000)])
    return path


def test_a_killed_worker_costs_nothing(
    spark: SparkSession, market: ticks.Ticks, log: Path, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    make_store(tmp_path / "prices")
    flow = streams.Streams(spark, log, tmp_path, market)
    streaming, made = flow.run(lambda *step: told.append(step))
    assert streaming.worker_kills
    assert streaming.failed_tasks >= 1
    assert streaming.rows == COUNT
    assert np.array_equal(made, bars.make_bars(market))
    assert (streaming.bars_differing, streaming.prices_differing) == (0, 0)
    assert streaming.prices == len(bars.make_prices(market))
    assert [batch.number for batch in streaming.batches] == list(range(streams.BATCHES))
    assert sum(batch.rows for batch in streaming.batches) == COUNT
    assert told[-1] == (COUNT, COUNT)
    # A tick too many in the ledger would show.
    assert bars.differing(made, bars.make_bars(market[:-1])) == 1


def test_the_whole_demo(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo", "--seconds", "2", "--seed", "4", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["held"]
    assert (told["lost"], told["invented"], told["doubled"]) == (0, 0, 0)
    assert told["kills"] >= 2
    stores = told["stores"]
    streaming = stores["streaming"]
    assert streaming["rows"] == told["acknowledged"] == 60_000
    assert (streaming["bars_differing"], streaming["prices_differing"]) == (0, 0)
    assert streaming["worker_kills"]
    assert streaming["failed_tasks"] >= 1
    assert stores["rollup"]["bars"] == {"1H": 6 * 7, "1D": 6}
    assert stores["upkeep"]["deleted"] > 0
    assert stores["upkeep"]["objects_after"] < stores["upkeep"]["objects_before"]
    assert stores["fencing"]["successor"] > stores["fencing"]["epoch"]
    assert "fenced" in stores["fencing"]["why"]
    assert [scrub["verdict"] for scrub in told["scrubs"]] == ["clean"] * 3
    assert told["facts"]["Spark"].startswith("4.")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    report = (tmp_path / "report.html").read_text()
    assert f"worker {streaming['worker_kills'][0]['pid']} killed -9" in report


def test_decoding_refuses_what_is_no_tick() -> None:
    batch = pa.record_batch({"index": pa.array([1]), "payload": pa.array([b"short"])})
    with pytest.raises(pa.ArrowInvalid):
        next(streams.decode_ticks(iter([batch])))
