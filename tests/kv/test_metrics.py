"""What a writer counts, beside what it did."""

import pytest
from tests.kv.stores import Hand

from holdfast.bucket import MemoryBucket
from holdfast.doors import open_kv
from holdfast.errors import FencedError
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.options import KvOptions

QUIET = KvOptions(flush_ms=None, watch_ms=None)


def numbers(kv: Kv) -> dict[str, float]:
    return {metric.name: metric.value for metric in kv.metrics()}


def test_rows_flushes_and_reads_are_counted() -> None:
    hand, bucket = Hand(), MemoryBucket()
    with open_kv(bucket, create=True, **QUIET, runtime=hand.runtime, maintain=False) as db:
        db.write({b"a": b"1", b"b": None}).result()
        db.put(b"c", b"2").result()
        db.put(b"d", b"3")
        db.get(b"a")
        before = numbers(db)
        assert (before["rows_written_total"], before["flushes_total"], before["gets_total"]) == (
            4,
            2,
            1,
        )
        assert before["wal_ssts"] == 3  # and the fence
        sizes = [info.size for info in bucket.list("wal")]
        assert before["wal_bytes"] == sum(sizes)
        assert before["flushed_bytes_total"] == sum(sizes[1:])
        assert before["memory_bytes"] > 0
        assert (before["fenced"], before["poisoned"]) == (False, False)
        db.flush()
        Compactor(bucket, hand.runtime).compact_everything()
        db.refresh()
        for _ in range(3):
            assert db.get(b"a") == b"1"
        after = numbers(db)
        assert (after["wal_ssts"], after["wal_bytes"], after["gets_total"]) == (0, 0, 4)
        assert after["cache_hits_total"] - before["cache_hits_total"] >= 4
        assert (
            after["cache_misses_total"] - before["cache_misses_total"] == 2
        )  # the head, and a block
        assert after["cache_bytes"] > 0


def test_a_fenced_writer_raises_fenced_error() -> None:
    hand, bucket = Hand(), MemoryBucket()
    old = open_kv(bucket, create=True, **QUIET, runtime=hand.runtime, maintain=False)
    with open_kv(bucket, create=True, **QUIET, runtime=hand.runtime, maintain=False) as new:
        with pytest.raises(FencedError):
            old.put(b"a", b"1").result()
        assert (numbers(old)["fenced"], numbers(old)["poisoned"]) == (True, True)
        assert numbers(new)["writer_epoch"] == numbers(old)["writer_epoch"] + 1
    with pytest.raises(FencedError):
        old.close()
