"""Files become tables, whatever they are written in."""

from pathlib import Path

import pytest
from tests.spark.pipelines.samples import write

from holdfast.spark.pipelines import InvalidError, Pipeline, read
from holdfast.spark.pipelines.reading import find_function, read_tables

MODULE = """
from holdfast.spark.pipelines import Pipeline
import neighbour

pipeline = Pipeline("doubles", checkpoint="state", trigger="every 5s")
pipeline.source("numbers", format="rate")

@pipeline.step
def doubled(numbers):
    return numbers.selectExpr(f"value * {neighbour.TWO} AS value")

pipeline.sql("named", "SELECT value AS double FROM doubled")
pipeline.sink("out", view="named", format="parquet", path="out")
"""


def test_a_module_is_the_same_tables_as_toml(tmp_path: Path) -> None:
    write(tmp_path / "neighbour.py", "TWO = 2")
    declared = read(write(tmp_path / "doubles.py", MODULE))
    assert (declared.name, declared.checkpoint) == ("doubles", str(tmp_path / "state"))
    assert (declared.trigger.kind, declared.trigger.every_ms) == ("continuous", 5000)
    doubled, named = declared.steps
    assert doubled.function is not None
    assert doubled.function.__name__ == doubled.name == "doubled"
    assert named.sql == "SELECT value AS double FROM doubled"
    assert (declared.sinks[0].view, declared.sinks[0].path) == ("named", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "name = ", "correct the TOML: "),
        ("a.yaml", "", "name it .toml or .py"),
        ("a.py", "1 / 0", "the module fails: ZeroDivisionError"),
        ("a.py", "", "the module needs one variable with a Pipeline, not 0"),
    ],
)
def test_an_unreadable_file_is_reported(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        read_tables(write(tmp_path / name, text))


def test_a_missing_file_can_be_created(tmp_path: Path) -> None:
    for name in ("a.toml", "a.py"):
        with pytest.raises(
            FileNotFoundError, match=r"`holdfast pipeline init .*a\.toml` writes one"
        ):
            read_tables(tmp_path / name)
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        read_tables(tmp_path / "loop.toml")


def test_a_source_name_is_unique() -> None:
    pipeline = Pipeline("p", checkpoint="c")
    pipeline.source("a", format="rate")
    with pytest.raises(ValueError, match="there is a 'a' already"):
        pipeline.source("a", format="rate")


def test_functions_are_found_beside_the_file_and_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "steps.py", "def half(a):\n    return a\n")
    assert find_function(tmp_path / "p.toml", "steps:half")(3) == 3
    assert find_function(tmp_path / "p.toml", "json:dumps")([]) == "[]"
    for wrong in ("steps:none", "nowhere:f", "steps"):
        with pytest.raises(ValueError, match=r"has no function|cannot be imported"):
            find_function(tmp_path / "p.toml", wrong)
