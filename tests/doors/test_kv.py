"""Key-value stores by path, URL and bucket."""

from pathlib import Path

import pytest

from holdfast.bucket import MemoryBucket
from holdfast.doors import create_kv, open_kv, read_kv
from holdfast.errors import ExistsError, NotFoundError


def test_a_path_a_string_a_url_and_a_bucket_name_a_store(tmp_path: Path) -> None:
    with create_kv(tmp_path / "kv") as kv:
        kv.put(b"key", b"value").result()
    for where in (tmp_path / "kv", str(tmp_path / "kv"), f"file://{tmp_path}/kv"):
        with read_kv(where) as reader:
            assert reader.get(b"key") == b"value"
        with open_kv(where) as kv:
            assert kv.get(b"key") == b"value"
    bucket = MemoryBucket()
    with create_kv(bucket) as kv:
        assert kv.bucket is bucket


def test_a_missing_store_is_not_found_and_nothing_is_created(tmp_path: Path) -> None:
    for open_it in (open_kv, read_kv):
        with pytest.raises(NotFoundError, match="create_kv"):
            open_it(tmp_path / "none")
    with pytest.raises(NotFoundError):
        read_kv(tmp_path / "none", lazy=True)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_created_once(tmp_path: Path) -> None:
    create_kv(tmp_path).close()
    with pytest.raises(ExistsError, match="open_kv"):
        create_kv(tmp_path)
    open_kv(tmp_path, create=True).close()  # it is there: nothing is created


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"'max_parallel_writes'.*parallel_writes_max"):
        open_kv(MemoryBucket(), create=True, max_parallel_writes=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="flush_ms"):
        read_kv(MemoryBucket(), flush_ms=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="cas"):
        open_kv(MemoryBucket(), cas="native")
    with pytest.raises(ValueError, match="flush_bytes is 0"):
        create_kv(MemoryBucket(), flush_bytes=0)
