"""A kv store's life on every server there is: two writers, a reader, compaction, collection."""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlencode

import pytest
from tests.servers import ObjectStore, RealBucket
from tests.testing.test_kv_writer import Writer

from holdfast.bucket import Bucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import FencedError
from holdfast.formats.sst import Rows
from holdfast.kv import Kv
from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.cas import TwoPhaseBucket
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.testing.kv_writer import COUNTER, FENCED, round_key, round_value

State = dict[bytes, bytes]


@pytest.fixture
def way(real_bucket: RealBucket) -> Iterator[Callable[[], Bucket]]:
    """A way to the store of its own for each who asks, as if each were a process of its own."""
    with ExitStack() as stack:

        def made() -> Bucket:
            bucket = real_bucket.open()
            if isinstance(bucket, TwoPhaseBucket):
                stack.enter_context(closing(bucket))
            return bucket

        yield made


def writer(bucket: Bucket) -> Kv:
    return open_kv(
        bucket,
        create=True,
        flush_ms=None,
        watch_ms=None,
        gc_min_age_ms=0,
        parallel_writes_max=2,
        maintain=False,
    )


def load(bucket: Bucket, state: State) -> None:
    bulk = BulkLoad(bucket, transaction=("a stream", 1))
    rows = Rows.from_pairs([(key, state[key], 0) for key in sorted(state)])
    bulk.commit(write_sorted(bucket, bulk.job, [rows]))


def collected(bucket: Bucket) -> set[str]:
    return set(GarbageCollector(bucket, options=GcOptions(other_age_ms=0)).collect().counts)


def test_writers_readers_and_upkeep_on_every_store(way: Callable[[], Bucket]) -> None:
    first = writer(way())
    for number in range(4):
        first.put(b"a%d" % number, b"1")
    first.write({b"a1": None, b"b": b"1"}).result()
    before = {b"a0": b"1", b"a2": b"1", b"a3": b"1", b"b": b"1"}
    kept = first.snapshot(None)
    reader = read_kv(way())
    view = reader.view()

    second = writer(way())
    with pytest.raises(FencedError):
        first.put(b"a0", b"of a writer that is fenced").result()
    assert dict(second.items()) == before
    second.write({b"a0": b"2", b"a2": None, b"c": b"2"}).result()
    after = {b"a0": b"2", b"a3": b"1", b"b": b"1", b"c": b"2"}
    reader.poll()
    assert dict(reader.items()) == after

    upkeep = way()
    assert Compactor(upkeep).compact_everything()
    load(upkeep, {b"d": b"3", b"e": b"3"})
    assert Compactor(upkeep).compact_everything()
    second.refresh()
    after |= {b"d": b"3", b"e": b"3"}
    assert dict(second.items()) == after
    assert collected(upkeep) == {"manifest", "level"}
    assert dict(view.items()) == before  # a view and a snapshot outlive all that
    with read_kv(way(), at=kept.manifest_id, lazy=True) as then:
        assert dict(then.items()) == before
    view.close()
    reader.close()
    # The one that was kept, and the one that the fenced writer has left to expire.
    second.snapshots.drop(*(entry.id for entry in second.snapshots.list()))
    second.close()
    with pytest.raises(FencedError):
        first.close()
    reopen(way(), after)


def reopen(bucket: Bucket, state: State) -> None:
    """All that was acknowledged is there, and what is superfluous can be collected."""
    with writer(bucket) as third:
        assert collected(bucket) >= {"manifest", "wal"}
        assert dict(third.items()) == state
        assert third.epoch == 3
    names = [info.name.partition("/")[0] for info in bucket.list("")]
    assert names.count("levels") == 1
    assert names.count("manifest") <= 4


def test_a_stopped_process_on_a_server_wakes_up_fenced(seaweedfs: ObjectStore) -> None:
    url = f"{seaweedfs.url(f'{random.getrandbits(64):x}')}?{urlencode(seaweedfs.options)}"
    stopped = Writer(url, 0, parallel=3)
    try:
        stopped.hear("ack", 5)
        stopped.process.send_signal(signal.SIGSTOP)
        with open_kv(url, create=True) as db:
            number = int(db.get(COUNTER) or 0)
            db.write({COUNTER: b"%d" % (number + 1), b"ours": b"1"}).result()
            stopped.process.send_signal(signal.SIGCONT)
            assert stopped.end() == FENCED
            assert stopped.said["ack"] <= number
    finally:
        stopped.process.kill()
        stopped.process.wait()
    with read_kv(url) as reader:
        rounds = {round_key(i): round_value(i) for i in range(1, number + 1)}
        assert dict(reader.items(prefix=b"round/")) == rounds  # nothing of it after the fence
        assert reader.get(COUNTER) == b"%d" % (number + 1)
        assert reader.get(b"ours") == b"1"
