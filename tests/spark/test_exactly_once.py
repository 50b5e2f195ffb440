"""Every row exactly once, whenever a driver is killed.  For executors: test_cluster.py."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.samples import contents, make_log, payload, staged

# A sink whose driver is killed just before its commit in one batch, just after it in another.
_STREAM = """
import os, signal, sys
from pathlib import Path
from holdfast.spark import session
from holdfast.spark.logs import LogSource
from holdfast.spark.sinks import StreamWriter

SOURCE, TARGET = sys.argv[1:]

DRIVER = os.getpid()  # this script travels to the workers by value, and the number with it

class Deadly(StreamWriter):
    def commit(self, messages, batchId):
        self._perhaps_die(batchId, 1)
        super().commit(messages, batchId)
        self._perhaps_die(batchId, 2)

    def _perhaps_die(self, batch, fatal):
        marker = Path(f"{TARGET}.killed-{fatal}")
        if batch == fatal and not marker.exists():
            marker.touch()
            children = Path(f"/proc/{DRIVER}/task/{DRIVER}/children").read_text().split()
            for pid in (*map(int, children), DRIVER):  # the JVM and Python, in mid step
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # or this process would go on to commit

class DeadlyLog(LogSource):
    @classmethod
    def name(cls):
        return "deadly-log"

    def streamWriter(self, schema, overwrite):
        return Deadly(self.target(self._parsed, schema), self._parsed)

# It lives for seconds, so the second compiler would only take time from the rest.
spark = session(
    "local[2,4]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
)
spark.dataSource.register(DeadlyLog)
rows = spark.readStream.format("holdfast-log").option("maxEntriesPerTrigger", 12)
rows = rows.option("columns", "payload").load(SOURCE)
stream = rows.writeStream.format("deadly-log").option("checkpointLocation", TARGET + ".checkpoint")
stream.trigger(availableNow=True).start(TARGET).awaitTermination()
"""


def _run(source: Path, target: Path) -> int:
    command = [sys.executable, "-c", _STREAM, str(source), str(target)]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=240).returncode


def test_a_driver_killed_around_its_commits_loses_and_doubles_nothing(
    tmp_path: Path, class_cache: Path
) -> None:
    source, target = make_log(tmp_path / "source"), tmp_path / "target"
    assert _run(source, target) == -signal.SIGKILL
    assert (tmp_path / "target.killed-1").exists()
    assert contents(target) == [payload(index) for index in range(1, 13)], "not committed"
    assert _run(source, target) == -signal.SIGKILL
    assert (tmp_path / "target.killed-2").exists()
    assert contents(target) == [payload(index) for index in range(1, 37)], "committed"
    assert not (tmp_path / "target.checkpoint" / "commits" / "2").exists()
    assert _run(source, target) == 0
    assert contents(target) == contents(source)
    assert not staged(target), "orphans of the killed runs"
