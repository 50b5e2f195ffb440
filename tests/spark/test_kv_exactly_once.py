"""Every row exactly once, whoever is killed and whenever; see test_exactly_once.py for logs."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.kv_samples import contents, key, manifest, open_db

from holdfast.bucket import connect
from holdfast.kv.gc import GarbageCollector, GcOptions

# Drivers that are killed: before the commit of one batch, after that of another, and before that
# of a bulk load.
_SCRIPT = """
import os, signal, sys
from pathlib import Path
from holdfast.spark import session
from holdfast.spark.kv import KvSource
from holdfast.spark.sinks import BatchWriter, StreamWriter

SOURCE, TARGET = sys.argv[1:]
DRIVER = os.getpid()  # this script travels to the workers by value, and the number with it

def perhaps_die(when, fatal):
    marker = Path(f"{TARGET}.killed-{fatal}")
    if when == fatal and not marker.exists():
        marker.touch()
        children = Path(f"/proc/{DRIVER}/task/{DRIVER}/children").read_text().split()
        for pid in (*map(int, children), DRIVER):  # the JVM and Python, in mid step
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # or this process would go on to commit

class DeadlyStream(StreamWriter):
    def commit(self, messages, batchId):
        perhaps_die(batchId, 1)
        super().commit(messages, batchId)
        perhaps_die(batchId, 2)

class DeadlyLoad(BatchWriter):
    def commit(self, messages):
        perhaps_die("load", "load")

class DeadlyKv(KvSource):
    @classmethod
    def name(cls):
        return "deadly-kv"

    def streamWriter(self, schema, overwrite):
        return DeadlyStream(self.target(self._parsed, schema), self._parsed)

    def writer(self, schema, overwrite):
        return DeadlyLoad(self.target(self._parsed, schema), self._parsed)

# It lives for seconds, so the second compiler would only take time from the rest.
spark = session(
    "local[2,4]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
)
spark.dataSource.register(DeadlyKv)
rows = spark.readStream.format("holdfast-kv").option("maxFilesPerTrigger", 2)
rows = rows.option("startingWalId", "earliest").load(SOURCE).select("key", "value", "deleted")
stream = rows.writeStream.format("deadly-kv").option("checkpointLocation", TARGET + ".checkpoint")
stream.trigger(availableNow=True).start(TARGET).awaitTermination()
load = spark.range(1000).selectExpr("concat('load/', id) AS key", "'never' AS value")
load.write.format("deadly-kv").mode("append").save(TARGET)
"""


def _run(source: Path, target: Path) -> int:
    command = [sys.executable, "-c", _SCRIPT, str(source), str(target)]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=240).returncode


def _batches(path: Path) -> list[int]:
    return [transaction.batch_id for transaction in manifest(path).transactions]


def test_drivers_killed_around_their_commits_lose_and_double_nothing(
    tmp_path: Path, class_cache: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open_db(source) as db:
        for number in range(6):  # with a fence and a deletion, four batches of two SSTs
            db.write({key(number): b"%d" % number, key(100 + number): b"old"}).result()
        db.delete(key(105)).result()
    assert _run(source, target) == -signal.SIGKILL
    assert (tmp_path / "target.killed-1").exists()
    assert _batches(target) == [0], "batch 1 is not committed"
    assert _run(source, target) == -signal.SIGKILL
    assert (tmp_path / "target.killed-2").exists()
    assert _batches(target) == [2], "batch 2 is committed, but Spark does not know"
    assert not (tmp_path / "target.checkpoint" / "commits" / "2").exists()
    assert _run(source, target) == -signal.SIGKILL
    assert (tmp_path / "target.killed-load").exists()
    assert contents(target) == contents(source)
    runs = len(manifest(target).runs)
    assert runs == _batches(target)[0] + 1, "each batch is one run, once"

    live = [job for job in manifest(target).jobs if not job.done]
    assert len(live) == 1, "the load that died; it expires"
    bucket = connect(str(target))
    named = {f"levels/{int(sst):020}.sst" for sst in manifest(target).sst_ids}
    assert named < {info.name for info in bucket.list("levels")}
    GarbageCollector(bucket, options=GcOptions(0, 0)).collect()
    assert named <= {info.name for info in bucket.list("levels")}
    assert contents(target) == contents(source)
