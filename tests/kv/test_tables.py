import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import CorruptError
from holdfast.formats.sst import Rows, decode_info, encode_sst
from holdfast.kv.tables import Cache, Table
from holdfast.runtime import Runtime


class Counting(MemoryBucket):
    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        self.requests += 1
        return super().get_range(name, start, stop)


ROWS = Rows.from_pairs(
    [(b"%05d" % (2 * i), None if i % 10 == 3 else b"value %d" % i, i + 1) for i in range(20_000)]
)
DATA = encode_sst(ROWS, writer_epoch=3, unique_id=bytes(16), block_size=8192)


def table(cache_size: int = 2**26, *, offset: bool = True) -> tuple[Counting, Table]:
    bucket = Counting()
    bucket.put_if_absent("levels/x.sst", DATA)
    info = decode_info(DATA, len(DATA))
    cache = Cache(cache_size, Runtime())
    return bucket, Table(
        bucket, cache, "levels/x.sst", len(DATA), info.filter_offset if offset else None
    )


def test_a_key_takes_two_requests_the_first_time_and_none_afterwards() -> None:
    bucket, opened = table()
    assert opened.get(b"00008") == (b"value 4", 5)
    assert bucket.requests == 2
    assert opened.get(b"00010") == (b"value 5", 6)
    assert opened.get(b"00006") == (None, 4)
    assert bucket.requests == 2


def test_missing_keys_rarely_cost_a_request() -> None:
    bucket, opened = table()
    assert all(opened.get(b"%05d" % (2 * i + 1)) is None for i in range(2000))
    assert bucket.requests < 30
    assert opened.get(b"!") is None
    assert opened.info.row_count == 20_000


def test_without_an_offset_the_end_is_found_too() -> None:
    for offset in (True, False):
        _, opened = table(offset=offset)
        assert opened.get(b"39998") == (b"value 19999", 20_000)


def test_a_range_is_read_with_few_requests() -> None:
    bucket, opened = table()
    chunks = list(opened.scan(b"00100", b"30000"))
    assert bucket.requests == 2
    found = Rows.concat(chunks).to_pairs()
    assert found == ROWS.range(b"00100", b"30000").to_pairs()
    assert list(opened.scan(b"5", None)) == []
    assert list(opened.scan(b"00101", b"00102")) == []


@pytest.mark.parametrize("limit", ["_READ_SIZE", "_CHUNK_SIZE"])
def test_backwards_the_last_chunk_comes_first(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"holdfast.kv.tables.{limit}", 50_000)
    _, opened = table()
    chunks = list(opened.scan(b"00100", b"30000", reverse=True))
    assert len(chunks) > 5
    assert Rows.concat(chunks[::-1]).to_pairs() == ROWS.range(b"00100", b"30000").to_pairs()


def test_a_cache_keeps_what_was_used_last_within_its_size() -> None:
    cache = Cache(100, Runtime())
    for i in range(5):
        cache.put(("x", i), i, 30)
        cache.get(("x", 0))
    assert [cache.get(("x", i)) for i in range(5)] == [0, None, None, 3, 4]
    assert cache.size == 90
    cache.put(("x", 0), "new", 10)
    assert cache.size == 70
    cache.put(("x", 9), "huge", 1000)
    assert cache.get(("x", 9)) is None
    assert cache.size == 0


def test_a_tiny_cache_is_slow_and_right() -> None:
    bucket, opened = table(cache_size=10)
    assert [opened.get(b"%05d" % i) for i in (8, 10, 8)] == [
        (b"value 4", 5),
        (b"value 5", 6),
        (b"value 4", 5),
    ]
    assert bucket.requests == 6


@pytest.mark.parametrize("at", [20, len(DATA) // 2, len(DATA) - 60])
def test_damage_names_the_object(at: int) -> None:
    data = bytearray(DATA)
    data[at] ^= 1
    bucket = MemoryBucket()
    bucket.put_if_absent("levels/x.sst", data)
    opened = Table(bucket, Cache(2**20, Runtime()), "levels/x.sst", len(DATA))
    with pytest.raises(CorruptError, match=r"levels/x\.sst"):
        list(opened.scan(b"", None))


def test_a_truncated_object_raises() -> None:
    bucket = MemoryBucket()
    bucket.put_if_absent("levels/x.sst", DATA[:-10])
    with pytest.raises(CorruptError, match="cut short"):
        Table(bucket, Cache(2**20, Runtime()), "levels/x.sst", len(DATA)).get(b"1")
    with pytest.raises(FileNotFoundError):
        Table(bucket, Cache(2**20, Runtime()), "levels/y.sst", len(DATA)).get(b"1")


def test_an_empty_sst_has_no_rows() -> None:
    bucket = MemoryBucket()
    data = encode_sst(Rows.concat([]), writer_epoch=1, unique_id=bytes(16))
    bucket.put_if_absent("wal/x.sst", data)
    opened = Table(bucket, Cache(2**20, Runtime()), "wal/x.sst", len(data))
    assert opened.get(b"k") is None
    assert list(opened.scan(b"", None)) == []


@pytest.mark.parametrize("size", [20_000, 40_000, 65_535])
def test_an_sst_of_the_wal_with_long_keys_is_read(size: int) -> None:
    """Its footer has the first and the last key, and is longer than what is read at first."""
    bucket, runtime = MemoryBucket(), Runtime()
    keys = [letter * size for letter in (b"a", b"b", b"c")]
    with open_kv(bucket, create=True, memory_bytes_max=0, flush_ms=None, watch_ms=None) as kv:
        kv.write(dict.fromkeys(keys, b"value")).result()
        kv.put(b"d", b"value").result()
        assert [kv.get(key) for key in keys] == [b"value"] * 3
        assert len(list(kv.items())) == 4
    with read_kv(bucket, memory_bytes_max=0, cache_bytes_max=0, runtime=runtime) as reader:
        assert [reader.get(key) for key in keys] == [b"value"] * 3
        assert reader.verify().verdict == "clean"
        assert len(list(reader.items(reverse=True))) == 4
