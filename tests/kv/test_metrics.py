"""What a writer counts, beside what it did."""

import pytest
from tests.kv.stores import Hand

from holdfast.bucket import MemoryBucket
from holdfast.errors import FencedError
from holdfast.kv import Db, Options
from holdfast.kv.compaction import Compactor

OPTIONS = Options(flush_ms=None, watch_ms=None)


def test_rows_flushes_and_reads_are_counted() -> None:
    hand, bucket = Hand(), MemoryBucket()
    with Db.open(bucket, OPTIONS, runtime=hand.runtime, maintain=False) as db:
        db.write({b"a": b"1", b"b": None}).result()
        db.put(b"c", b"2").result()
        db.put(b"d", b"3")
        db.get(b"a")
        before = db.metrics()
        assert (before.rows_written_total, before.flushes_total, before.gets_total) == (4, 2, 1)
        assert before.wal_ssts == 3  # and the fence
        sizes = [info.size for info in bucket.list("wal")]
        assert before.wal_bytes == sum(sizes)
        assert before.flushed_bytes_total == sum(sizes[1:])
        assert before.memory_bytes > 0
        assert (before.fenced, before.poisoned) == (False, False)
        db.flush()
        Compactor(bucket, hand.runtime).compact_everything()
        db.refresh()
        for _ in range(3):
            assert db.get(b"a") == b"1"
        after = db.metrics()
        assert (after.wal_ssts, after.wal_bytes, after.gets_total) == (0, 0, 4)
        assert after.cache_hits_total - before.cache_hits_total >= 4
        assert after.cache_misses_total - before.cache_misses_total == 2  # the head, and a block
        assert after.cache_bytes > 0


def test_a_fenced_writer_says_so() -> None:
    hand, bucket = Hand(), MemoryBucket()
    old = Db.open(bucket, OPTIONS, runtime=hand.runtime, maintain=False)
    with Db.open(bucket, OPTIONS, runtime=hand.runtime, maintain=False) as new:
        with pytest.raises(FencedError):
            old.put(b"a", b"1").result()
        assert (old.metrics().fenced, old.metrics().poisoned) == (True, True)
        assert new.metrics().writer_epoch == old.metrics().writer_epoch + 1
    with pytest.raises(FencedError):
        old.close()
