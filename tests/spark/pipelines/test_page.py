"""docs/pipelines.md, run from top to bottom."""

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.spark.pipelines.checking import _KEYS, SINKS, SOURCES

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"
FILES = {"toml": "ticks.toml", "python pipeline": "ticks.py"}
_BLOCK = re.compile(r"```(toml|python pipeline|python|console)\n(.*?)```", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")


def test_the_page_is_real(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    text = PAGE.read_text(encoding="utf-8").partition("## Spark Declarative Pipelines")[0]
    for kind, code in _BLOCK.findall(text):
        if kind in FILES:
            (tmp_path / FILES[kind]).write_text(code)
        elif kind == "python":
            exec(compile(code, str(PAGE), "exec"), names)
        else:
            for step in re.split(r"^\$ holdfast ", code, flags=re.M)[1:]:
                command, _, expected = step.partition("\n")
                ran = CliRunner().invoke(app, shlex.split(command))
                shown = _TIME.sub("2026-01-05 14:32:00Z", ran.stdout)
                assert shown == expected, (command, ran.stderr)


def test_every_key_and_format_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind, keys in _KEYS.items():
        for key in keys.split():
            entry = f"`[{key}" if not kind and key in _KEYS else f"`{key}`"
            assert entry in text, key
    assert not [format for format in (*SOURCES, *SINKS) if f"`{format}`" not in text]
