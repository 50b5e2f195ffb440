import socket
from pathlib import Path
from random import Random

import obstore
import pytest
from obstore import exceptions

from holdfast.bucket import (
    DirectoryBucket,
    MemoryBucket,
    Patience,
    RetryingBucket,
    connect,
    open_bucket,
)
from holdfast.bucket.open import shown
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


@pytest.mark.parametrize("url", ["ftp://x/y", "http://bucket/x", "s4://x?secret_access_key=SECRET"])
def test_other_addresses_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="unknown scheme in") as caught:
        open_bucket(url)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "gs:///prefix", "az://?account_key=SECRET"])
def test_an_object_store_needs_a_bucket(url: str) -> None:
    with pytest.raises(ValueError, match="no bucket name in") as caught:
        connect(url)
    assert "SECRET" not in str(caught.value)


def test_options_come_from_the_query_and_from_the_caller() -> None:
    with pytest.raises(ValueError, match=r"nonsense.*: s3://bucket/prefix$"):
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


def test_a_missing_server_is_unavailable_within_the_time_limit() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        options = {
            "endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "access_key_id": "a",
            "secret_access_key": "TOPSECRET",
            "region": "us-east-1",
        }
        with pytest.raises(UnavailableError, match=r"Connection refused.*s3://bucket/kv") as caught:
            open_bucket("s3://bucket/kv", options=options, patience=Patience(budget_ms=100))
    assert "TOPSECRET" not in str(caught.value)


IMPATIENT = Patience(budget_ms=1)


def test_an_endpoint_in_the_environment_may_be_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/buckets.md says.  It failed after a minute of retries with `builder error`."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(UnavailableError, match="refused") as error:  # so a request was sent
        connect("s3://bucket/prefix", patience=IMPATIENT).list("")
    text = str(error.value)
    assert text.endswith(": s3://bucket/prefix")
    assert text.count("bucket") == 1
    assert "127.0.0.1" not in text


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9", "invalid AWS_ENDPOINT_URL '127.0.0.1:9'; expected"),
        ("AWS_ENDPOINT_URL", "ftp://u:hidden@h", "invalid AWS_ENDPOINT_URL 'ftp://h'; expected"),
        ("AWS_SECRET_ACCESS_KEY", "hidden\n", "AWS_SECRET_ACCESS_KEY has a line break"),
    ],
)
def test_an_invalid_configuration_is_named_at_once(
    name: str, value: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=match) as error:
        connect("s3://bucket/prefix")
    assert "hidden" not in str(error.value)


def test_what_cannot_be_sent_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*what: object, **more: object) -> object:
        raise exceptions.GenericError(
            "Generic S3 error: Error performing GET http://h/b?x=hidden in 2us - HTTP error: "
            "builder error\n\nDebug source: hidden"
        )

    bucket = connect("s3://bucket/prefix?endpoint=http://127.0.0.1:9")
    monkeypatch.setattr(obstore, "get", fail)
    with pytest.raises(ValueError, match="invalid address, endpoint or credentials of s3://bucket"):
        bucket.get("a")


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hidden@bucket/prefix",
        "gs://hidden@bucket/prefix?x=hidden",
        "az://key:hidden@container",
        "ftp://key:hidden@host/x?x=hidden",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_echoed(url: str) -> None:
    for use in (connect, open_bucket):
        with pytest.raises(ValueError, match="://") as error:
            use(url)
        assert "hidden" not in str(error.value)
        assert "hidden" not in shown(url)


def test_a_bucket_is_shown_by_its_address() -> None:
    bucket = connect(
        "s3://bucket/prefix?endpoint=http://127.0.0.1:9&access_key_id=k&secret_access_key=hidden"
    )
    assert str(bucket) == "s3://bucket/prefix"
    assert repr(bucket) == "RetryingBucket(ObstoreBucket(s3://bucket/prefix))"
    assert shown("memory://u:hidden@x") == "memory://x"
    assert shown("a@b/c?d") == "a@b/c?d"  # a path


def test_other_variables_of_the_environment_may_hold_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "AWS_USE_FIPS_ENDPOINT": "true",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
        "AWS_NOTES": "two\nlines",
    }.items():
        monkeypatch.setenv(name, value)
    url = "s3://bucket/prefix?access_key_id=k&secret_access_key=s"
    assert str(connect(f"{url}&endpoint=https://127.0.0.1:9")) == "s3://bucket/prefix"
