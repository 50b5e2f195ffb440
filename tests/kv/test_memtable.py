import pytest
from tests.kv.stores import rows_of

from holdfast.formats.sst import Rows
from holdfast.kv.memtable import (
    KEY_SIZE_MAX,
    Layer,
    Row,
    checked_key,
    checked_value,
    layer_of,
    merged,
    trimmed,
)


def test_a_scan_gives_sorted_chunks_within_bounds() -> None:
    rows: dict[bytes, Row] = {b"%05d" % i: (b"v", i + 1) for i in reversed(range(20_000))}
    layer = Layer(rows, size=20_000 * 200)
    forward = list(layer.scan(b"00005", b"15000"))
    keys = [key for chunk in forward for key in chunk.keys.to_pylist()]
    assert keys == [b"%05d" % i for i in range(5, 15_000)]
    assert len(forward) > 1
    backward = list(layer.scan(b"00005", b"15000", reverse=True))
    assert [chunk.keys[0].as_py() for chunk in backward] == [
        chunk.keys[0].as_py() for chunk in reversed(forward)
    ]
    assert list(layer.scan(b"x", None)) == []
    assert list(layer.scan(b"00010", b"00010")) == []


def test_big_values_come_in_small_chunks() -> None:
    layer = Layer({b"%d" % i: (bytes(2**20), i + 1) for i in range(9)}, size=0)
    assert max(len(chunk) for chunk in layer.scan(b"", None)) <= 4


def test_of_two_layers_the_newer_row_stays() -> None:
    older = layer_of(rows_of(a=b"1", b=b"2"), 4)
    newer = Layer({b"b": (None, 9), b"c": (b"3", 10)}, 300, 5, 6)
    both = merged(newer, older)
    assert both.sorted_rows().to_pairs() == [(b"a", b"1", 1), (b"b", None, 9), (b"c", b"3", 10)]
    assert (both.first_id, both.last_id) == (4, 6)
    assert older.rows[b"b"] == (b"2", 2)  # what a view may hold does not change
    rest = trimmed(both, 4, last_seq=2)
    assert rest.sorted_rows().keys.to_pylist() == [b"b", b"c"]
    assert (rest.first_id, rest.last_id) == (5, 6)
    assert 0 < rest.size < both.size


def test_layers_of_layers_are_sorted_once_and_keep_little_that_was_overwritten() -> None:
    layer = layer_of(rows_of(a=b"0", b=b"0"), 1)
    for wal_id in range(2, 100):
        rows = Rows.from_pairs([(b"%03d" % wal_id, b"", wal_id), (b"a", b"%d" % wal_id, wal_id)])
        layer = merged(layer_of(rows, wal_id), layer)
        assert sum(map(len, layer.parts)) <= 2 * len(layer.rows)
        assert len(layer.parts) <= 32
        if wal_id % 30 == 0:
            assert layer.sorted_rows() is layer.sorted_rows()
    assert dict(layer.rows) == {key: (v, seq) for key, v, seq in layer.sorted_rows().to_pairs()}
    assert len(layer.rows) == 100
    assert layer.sorted_rows().is_sorted()


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        ("text", TypeError, "for instance b'text'"),
        (bytearray(b"k"), TypeError, "not bytearray"),
        (b"", ValueError, "0 bytes"),
        (bytes(KEY_SIZE_MAX + 1), ValueError, "1 to 65535"),
    ],
)
def test_keys_are_bytes_and_not_too_long(key: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        checked_key(key)
    assert checked_key(bytes(KEY_SIZE_MAX))


def test_values_are_bytes() -> None:
    assert checked_value(b"") == b""
    with pytest.raises(TypeError, match="a value is bytes, not int"):
        checked_value(1)  # type: ignore[arg-type]
