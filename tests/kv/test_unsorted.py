import random
from collections.abc import Sequence

import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.formats.sst import Rows
from holdfast.kv.bulk import BulkLoad
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.names import level_name
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.unsorted import arrange, write_runs
from holdfast.runtime import Runtime

RUNTIME = Runtime()
OPTIONS = CompactionOptions(sst_size=1 << 12, block_size=1 << 9)


def chunks(pairs: Sequence[tuple[bytes, bytes | None]], size: int) -> list[Rows]:
    starts = range(0, len(pairs), size)
    return [Rows.from_pairs([(k, v, 0) for k, v in pairs[at : at + size]]) for at in starts]


def some_pairs(seed: int, count: int, keys: int) -> list[tuple[bytes, bytes | None]]:
    choose = random.Random(seed)
    return [
        (b"k%04d" % choose.randrange(keys), choose.choice([None, choose.randbytes(9)]))
        for _ in range(count)
    ]


def new_store() -> MemoryBucket:
    bucket = MemoryBucket()
    open_kv(
        bucket, create=True, flush_ms=None, watch_ms=None, maintain=False, gc_min_age_ms=0
    ).close()
    return bucket


@pytest.mark.parametrize(
    ("run_size", "joined_size_max", "runs"), [(1 << 20, 0, 1), (2000, 0, 12), (2000, 1 << 30, 1)]
)
def test_the_last_of_a_key_counts_however_runs_are_cut(
    run_size: int, joined_size_max: int, runs: int
) -> None:
    bucket = new_store()
    pairs = some_pairs(1, 900, 300)
    load = BulkLoad(bucket, RUNTIME, OPTIONS)
    written = write_runs(bucket, load.job, chunks(pairs, 77), RUNTIME, run_size=run_size)
    arranged = arrange(bucket, load.job, written, RUNTIME, joined_size_max=joined_size_max)
    assert len(arranged) == runs
    assert load.commit_runs(arranged)
    with read_kv(bucket) as reader:
        assert dict(reader.items()) == {k: v for k, v in dict(pairs).items() if v is not None}


def test_runs_that_do_not_overlap_become_one_without_being_read() -> None:
    bucket = new_store()
    load = BulkLoad(bucket, RUNTIME, OPTIONS)
    parts = [[(b"%d/%02d" % (part, i), b"v") for i in range(50)] for part in (2, 1, 3)]
    runs = [run for part in parts for run in write_runs(bucket, load.job, chunks(part, 9), RUNTIME)]
    (one,) = arrange(bucket, load.job, runs, RUNTIME, unique=True, joined_size_max=0)
    assert {sst.id for sst in one} == {sst.id for run in runs for sst in run}
    assert load.commit_runs([one])


def test_a_duplicate_key_can_be_an_error() -> None:
    bucket = new_store()
    load = BulkLoad(bucket, RUNTIME, OPTIONS)
    twice: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    with pytest.raises(ValueError, match="duplicate keys: b'a'"):
        write_runs(bucket, load.job, chunks(twice, 9), RUNTIME, unique=True)
    runs = write_runs(bucket, load.job, chunks(twice, 2), RUNTIME, run_size=1, unique=True)
    with pytest.raises(ValueError, match="duplicate keys: 1"):
        arrange(bucket, load.job, runs, RUNTIME, unique=True)
    with pytest.raises(ValueError, match="repartitionByRange"):
        arrange(bucket, load.job, runs, RUNTIME, unique=True, joined_size_max=0)


def test_an_equal_key_is_seen_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kv.unsorted._CHUNK_ROWS", 2)
    bucket = new_store()
    pairs = some_pairs(2, 40, 5)
    load = BulkLoad(bucket, RUNTIME, OPTIONS)
    load.commit_runs(write_runs(bucket, load.job, chunks(pairs, 7), RUNTIME))
    with read_kv(bucket) as reader:
        assert dict(reader.items()) == {k: v for k, v in dict(pairs).items() if v is not None}


def test_a_shared_load_is_registered_once_and_committed_once() -> None:
    bucket = new_store()
    first, second = (BulkLoad(bucket, RUNTIME, OPTIONS, id=b"i" * 16) for _ in range(2))
    assert first.job.job == second.job.job
    run = write_runs(bucket, second.job, chunks([(b"k", b"v")], 1), RUNTIME)
    assert BulkLoad(bucket, RUNTIME, OPTIONS, job=second.job).commit_runs(run)
    assert BulkLoad(bucket, RUNTIME, OPTIONS, id=b"i" * 16).is_committed
    with read_kv(bucket) as reader:
        assert list(reader.items()) == [(b"k", b"v")]


def test_what_a_twin_or_a_dead_attempt_has_written_is_garbage() -> None:
    bucket = new_store()
    pairs = some_pairs(3, 200, 80)
    load = BulkLoad(bucket, RUNTIME, OPTIONS)
    attempts = [write_runs(bucket, load.job, chunks(pairs, 30), RUNTIME) for _ in range(3)]
    load.commit_runs(arrange(bucket, load.job, attempts[1], RUNTIME))
    with read_kv(bucket, lazy=True) as reader:
        assert dict(reader.items()) == {k: v for k, v in dict(pairs).items() if v is not None}
        named = {level_name(int(sst)) for sst in reader.manifest.sst_ids}
    wasted = {level_name(sst.id) for i in (0, 2) for run in attempts[i] for sst in run}
    options = GcOptions(clock_skew_max_ms=0, other_age_ms=0)
    with open_kv(bucket, create=True, flush_ms=None, watch_ms=None, maintain=False):
        GarbageCollector(bucket, RUNTIME, options).collect()
    assert {info.name for info in bucket.list("levels")} == named
    assert not named & wasted
