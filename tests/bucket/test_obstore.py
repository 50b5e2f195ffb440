"""The errors of an object store; the servers are in tests/integrations."""

from collections.abc import Callable, Sequence

import obstore
import pytest
from obstore import exceptions
from obstore.store import MemoryStore

from holdfast.bucket import Bucket
from holdfast.bucket.obstore import ObstoreBucket
from holdfast.errors import UnavailableError, UnsupportedError
from holdfast.testing.bucket_contract import BucketContract


class TestObstoreBucket(BucketContract):
    slots = 100

    @pytest.fixture
    def bucket(self) -> Bucket:
        return ObstoreBucket(MemoryStore())


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (exceptions.AlreadyExistsError("x"), FileExistsError),
        (exceptions.PreconditionError("x"), FileExistsError),
        (exceptions.PermissionDeniedError("x"), PermissionError),
        (exceptions.UnauthenticatedError("x"), PermissionError),
        (exceptions.NotSupportedError("x"), UnsupportedError),
        (NotImplementedError("x"), UnsupportedError),
        (exceptions.GenericError("503 Slow Down\nfor more see the log"), UnavailableError),
        (exceptions.GenericError(""), UnavailableError),
    ],
)
def test_every_answer_becomes_an_error_that_says_what_to_do(
    error: Exception, means: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore, "put", raising(error))
    with pytest.raises(means, match=r"s3://bucket") as caught:
        ObstoreBucket(MemoryStore(), "s3://bucket").put_if_absent("x", b"x")
    assert "\n" not in str(caught.value)


def test_metadata_goes_along() -> None:
    store = MemoryStore()
    ObstoreBucket(store).put_if_absent("x", b"1", metadata={"writer_epoch": "7"})
    assert obstore.get(store, "x").attributes == {"writer_epoch": "7"}


def test_a_server_that_stops_at_a_missing_object_is_asked_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket, delete = ObstoreBucket(MemoryStore()), obstore.delete
    for name in ("a", "b", "c"):
        bucket.put_if_absent(name, b"")

    def delete_up_to_a_missing_one(store: MemoryStore, names: str | Sequence[str]) -> None:
        there = {info.name for info in bucket.list("")}
        for name in [names] if isinstance(names, str) else names:
            if name not in there:
                raise FileNotFoundError(name)
            delete(store, name)

    monkeypatch.setattr(obstore, "delete", delete_up_to_a_missing_one)
    bucket.delete("a", "missing", "b")
    assert [info.name for info in bucket.list("")] == ["c"]


def test_a_server_that_sends_all_and_calls_it_a_part_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = ObstoreBucket(MemoryStore())
    bucket.put_if_absent("x", b"0123456789")
    quirk = exceptions.GenericError("Received non-partial response when range requested")
    monkeypatch.setattr(obstore, "get_range", raising(quirk))
    assert bucket.get_range("x", 2, 5) == b"234"
    monkeypatch.setattr(obstore, "get_range", raising(exceptions.GenericError("503")))
    with pytest.raises(UnavailableError, match="503"):
        bucket.get_range("x", 2, 5)
    assert bucket.get_range("x", 10, 12) == b""
