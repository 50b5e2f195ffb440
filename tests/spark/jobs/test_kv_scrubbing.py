from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.kv_samples import make_store, manifest

from holdfast.spark.jobs import scrub_kv


def test_a_damaged_block_is_found_wherever_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    report = scrub_kv(spark, str(path))
    assert report.verdict == "clean"
    assert report.rows > 3000
    damaged = path / f"levels/{int(manifest(path).sst_ids[-1]):020}.sst"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 1
    damaged.write_bytes(data)
    (problem,) = scrub_kv(spark, str(path)).problems
    assert problem.name == f"levels/{damaged.name}"
    assert "checksum" in problem.why
