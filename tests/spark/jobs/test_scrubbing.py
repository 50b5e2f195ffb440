from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.samples import SEGMENTS, make_log, overwrite, rot, tree

from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError
from holdfast.logs.verify import verify_log
from holdfast.spark.jobs import scrub


def harm(path: Path, how: str) -> Path:
    if how == "rot":
        rot(path, SEGMENTS[1], 4)
    elif how == "header":
        overwrite(path, SEGMENTS[2], 0, b"GARBAGE!")
    elif how == "missing":
        (path / SEGMENTS[1]).unlink()
    elif how == "torn":
        with (path / SEGMENTS[3]).open("ab") as file:
            file.write(b"\0\0\0\x09torn")
    elif how == "tail":
        rot(path, SEGMENTS[3], 5)
    return path


def test_verdicts_are_those_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"clean": 0, "rot": 2, "header": 2, "missing": 2, "torn": 3, "tail": 2}
    paths = [str(harm(make_log(tmp_path / how), how)) for how in kinds]
    before = tree(tmp_path)
    report = scrub(spark, paths)
    assert [verify_log(OsDisk(path)) for path in paths] == list(report.logs)
    assert [log.verdict != "clean" for log in report.logs] == [code != 0 for code in kinds.values()]
    assert (report.verdict, report.exit_code) == ("corrupt", 2)
    assert tree(tmp_path) == before, "a guest changes nothing"


def test_exit_codes_are_those_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    clean = str(make_log(tmp_path / "clean"))
    torn = str(harm(make_log(tmp_path / "torn"), "torn"))
    assert scrub(spark, [clean]).exit_code == 0
    assert scrub(spark, [clean, torn]).exit_code == 3
    with pytest.raises(HoldfastError, match="does not exist"):
        scrub(spark, [str(tmp_path / "nowhere")])
