from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

import holdfast
from holdfast.doors import manage_kv
from holdfast.errors import ExistsError, NotFoundError, UnsupportedError
from holdfast.formats.sst.rows import Rows, binary, numbers
from holdfast.kv.admin import KvAdmin


def chunk(**pairs: bytes | None) -> Rows:
    keys = [key.encode() for key in pairs]
    return Rows(binary(keys), binary(list(pairs.values())), numbers(np.zeros(len(keys), np.uint64)))


def rows(path: Path, at: int | None = None) -> dict[bytes, bytes]:
    with holdfast.read_kv(path, lazy=True, at=at) as reader:
        return dict(reader.items())


def test_a_store_is_created_once(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        manage_kv(tmp_path / "kv")
    assert not (tmp_path / "kv").exists()
    assert manage_kv(tmp_path / "kv", create=True).is_new
    assert not manage_kv(tmp_path / "kv", create=True).is_new
    assert rows(tmp_path / "kv") == {}


def test_a_store_is_not_created_among_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"notes\.txt"):
        manage_kv(tmp_path, create=True)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_live_writer_continues_while_an_administrator_works(tmp_path: Path) -> None:
    with holdfast.create_kv(tmp_path, gc_min_age_ms=1, maintain=False) as kv:
        kv.put(b"a", b"1").result()
        admin = manage_kv(tmp_path)
        before = admin.create_snapshot(60_000)
        loaded = admin.load([chunk(c=b"3", b=b"2"), chunk(c=b"4")])
        assert (loaded.loaded, loaded.rows_read, loaded.rows) == (True, 3, 2)
        assert admin.compact(everything=True).rows_read == 3
        admin.gc()
        kv.put(b"d", b"5").result()
        kv.refresh()
        assert kv.get(b"c") == b"4"
    assert rows(tmp_path) == {b"a": b"1", b"b": b"2", b"c": b"4", b"d": b"5"}
    assert rows(tmp_path, at=before.manifest_id) == {b"a": b"1"}
    assert admin.verify().verdict == "clean"


def test_a_transaction_is_loaded_once(tmp_path: Path) -> None:
    admin = manage_kv(tmp_path, create=True)
    assert not admin.has_transaction(("query", 1))
    assert admin.load([chunk(a=b"1")], transaction=("query", 1)).loaded
    assert admin.has_transaction(("query", 1))
    assert not admin.load([chunk(a=b"2")], transaction=("query", 1)).loaded
    assert rows(tmp_path) == {b"a": b"1"}


def test_a_failed_load_leaves_no_job(tmp_path: Path) -> None:
    admin = manage_kv(tmp_path, create=True)
    with pytest.raises(ValueError, match="does not follow"):
        admin.load([chunk(b=b"1"), chunk(a=b"2")], is_sorted=True)
    assert rows(tmp_path) == {}
    assert [job for job in admin.manifest().jobs if not job.done] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.load([]),
        lambda admin: admin.compact(),
        lambda admin: admin.gc(),
        lambda admin: admin.create_snapshot(1000),
        lambda admin: admin.extend_snapshot(UUID(int=1), 1000),
        lambda admin: admin.drop_snapshots(UUID(int=1)),
    ],
    ids=["load", "compact", "gc", "create", "extend", "drop"],
)
def test_a_read_only_administrator_writes_nothing(
    call: Callable[[KvAdmin], object], tmp_path: Path
) -> None:
    manage_kv(tmp_path, create=True)
    admin = manage_kv(tmp_path, read_only=True)
    before = admin.manifests()
    with pytest.raises(UnsupportedError, match="read_only"):
        call(admin)
    admin.status(), admin.verify(), admin.snapshots(), admin.plan_gc()
    assert admin.manifests() == before
