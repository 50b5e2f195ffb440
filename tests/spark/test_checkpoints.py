"""What Spark has written of a batch is durable before the sink commits it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.spark.samples import tree

from holdfast.bars.staging import Staged
from holdfast.bucket import connect
from holdfast.disk import OsDisk
from holdfast.kv.bulk import BulkLoad
from holdfast.kv.plans import CompactionOptions
from holdfast.logs.staging import stage
from holdfast.posix import Posix
from holdfast.runtime import Runtime
from holdfast.spark import sinks
from holdfast.spark.bars import BarSource
from holdfast.spark.checkpoints import settle
from holdfast.spark.kv import KvSource
from holdfast.spark.kv_sink import WrittenRuns
from holdfast.spark.logs import LogSource


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is synced, as it is synced."""
    names: list[str] = []
    sync, sync_directory = Posix.fdatasync, Posix.sync_directory

    def of_file(self: Posix, fd: int) -> None:
        names.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(self, fd)

    def of_directory(self: Posix, directory: str | int) -> None:
        is_open = isinstance(directory, int)
        path = Path(f"/proc/self/fd/{directory}").readlink() if is_open else directory
        names.append(f"{path}/")
        sync_directory(self, directory)

    monkeypatch.setattr(Posix, "fdatasync", of_file)
    monkeypatch.setattr(Posix, "sync_directory", of_directory)
    return names


def _checkpoint(root: Path, batches: int) -> None:
    """As it is when the last batch is about to be committed; each batch took an hour."""
    now = time.time_ns()
    for batch in range(batches):
        for number, name in enumerate(("offsets", "state/0/1", "commits")):
            if name == "commits" and batch == batches - 1:
                break
            file = root / name / (f"{batch}.delta" if number == 1 else str(batch))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("v1")
            then = now - (batches - batch) * 3600 * 10**9 + number * 60 * 10**9
            os.utime(file, ns=(then, then))
    (root / "metadata").write_text("{}")
    os.utime(root / "metadata", ns=(0, 0))


def test_what_is_new_is_synced_with_the_names_above_it(tmp_path: Path, synced: list[str]) -> None:
    root = tmp_path / "checkpoint"
    _checkpoint(root, 1)
    settle(str(root), 0)
    files = {"metadata", "offsets/0", "state/0/1/0.delta"}
    names = {"", "offsets/", "state/", "state/0/", "state/0/1/"}
    assert sorted(synced) == sorted(f"{root}/{name}" for name in (*files, *names))

    synced.clear()
    _checkpoint(root, 3)
    settle(root.as_uri(), 2)
    assert sorted(name for name in synced if not name.endswith("/")) == [
        f"{root}/{name}" for name in ("commits/1", "offsets/2", "state/0/1/2.delta")
    ]


def test_what_is_elsewhere_is_left_alone(tmp_path: Path, synced: list[str]) -> None:
    for location in (None, "hdfs://name/checkpoint", str(tmp_path / "nowhere")):
        settle(location, 0)
    assert synced == []


class _NotDurableError(Exception):
    """Stands for a disk that refuses."""


def _log(path: Path, options: dict[str, str]) -> Callable[[], None]:
    schema = StructType.fromJson(_fields(payload="binary"))
    writer = LogSource(options).streamWriter(schema, False)
    part = stage(OsDisk(path), "none-1-a", 0, [pa.record_batch({"payload": [b"x"]})])
    return lambda: writer.commit([sinks.Staged(0, part, "query")], 3)


def _kv(path: Path, options: dict[str, str]) -> Callable[[], None]:
    schema = StructType.fromJson(_fields(key="binary", value="binary"))
    writer = KvSource(options).streamWriter(schema, False)
    load = BulkLoad(connect(str(path)), Runtime(), CompactionOptions(), transaction=("query", 3))
    part = sinks.Staged(0, WrittenRuns(load.job), "query")
    return lambda: writer.commit([part], 3)


def _bars(path: Path, options: dict[str, str]) -> Callable[[], None]:
    schema = StructType.fromJson(_fields(symbol="string", epoch_ns="long", Price="double"))
    more = {"timeframe": "1Min", "attributes": "TICK"}
    writer = BarSource({**options, **more}).streamWriter(schema, False)
    part = sinks.Staged(0, Staged("staging/none", 0, 0, 0, "1Min"), "query")
    return lambda: writer.commit([part], 3)


def _fields(**types: str) -> dict[str, object]:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize("prepare", [_log, _kv, _bars])
def test_no_sink_commits_before(
    prepare: Callable[[Path, dict[str, str]], Callable[[], None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(location: str | None, batch: int) -> None:
        assert (location, batch) == ("/checkpoint", 3)
        raise _NotDurableError

    path = tmp_path / "store"
    commit = prepare(path, {"path": str(path), "checkpointLocation": "/checkpoint"})
    monkeypatch.setattr(sinks, "settle", refuse)
    before = tree(path) if path.exists() else {}
    with pytest.raises(_NotDurableError):
        commit()
    assert (tree(path) if path.exists() else {}) == before
