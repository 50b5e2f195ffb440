import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.kv_samples import SMALL, contents, key, make_store, manifest, open_db

from holdfast.bucket import connect
from holdfast.errors import FencedError
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.tasks import Merged, Task, merge_task
from holdfast.runtime import Runtime
from holdfast.spark.jobs import compact, compacting
from holdfast.spark.kv_options import address_of


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_TASK_SIZE_LEAST", 1 << 15)


@pytest.mark.parametrize("seed", range(3))
def test_spark_compacts_like_one_process_while_the_writer_continues(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    path = make_store(tmp_path / "kv", seed=seed)
    shutil.copytree(path, tmp_path / "twin")
    report = compact(spark, str(path), everything=True, options=SMALL)
    Compactor(connect(str(tmp_path / "twin")), options=SMALL).compact_everything()
    assert report.tasks > report.steps >= 2
    assert contents(path) == contents(tmp_path / "twin")
    (ours,), (theirs,) = manifest(path).runs, manifest(tmp_path / "twin").runs
    assert sum(sst.row_count for sst in ours) == sum(sst.row_count for sst in theirs)
    assert report.rows_written >= sum(sst.row_count for sst in ours)


def test_the_writer_continues_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    expected = contents(path)
    with open_db(path) as db:
        done = threading.Event()

        def run() -> None:
            try:
                compact(spark, str(path), everything=True, options=SMALL)
            finally:
                done.set()

        thread = threading.Thread(target=run)
        thread.start()
        number = 0
        while not done.is_set():
            db.put(key(number % 4000), b"live %d" % number).result()
            expected[key(number % 4000)] = b"live %d" % number
            number += 1
            done.wait(0.02)
        thread.join()
        db.refresh()
        assert dict(db.items()) == expected
    assert contents(path) == expected
    assert number > 3
    assert manifest(path).wal_id_last_compacted > 5


def test_twins_and_a_dead_driver_leave_only_garbage(tmp_path: Path) -> None:
    path = make_store(tmp_path / "kv")
    bucket, expected = connect(str(path)), contents(path)
    dead = Compactor(bucket, options=SMALL)
    plan = dead.plan()
    assert plan is not None
    lost = dead.begin(plan)

    def merged(task: Task) -> Merged:
        return merge_task(address_of(str(path)).open_proved(), task, Runtime())

    def merged_twice(tasks: Sequence[Task]) -> list[Merged]:
        return [(merged(task), merged(task))[1] for task in tasks]

    abandoned = [merged(task) for task in dead.tasks(lost)]

    Compactor(bucket, options=SMALL, merge=merged_twice).compact_everything()
    with pytest.raises(FencedError):
        dead.commit(lost, abandoned)
    assert contents(path) == expected
    GarbageCollector(bucket, options=GcOptions(0, 0)).collect()
    named = {f"levels/{int(sst):020}.sst" for sst in manifest(path).sst_ids}
    assert contents(path) == expected
    left = {info.name for info in bucket.list("levels")}
    assert named <= left
    Compactor(bucket, Runtime(), SMALL)  # ends the last compactor's spare job
    GarbageCollector(bucket, options=GcOptions(0, 0)).collect()
    assert {info.name for info in bucket.list("levels")} == named
