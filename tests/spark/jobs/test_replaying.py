from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.samples import append, contents, make_log, payload

from holdfast.spark.jobs import replay


def test_a_replay_is_taken_up_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    source, target = make_log(tmp_path / "source"), tmp_path / "out"

    def run(start: int | str = "earliest", entries: int | None = None) -> tuple[object, ...]:
        report = replay(
            spark,
            str(source),
            "parquet",
            {"path": str(target)},
            checkpoint=str(tmp_path / "checkpoint"),
            start=start,
            entries_per_batch=entries,
        )
        return report.first_index, report.last_index, report.entries, report.batches

    assert run(start=6, entries=15) == (6, 40, 35, 3)
    assert run() == (None, None, 0, 0)
    append(source, [payload(41), payload(42)])
    assert run() == (41, 42, 2, 1)
    rows = spark.read.parquet(str(target)).collect()
    assert sorted(row["index"] for row in rows) == list(range(6, 43))


def test_a_log_can_be_replayed_into_a_log(spark: SparkSession, tmp_path: Path) -> None:
    source, target = make_log(tmp_path / "source"), tmp_path / "target"
    options = {"path": str(target)}
    for _ in range(2):
        replay(spark, str(source), "holdfast-log", options, checkpoint=str(tmp_path / "c"))
    assert contents(target) == contents(source)
