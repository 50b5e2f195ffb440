"""What Spark knows better: schemas, SQL, columns and output modes; all at once, no row read."""

from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.pipelines.samples import FOUR_SINKS, write, write_ticks

from holdfast.spark.pipelines import read, validate
from holdfast.spark.pipelines.frames import build, lineage

WRONG = """
name = "wrong"
checkpoint = "state"
nonsense = 1

[source.ticks]
format = "holdfast-log"
path = "ticks-log"
parse = "json"
schema = "symbol STRIN"

[source.raw]
format = "holdfast-log"
path = "ticks-log"

[step.typo]
sql = "SELECT * FROM rw"

[step.early]
sql = "SELECT * FROM counts"

[step.syntax]
sql = "SELEC payload FROM raw"

[step.column]
sql = "SELECT paylod FROM raw"

[step.fixed]
sql = "SELECT 1 AS a"

[step.counts]
sql = "SELECT payload, count(*) AS n FROM raw GROUP BY payload"

[step.of_wrong]
sql = "SELECT * FROM typo"

[step.fails]
function = "steps:fails"

[step.own_stream]
function = "steps:own_stream"

[sink.own_stream]
from = "own_stream"
format = "parquet"
path = "own-stream"

[sink.lines]
from = "counts"
format = "holdfast-log"
path = "lines"

[sink.keys]
from = "raw"
format = "holdfast-kv"
path = "keys"

[sink.fixed]
from = "fixed"
format = "parquet"
path = "fixed"

[sink.files]
from = "counts"
format = "parquet"
path = "files"

[sink.unknown]
from = "syntax"
format = "parquet"
path = "unknown"
"""


OWN_STREAM = """
def own_stream(raw):
    return raw.sparkSession.readStream.format("rate").load()
"""


def test_validate_reports_all_that_spark_would_refuse(spark: SparkSession, tmp_path: Path) -> None:
    write_ticks(tmp_path / "ticks-log", 1, 1)
    write(tmp_path / "steps.py", "def fails(raw):\n    return raw.nothing\n\n" + OWN_STREAM)
    file = write(tmp_path / "wrong.toml", WRONG)
    found = [(problem.key, problem.what) for problem in validate(spark, file)]
    expected = [
        ("nonsense", "remove it: unknown key"),
        ("source.ticks", '[UNSUPPORTED_DATATYPE] Unsupported data type "STRIN"'),
        ("step.typo", "no source or step is called rw; did you mean raw?"),
        ("step.early", "move step.counts before it: a step sees sources and earlier steps"),
        ("step.syntax", "[PARSE_SYNTAX_ERROR] Syntax error"),
        ("step.column", "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        ("step.fails", ""),
        ("sink.own_stream.from", "own_stream reads a stream that is not declared: declare it"),
        ("sink.lines", "select only the column payload and that of orderBy, not payload, n"),
        ("sink.lines.mode", "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]"),
        ("sink.keys", ""),
        ("sink.fixed.from", "name what reads a source: fixed is the same in every batch"),
        ("sink.files.mode", "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]"),
    ]
    assert [key for key, _ in found] == [key for key, _ in expected]
    for (key, what), (_, start) in zip(found, expected, strict=True):
        assert what.startswith(start), key
        assert "\n" not in what
        assert "SQLSTATE" not in what


def test_a_frame_knows_what_it_is_made_of(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("ticks-log", "other-log"):
        write_ticks(tmp_path / name, 1, 1)
    more = """
[source.other]
format = "holdfast-log"
path = "other-log"

[step.both]
sql = "SELECT payload FROM other UNION ALL SELECT payload FROM lines"
"""
    declared = read(write(tmp_path / "ticks.toml", FOUR_SINKS + more))
    frames = build(spark, declared)
    assert frames.problems == []
    both = lineage(frames.views["both"])
    assert both.sources == ("other", "ticks"), "in the order of Spark's offsets"
    assert both.views == {"both", "other", "lines", "ticks"}
    assert frames.bad is not None
    assert lineage(frames.bad).sources == ("ticks",)
    assert "ticks" not in [view.name for view in spark.catalog.listTables()], "a session of its own"
