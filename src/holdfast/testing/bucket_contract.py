"""The tests that every bucket must pass.  Subclass it, and provide a pytest fixture `bucket`.

    class TestMine(BucketContract):
        @pytest.fixture
        def bucket(self) -> Bucket:
            return MyBucket(...)

A fresh bucket (or a fresh prefix in one) for every test.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.bucket import Bucket, enforces_create
from holdfast.bucket.bucket import Buffer

NAMES = ["a/1", "a/2", "a/b/1", "a.b/1", "ab/1", "b", "c/00000000000000000009.sst"]
HOSTILE = ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "../a", "a\0b", "a\nb", "a b"]
HOSTILE += ["a\\..\\b", "ä", "a?b", "a#b", "a%2fb", "a~b", "x" * 201, "/".join(["x" * 100] * 8)]


class BucketContract:
    racers, slots = 8, 12

    def test_gives_back_what_it_was_given(self, bucket: Bucket) -> None:
        data = bytes(range(256)) * 4
        kinds: dict[str, Buffer] = {
            "x/bytes": data,
            "x/array": bytearray(data),
            "x/view": memoryview(data)[1:],
        }
        for name, given in kinds.items():
            bucket.put_if_absent(name, given, metadata={"writer_epoch": "7"})
        assert {name: bucket.get(name) for name in kinds} == {n: bytes(d) for n, d in kinds.items()}

    def test_keeps_nothing_of_the_callers_memory(self, bucket: Bucket) -> None:
        data = bytearray(b"as it was")
        bucket.put_if_absent("once/used", memoryview(data))
        data[:] = b"and is no"
        assert bucket.get("once/used") == b"as it was"

    def test_takes_nothing_and_much(self, bucket: Bucket) -> None:
        much = bytes(range(251)) * 30_000  # more than a part of a multipart upload
        bucket.put_if_absent("empty", b"")
        bucket.put_if_absent("much", much)
        assert (bucket.get("empty"), bucket.get("much")) == (b"", much)
        assert [(info.name, info.size) for info in bucket.list("")] == [
            ("empty", 0),
            ("much", len(much)),
        ]

    def test_a_name_is_created_once(self, bucket: Bucket) -> None:
        bucket.put_if_absent("wal/1", b"first")
        for other in (b"second", b"firs", b"first!", b""):
            with pytest.raises(FileExistsError):
                bucket.put_if_absent("wal/1", other)
        assert bucket.get("wal/1") == b"first"

    def test_one_of_many_creates_of_one_name_succeeds(self, bucket: Bucket) -> None:
        def race(racer: int) -> list[int]:
            won = []
            for slot in range(self.slots):
                try:
                    bucket.put_if_absent(f"race/{slot}", b"racer %d" % racer)
                    won.append(slot)
                except FileExistsError:
                    assert bucket.get(f"race/{slot}") != b"racer %d" % racer
            return won

        with ThreadPoolExecutor(self.racers) as pool:
            wins = list(pool.map(race, range(self.racers)))
        assert sorted(slot for won in wins for slot in won) == list(range(self.slots))
        for racer, won in enumerate(wins):
            for slot in won:
                assert bucket.get(f"race/{slot}") == b"racer %d" % racer

    def test_reads_any_range(self, bucket: Bucket) -> None:
        data = bytes(range(10))
        bucket.put_if_absent("x", data)
        bounds = [0, 1, 9, 10, 11, 1000, 2**40, 2**62]
        for start in bounds:
            for stop in bounds[bounds.index(start) :]:
                assert bucket.get_range("x", start, stop) == data[start:stop]
        for start, stop in [(-1, 5), (5, 4), (-3, -1)]:
            with pytest.raises(ValueError, match="range"):
                bucket.get_range("x", start, stop)

    def test_what_is_missing_is_not_found(self, bucket: Bucket) -> None:
        bucket.put_if_absent("wal/1", b"1")
        for name in ("x", "wal", "wal/2", "wal/1/2"):
            with pytest.raises(FileNotFoundError):
                bucket.get(name)
            for stop in (0, 1):
                with pytest.raises(FileNotFoundError):
                    bucket.get_range(name, 0, stop)
            with pytest.raises(FileNotFoundError):
                bucket.copy(name, "y")
        assert bucket.list("x") == [] == bucket.list("wal/2/")

    def test_lists_by_directory_in_order(self, bucket: Bucket) -> None:
        for name in reversed(NAMES):
            bucket.put_if_absent(name, name.encode())
        everything = sorted(NAMES)
        assert names(bucket, "") == everything
        assert names(bucket, "a") == names(bucket, "a/") == ["a/1", "a/2", "a/b/1"]
        assert names(bucket, "a/b/") == ["a/b/1"]
        for after in [*NAMES, "a", "a/", "a/15", "zz"]:
            wanted = [name for name in everything if name > after]
            assert names(bucket, "", after) == wanted
            assert names(bucket, "a/", after) == [n for n in wanted if n.startswith("a/")]
        assert all(info.size == len(info.name) for info in bucket.list(""))

    def test_a_listing_shows_all_that_was_created_before(self, bucket: Bucket) -> None:
        for number in range(1, 21):
            bucket.put_if_absent(f"wal/{number:020}.sst", b"x")
            assert len(bucket.list("wal/")) == number
        times = [info.modified_ms for info in bucket.list("wal/")]
        assert times == sorted(times)

    def test_deletes_ignore_missing_objects(self, bucket: Bucket) -> None:
        for name in NAMES:
            bucket.put_if_absent(name, b"x")
        bucket.delete("a/1", "never", "ab/1", "no/where")
        bucket.delete("a/1")
        bucket.delete()
        assert names(bucket, "") == sorted(set(NAMES) - {"a/1", "ab/1"})
        with pytest.raises(FileNotFoundError):
            bucket.get("a/1")

    def test_copies_over_what_is_there(self, bucket: Bucket) -> None:
        bucket.put_if_absent("x", b"new")
        bucket.put_if_absent("y", b"old")
        for destination in ("y", "deep/er/z"):
            bucket.copy("x", destination)
            assert bucket.get(destination) == b"new" == bucket.get("x")

    def test_refuses_names_that_some_store_would_change(self, bucket: Bucket) -> None:
        calls: list[Callable[[str], object]] = [
            bucket.get,
            lambda name: bucket.get_range(name, 0, 1),
            lambda name: bucket.put_if_absent(name, b"x"),
            bucket.delete,
            lambda name: bucket.copy(name, "x"),
            lambda name: bucket.copy("x", name),
        ]
        for name in HOSTILE:
            for call in calls:
                with pytest.raises(ValueError, match="invalid object name"):
                    call(name)
        assert bucket.list("") == []

    def test_the_probe_trusts_it_and_leaves_nothing(self, bucket: Bucket) -> None:
        assert enforces_create(bucket)
        assert bucket.list("") == []


def names(bucket: Bucket, prefix: str, after: str = "") -> list[str]:
    return [info.name for info in bucket.list(prefix, after)]
