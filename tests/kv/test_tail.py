from itertools import pairwise

import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.formats.sst import Kind, Rows, encode_sst
from holdfast.kv.memtable import Tail, layer_of
from holdfast.kv.names import wal_name
from holdfast.kv.tables import Cache
from holdfast.runtime import Runtime


def filled(count: int, size_max: int, *, empty: tuple[int, ...] = ()) -> Tail:
    """A tail of SSTs 1..count, each with ten rows, some of them of keys that others have too."""
    bucket = MemoryBucket()
    tail = Tail(bucket, Cache(2**20, Runtime()), size_max, last_id=0)
    for wal_id in range(1, count + 1):
        pairs = [
            (b"%05d" % (wal_id * 7 + i), b"of %d" % wal_id, wal_id * 10 + i) for i in range(10)
        ]
        rows = Rows.from_pairs([] if wal_id in empty else pairs)
        data = encode_sst(rows, writer_epoch=1, unique_id=bytes(16), kind=Kind.WAL)
        bucket.put_if_absent(wal_name(wal_id), data)
        last_seq = 0 if wal_id in empty else wal_id * 10 + 9
        tail.add(layer_of(rows, wal_id), len(data), last_seq, 1)
    return tail


def test_many_small_ssts_become_few_layers() -> None:
    tail = filled(1000, 2**30)
    assert len(tail.layers) < 12
    assert tail.tables == ()
    assert (tail.wal_count, tail.last_id, tail.last_seq) == (1000, 1000, 10_009)
    ids = [(layer.first_id, layer.last_id) for layer in tail.layers]
    assert ids[0][1] == 1000
    assert ids[-1][0] == 1
    assert all(newer[0] == older[1] + 1 for newer, older in pairwise(ids))


def test_what_does_not_fit_is_read_from_the_bucket() -> None:
    tail = filled(100, size_max=20 * 2300)
    assert tail.size <= 20 * 2300
    assert tail.layers
    kept = min(layer.first_id for layer in tail.layers)
    assert [table.name for table in tail.tables] == [wal_name(i) for i in range(kept - 1, 0, -1)]
    assert tail.tables[-1].get(b"%05d" % 9) == (b"of 1", 12)


def test_fences_take_no_place() -> None:
    tail = filled(20, size_max=0, empty=(1, 2, 11))
    assert [table.name for table in tail.tables] == [
        wal_name(i) for i in range(20, 0, -1) if i not in (1, 2, 11)
    ]
    assert (tail.last_id, tail.wal_count) == (20, 20)


@pytest.mark.parametrize("compacted", [0, 1, 37, 99, 100, 140])
@pytest.mark.parametrize("size_max", [0, 46_000, 2**30])
def test_what_is_compacted_is_forgotten_and_nothing_else(compacted: int, size_max: int) -> None:
    tail = filled(100, size_max)
    tail.drop(compacted)
    left = {key for layer in tail.layers for key in layer.rows}
    for table in tail.tables:
        left |= {key for rows in table.scan(b"", None) for key in rows.keys.to_pylist()}
    expected = {
        b"%05d" % (wal_id * 7 + i) for wal_id in range(compacted + 1, 101) for i in range(10)
    }
    assert left == expected
    assert tail.wal_count == max(0, 100 - compacted)


def test_ids_are_contiguous() -> None:
    tail = filled(3, 2**20)
    with pytest.raises(ValueError, match="SST 5 cannot follow 3"):
        tail.add_cold(5, 100, 7, 1)
