"""Spark's own pipelines with our source and sinks, as docs/pipelines.md has it."""

import os
import re
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.spark.pipelines.samples import entries, write, write_ticks
from tests.spark.pipelines.test_page import PAGE

from holdfast.doors import open_kv
from holdfast.spark.java import find_java, home_for_launchers

pytestmark = pytest.mark.skipif(
    find_spec("grpc_status") is None, reason="needs pip install 'holdfast[declarative]'"
)

_RUNS_MAX = 3


def _block(kind: str, directory: Path) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].replace("/srv/copies", str(directory))


def _run(directory: Path) -> None:
    """Each starts a Spark Connect server of its own, which lives for seconds.

    Spark may lose a process of its own on a busy machine, and then tries a flow three times.  A run
    that failed is run again, as the page says; what it printed is a warning of this test.
    """
    for attempt in range(_RUNS_MAX):
        ran = _run_once(directory)
        if ran.returncode == 0:
            assert "Run is COMPLETED" in ran.stdout
            return
        why = [line for line in ran.stdout.splitlines() if "Error" in line or "Caused by" in line]
        warnings.warn(f"run {attempt + 1} failed: {'; '.join(why[-6:])}", stacklevel=1)
    pytest.fail("\n".join([ran.stdout, *why]))


def _run_once(directory: Path) -> "subprocess.CompletedProcess[str]":
    binaries = Path(sys.executable).parent
    environment = {
        "JAVA_HOME": str(home_for_launchers(find_java())),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # a port that is free, instead of always the same
    }
    return subprocess.run(
        [binaries / "spark-pipelines", "run"],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.filterwarnings("default:run [0-9] failed")
def test_declarative_pipelines_read_and_write_our_stores_once(tmp_path: Path) -> None:
    write(tmp_path / "spark-pipeline.yml", _block("yaml", tmp_path))
    (tmp_path / "transformations").mkdir()
    write(tmp_path / "transformations" / "copies.py", _block("python declarative", tmp_path))
    write_ticks(tmp_path / "ticks-log", 1, 20)
    for last in (20, 30):
        if last == 30:
            write_ticks(tmp_path / "ticks-log", 21, last)
        _run(tmp_path)
        assert entries(tmp_path / "copy") == entries(tmp_path / "ticks-log")
        with open_kv(str(tmp_path / "prices"), create=True) as db:
            assert len(list(db.items())) == last
