"""The same code on a real standalone cluster."""

import json
import os
import signal
from pathlib import Path
from subprocess import Popen

from tests.spark.cluster import WORKER_HOSTS, cluster, wait_until

_DRIVER = """
import json, sys
from holdfast.spark import session

def where(batches):
    import holdfast.errors, os, pyarrow
    for batch in batches:
        host = os.environ["SPARK_LOCAL_IP"]
        row = {"rows": [batch.num_rows], "host": [host], "file": [holdfast.__file__]}
        yield pyarrow.RecordBatch.from_pydict(row)

spark = session(sys.argv[1], config={
    "spark.cores.max": "2", "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
})
for line in sys.stdin:
    found = spark.range(0, 1000, 1, 8).mapInArrow(where, "rows long, host string, file string")
    print(json.dumps([row.asDict() for row in found.collect()]), flush=True)
"""


def _run(driver: "Popen[str]") -> list[dict[str, str]]:
    assert driver.stdin is not None
    assert driver.stdout is not None
    print("again", file=driver.stdin, flush=True)
    rows = json.loads(driver.stdout.readline())
    assert sum(row["rows"] for row in rows) == 1000
    return list(rows)


def test_workers_run_the_drivers_holdfast_and_survive_the_loss_of_an_executor(
    tmp_path: Path, class_cache: Path
) -> None:
    with cluster(tmp_path) as running:
        with running.driver(_DRIVER) as driver:
            rows = _run(driver)
            assert {row["host"] for row in rows} <= set(WORKER_HOSTS)
            assert all(".zip" in row["file"] for row in rows), "it was not ours that ran"
            wait_until(lambda: all(running.executor_pids().values()), "an executor on each host")
            victim = running.executor_pids()[WORKER_HOSTS[0]][0]
            os.kill(victim, signal.SIGKILL)
            assert _run(driver)
        pids = [process.pid for process in running.workers.values()]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
