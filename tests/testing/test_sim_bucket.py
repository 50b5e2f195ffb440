from random import Random

import pytest

from holdfast.bucket import Bucket
from holdfast.errors import UnavailableError
from holdfast.testing.bucket_contract import BucketContract
from holdfast.testing.sim_bucket import Call, Faults, SimBucket


class TestSimBucketOnAGoodLine(BucketContract):
    @pytest.fixture
    def bucket(self) -> Bucket:
        return SimBucket(Random(0), Faults(slow=0.5))


def outcome(faults: Faults) -> tuple[list[str], dict[str, int], SimBucket]:
    bucket = SimBucket(Random(0), faults)
    with pytest.raises(UnavailableError):
        bucket.put_if_absent("x", b"1")
    return [info.name for info in bucket.truth.list("")], dict(bucket.fired), bucket


def test_each_fault_does_what_it_says() -> None:
    assert outcome(Faults(refused=1.0))[:2] == ([], {"refused": 1})
    assert outcome(Faults(unsent=1.0))[:2] == ([], {"unsent": 1})
    assert outcome(Faults(lost_answer=1.0))[:2] == (["x"], {"lost answer": 1})
    there, fired, bucket = outcome(Faults(late=1.0))
    assert (there, fired) == ([], {"late": 1})
    bucket.line.settle()
    assert (bucket.truth.get("x"), bucket.fired["arrived late"]) == (b"1", 1)


def test_what_is_late_arrives_while_others_call() -> None:
    _, _, bucket = outcome(Faults(late=1.0))
    bucket.line.faults = Faults()
    for _ in range(20):
        bucket.list("")
    assert bucket.truth.get("x") == b"1"


def test_lost_answers_do_not_apply_to_reads() -> None:
    bucket = SimBucket(Random(0), Faults(lost_answer=1.0, late=1.0))
    assert bucket.list("") == []
    assert not bucket.fired


def test_a_scheduler_sees_every_call_and_slow_ones_from_inside() -> None:
    bucket, seen = SimBucket(Random(0), Faults(slow=1.0)), []
    bucket.line.before_each = lambda call: seen.append(("before", call))
    bucket.line.pause = lambda call: seen.append(("inside", call))
    bucket.line.after_each = lambda call: seen.append(("after", call))
    bucket.put_if_absent("wal/1", b"1")
    with pytest.raises(FileExistsError):
        bucket.put_if_absent("wal/1", b"2")
    call = Call("put_if_absent", ("wal/1",))
    assert seen == [("before", call), ("inside", call), ("after", call)] * 2
    assert bucket.fired["slow"] == 2


def test_while_one_is_slow_another_can_win() -> None:
    bucket = SimBucket(Random(0), Faults(slow=1.0))

    def overtake(call: Call) -> None:
        bucket.line.pause = lambda call: None
        bucket.put_if_absent("wal/1", b"fast")

    bucket.line.pause = overtake
    with pytest.raises(FileExistsError):
        bucket.put_if_absent("wal/1", b"slow")
    assert bucket.get("wal/1") == b"fast"


def test_the_same_seed_brings_the_same_faults() -> None:
    faults = Faults(0.1, 0.1, 0.1, 0.1, 0.1)

    def life(seed: int) -> list[bool]:
        bucket, answered = SimBucket(Random(seed), faults), []
        for number in range(100):
            try:
                bucket.put_if_absent(f"x{number}", b"x")
                answered.append(True)
            except UnavailableError:
                answered.append(False)
        return answered

    assert life(1) == life(1) != life(2)
    assert 40 < sum(life(1)) < 80


def test_objects_are_stamped_by_the_stores_own_clock() -> None:
    bucket = SimBucket(Random(0), clock=lambda: 1_000_000, skew_ms=-3600)
    bucket.put_if_absent("x", b"1")
    bucket.skew_ms = 5
    bucket.put_if_absent("y", b"1")
    assert [info.modified_ms for info in bucket.list("")] == [996_400, 1_000_005]
