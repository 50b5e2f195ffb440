"""Answers that never come, on a clock that does not tick by itself."""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from holdfast.bucket import Bucket, MemoryBucket, Patience, RetryingBucket
from holdfast.bucket.bucket import Buffer
from holdfast.errors import UnavailableError
from holdfast.testing.bucket_contract import BucketContract
from holdfast.testing.sim_bucket import Faults, SimBucket


class Clock:
    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def sleep(self, pause: float) -> None:
        self.pauses.append(pause)
        self.now += pause

    def patience(
        self, budget_ms: int = 10_000, dice: Callable[[], float] = lambda: 0.5
    ) -> Patience:
        return Patience(
            budget_ms=budget_ms, monotonic=lambda: self.now, sleep=self.sleep, dice=dice
        )


class TestRetryingBucketOnABadLine(BucketContract):
    """A third of all calls go wrong, and nobody notices."""

    @pytest.fixture
    def bucket(self) -> Bucket:
        faults = Faults(refused=0.15, unsent=0.05, lost_answer=0.1)
        return RetryingBucket(SimBucket(Random(2), faults), Clock().patience(1_000_000))


def test_retries_wait_longer_until_the_time_limit() -> None:
    clock = Clock()
    bucket = RetryingBucket(
        SimBucket(Random(0), Faults(refused=1.0)), clock.patience(dice=lambda: 1.0)
    )
    with pytest.raises(UnavailableError, match="refused") as caught:
        bucket.get("x")
    assert clock.pauses[:4] == [0.02, 0.04, 0.08, 0.16]
    assert max(clock.pauses) <= 5.0
    assert clock.now < 10.0
    assert caught.value.__notes__ == [f"asked {len(clock.pauses) + 1} times in 10 s"]


def test_the_pauses_of_a_crowd_spread_out() -> None:
    random, firsts = Random(3), set()
    for _ in range(50):
        clock = Clock()
        bucket = RetryingBucket(
            SimBucket(Random(0), Faults(refused=1.0)), clock.patience(100, random.random)
        )
        with pytest.raises(UnavailableError):
            bucket.list("")
        firsts.add(round(clock.pauses[0], 4))
    assert len(firsts) > 25
    assert all(0.01 <= pause <= 0.02 for pause in firsts)


class LosesAnswers(MemoryBucket):
    """Makes the first create, and does not say so."""

    answers = 0

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().put_if_absent(name, data)
        self.answers += 1
        if self.answers == 1:
            raise UnavailableError("timed out")


def test_a_create_whose_answer_was_lost_is_our_own() -> None:
    store, clock = LosesAnswers(), Clock()
    RetryingBucket(store, clock.patience()).put_if_absent("wal/1", memoryview(b"my unique bytes"))
    assert (store.get("wal/1"), len(clock.pauses)) == (b"my unique bytes", 1)


@pytest.mark.parametrize("theirs", [b"other", b"min", b"mine and more", b""])
def test_a_name_that_another_took_is_lost(theirs: bytes) -> None:
    store = MemoryBucket()
    store.put_if_absent("wal/1", theirs)
    with pytest.raises(FileExistsError):
        RetryingBucket(store, Clock().patience()).put_if_absent("wal/1", b"mine")
    assert store.get("wal/1") == theirs


def test_nothing_proves_that_an_empty_object_is_ours() -> None:
    with pytest.raises(FileExistsError):
        RetryingBucket(LosesAnswers(), Clock().patience()).put_if_absent("wal/1", b"")


def test_two_creates_that_the_store_turns_both_away_are_tried_again() -> None:
    """S3 answers 409 when two conditional writes meet; then neither may be there."""

    class Collides(MemoryBucket):
        tries = 0

        def put_if_absent(
            self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
        ) -> None:
            self.tries += 1
            if self.tries < 3:
                raise FileExistsError
            super().put_if_absent(name, data)

    store = Collides()
    RetryingBucket(store, Clock().patience()).put_if_absent("wal/1", b"mine")
    assert (store.get("wal/1"), store.tries) == (b"mine", 3)


def test_an_answer_is_an_answer() -> None:
    """What the store has decided is not asked again."""
    clock = Clock()
    bucket = RetryingBucket(MemoryBucket(), clock.patience())
    with pytest.raises(FileNotFoundError):
        bucket.get("x")
    with pytest.raises(ValueError, match="name"):
        bucket.get("../x")
    assert clock.pauses == []
