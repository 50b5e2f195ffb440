import socket
from pathlib import Path
from random import Random

import pytest

from holdfast.bucket import (
    DirectoryBucket,
    MemoryBucket,
    Patience,
    RetryingBucket,
    connect,
    open_bucket,
)
from holdfast.errors import UnavailableError, UnsupportedError
from holdfast.testing.sim_bucket import SimBucket


def test_a_path_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("kv", str(tmp_path / "kv"), f"file://{tmp_path}/kv"):
        bucket = open_bucket(url)
        assert isinstance(bucket, DirectoryBucket)
        assert bucket.path == str(tmp_path / "kv")
    assert list(tmp_path.iterdir()) == []  # to open is not to write


def test_memory_is_shared_by_name() -> None:
    one, same, other = (open_bucket(f"memory://{name}") for name in ("a", "a", "b"))
    assert isinstance(one, MemoryBucket)
    assert one is same
    assert one is not other


@pytest.mark.parametrize("url", ["ftp://x/y", "http://bucket/x", "s4://x?secret_access_key=K"])
def test_other_addresses_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="no bucket has an address like") as caught:
        open_bucket(url)
    assert "K" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "gs:///prefix", "az://?account_key=K"])
def test_an_object_store_needs_a_bucket(url: str) -> None:
    with pytest.raises(ValueError, match="names no bucket") as caught:
        connect(url)
    assert "K" not in str(caught.value)


def test_options_come_from_the_query_and_from_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^s3://bucket/prefix: .*nonsense"):
        connect("s3://bucket/prefix?nonsense=1")
    for url in ("s3://b/p?region=us-east-1", "gs://b/p?skip_signature=true", "az://c/p"):
        account = {"account_name": "a"} if url.startswith("az") else {}
        assert isinstance(connect(url, options=account), RetryingBucket)


def test_a_store_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimBucket(Random(0), enforces=False)
    monkeypatch.setattr("holdfast.bucket.open._object_store", lambda *_: store)
    with pytest.raises(UnsupportedError, match=r"s3://bucket/kv ignores.*two-phase.*cas="):
        open_bucket("s3://bucket/kv?secret_access_key=K")
    assert store.truth.list("") == []
    store.enforces = True
    open_bucket("s3://bucket/kv")


def test_a_server_that_is_not_there_is_unavailable_within_the_budget() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        options = {
            "endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "access_key_id": "a",
            "secret_access_key": "TOPSECRET",
            "region": "us-east-1",
        }
        with pytest.raises(UnavailableError, match=r"s3://bucket/kv.*Connection refused") as caught:
            open_bucket("s3://bucket/kv", options=options, patience=Patience(budget_ms=100))
    assert "TOPSECRET" not in str(caught.value)
