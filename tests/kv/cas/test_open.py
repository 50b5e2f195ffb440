from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.bucket import DirectoryBucket, MemoryBucket
from holdfast.errors import UnsupportedError
from holdfast.kv.cas import Record, TwoPhaseBucket, open_bucket, open_records


def test_without_records_the_store_itself_decides(tmp_path: Path) -> None:
    assert isinstance(open_bucket(str(tmp_path / "kv")), DirectoryBucket)
    assert isinstance(open_bucket("memory://cas", "native"), MemoryBucket)


def test_two_writers_with_the_same_records_cannot_both_win(tmp_path: Path) -> None:
    cas = f"sqlite://{tmp_path}/records.db"
    one, two = open_bucket("memory://two", cas), open_bucket("memory://two/?x=1", cas)
    assert isinstance(one, TwoPhaseBucket)
    one.put_if_absent("wal/1", b"one")
    with pytest.raises(FileExistsError):
        two.put_if_absent("wal/1", b"two")
    assert two.get("wal/1") == b"one"
    other = open_bucket("memory://three", cas)  # another store in the same file
    other.put_if_absent("wal/1", b"three")
    for bucket in (one, two, other):
        assert isinstance(bucket, TwoPhaseBucket)
        bucket.close()


def test_a_directory_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cas = f"sqlite://{tmp_path}/records.db"
    monkeypatch.chdir(tmp_path)
    open_bucket("kv", cas).put_if_absent("wal/1", b"one")
    for url in (str(tmp_path / "kv"), f"file://{tmp_path}/kv/", "./kv"):
        bucket = open_bucket(url, cas)
        with pytest.raises(FileExistsError):
            bucket.put_if_absent("wal/1", b"two")
        assert isinstance(bucket, TwoPhaseBucket)
        (tmp_path / "kv" / "wal" / "2~dead").write_bytes(b"half")
        assert bucket.sweep(1 << 60) == 1
        bucket.close()


def test_opening_recovers(tmp_path: Path) -> None:
    cas = f"sqlite://{tmp_path}/records.db"
    open_bucket("memory://recover", cas)
    bare = open_bucket("memory://recover", "native")
    bare.put_if_absent("wal/1.temporary", b"promised")
    records = open_records(cas, "memory://recover")
    records.insert("wal/1", "wal/1.temporary", 0)
    assert open_bucket("memory://recover", cas).get("wal/1") == b"promised"
    assert records.find("wal/1") == Record("wal/1", "wal/1.temporary", committed=True)


def test_a_writer_without_the_records_is_refused(tmp_path: Path) -> None:
    cas = f"sqlite://{tmp_path}/records.db"
    open_bucket("memory://mixed", cas).put_if_absent("wal/1", b"1")
    with pytest.raises(UnsupportedError, match=r"two-phase writes.*cas="):
        open_bucket("memory://mixed")
    with pytest.raises(UnsupportedError, match="not the records of memory://mixed"):
        open_bucket("memory://mixed", f"sqlite://{tmp_path}/other.db")
    again = open_bucket("memory://mixed", cas)
    assert [info.name for info in again.list("")] == ["wal/1"]
    assert open_bucket("memory://mixed", "native").get("wal/1") == b"1"


def test_many_may_open_an_empty_bucket_at_once(tmp_path: Path) -> None:
    cas = f"sqlite://{tmp_path}/records.db"

    def use(writer: int) -> None:
        bucket = open_bucket("memory://crowd", cas)
        bucket.put_if_absent(f"wal/{writer}", b"1")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(16)))
    assert len(open_bucket("memory://crowd", cas).list("wal")) == 16


def test_objects_without_records_are_not_overwritten(tmp_path: Path) -> None:
    bare = open_bucket("memory://before")
    bare.put_if_absent("wal/1", b"1")
    with pytest.raises(UnsupportedError, match="without records"):
        open_bucket("memory://before", f"sqlite://{tmp_path}/records.db")
    assert [info.name for info in bare.list("")] == ["wal/1"]


def test_a_scope_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = open_records("sqlite:r.db?scope=orders", "s3://a")
    two = open_records(f"sqlite://{tmp_path}/r.db?scope=orders", "s3://b")
    three = open_records(f"sqlite://{tmp_path}/r.db", "s3://b/mit Umlaut ä")
    one.insert("wal/1", "a", 0)
    assert two.insert("wal/1", "b", 0).source == "a"
    assert three.insert("wal/1", "b", 0).source == "b"


def test_other_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown scheme oracle://"):
        open_bucket("memory://x", "oracle://secret@host/db")
