"""The Python of docs/spark.md, run from top to bottom."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.spark.bar_options import BarOptions
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.log_options import LogOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"

pytestmark = pytest.mark.spark


def test_the_page_is_real(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark resolves relative paths where its JVM was started, a reader of the page where he is.
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 9
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(_in(tmp_path, block), str(PAGE), "exec"), names)


def _in(directory: Path, code: str) -> str:
    """Names of directories made absolute: they are the words that the page makes itself."""
    made = "ticks|damaged|parquet|news|totals|again|larger|replayed|ticks.json|replayed.checkpoint"
    made += "|smaller|bars|bars.again|hours"
    made += "|stock|copy|copy.checkpoint|stock.parquet|stock.again"
    pattern = rf'(?<!format\()(?<!Place\()"({made})"(?!: "replay)'
    return re.sub(pattern, lambda match: f'"{directory}/{match[1]}"', code)


def test_every_option_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    added_by_spark = {"path", "paths", "checkpointLocation", "queryName"}
    sources = (LogOptions, KvOptions, BarOptions)
    ours = {name for source in sources for name in source.known()} - added_by_spark
    assert not [name for name in ours if f"`{name}`" not in text]
