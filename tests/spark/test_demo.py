"""The demo with a real Spark, whose Python workers really die."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.demo import bars, streams, ticks


def test_one_tick_more_or_less_shows() -> None:
    market = ticks.day(11, 40_000)
    made = bars.make_bars(market)
    assert bars.differing(made, bars.make_bars(market)) == 0
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
    assert [batch["number"] for batch in streaming["batches"]] == list(range(streams.BATCHES))
    assert sum(batch["rows"] for batch in streaming["batches"]) == 60_000
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
