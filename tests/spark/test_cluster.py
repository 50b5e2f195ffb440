"""The same code on a real standalone cluster, where an executor dies and a task has a twin."""

import json
from pathlib import Path

from tests.spark.cluster import WORKER_HOSTS, cluster
from tests.spark.samples import contents

_DRIVER = """
import json, os, signal, sys, time
from pathlib import Path
from holdfast.spark import session

url, target = sys.argv[1:]
spark = session(url, config={
    "spark.cores.max": "2", "spark.executor.memory": "512m", "spark.speculation": "true",
    "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.5",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
})

def where(batches):
    import holdfast.errors, pyarrow
    for batch in batches:
        host = os.environ["SPARK_LOCAL_IP"]
        row = {"rows": [batch.num_rows], "host": [host], "file": [holdfast.__file__]}
        yield pyarrow.RecordBatch.from_pydict(row)

def trouble(batches):
    from pyspark import TaskContext
    partition, attempt = TaskContext.get().partitionId(), TaskContext.get().attemptNumber()
    yield from batches
    if (partition, attempt) == (0, 0):
        Path(f"{target}.killed").touch()
        pid = os.getpid()
        while Path(f"/proc/{pid}/comm").read_text() != "java\\n":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
    if partition == 7:
        if attempt == 0:
            deadline = time.monotonic() + 200
            while not Path(f"{target}.twin").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(1)  # until the twin has overtaken us
        else:
            Path(f"{target}.twin").touch()

found = spark.range(0, 1000, 1, 8).mapInArrow(where, "rows long, host string, file string")
print(json.dumps([row.asDict() for row in found.collect()]), flush=True)
rows = spark.range(0, 800, 1, 8).selectExpr("cast(cast(id AS STRING) AS BINARY) AS payload")
rows = rows.mapInArrow(trouble, "payload BINARY")
rows.write.format("holdfast-log").mode("append").save(target)
read = spark.read.format("holdfast-log").load(target)
print(json.dumps([read.count(), read.select("payload").distinct().count()]), flush=True)
"""


def test_workers_run_the_drivers_holdfast_and_neither_a_killed_executor_nor_a_twin_doubles_a_row(
    tmp_path: Path, class_cache: Path
) -> None:
    target = tmp_path / "log"
    with cluster(tmp_path) as running:
        with running.driver(_DRIVER, str(target)) as driver:
            assert driver.stdout is not None
            rows = json.loads(driver.stdout.readline())
            assert sum(row["rows"] for row in rows) == 1000
            assert {row["host"] for row in rows} <= set(WORKER_HOSTS)
            assert all(".zip" in row["file"] for row in rows), "it was not ours that ran"
            assert json.loads(driver.stdout.readline()) == [800, 800]
        pids = [process.pid for process in running.workers.values()]
    assert (tmp_path / "log.killed").exists()
    assert (tmp_path / "log.twin").exists()
    assert contents(target) == [b"%d" % i for i in range(800)]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
