import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.kv.names import contiguous, id_of, level_name, manifest_name, wal_ids, wal_name


def test_names_sort_as_ids_do() -> None:
    ids = [1, 9, 10, 2**32, 2**64 - 1]
    for name in (manifest_name, wal_name, level_name):
        assert sorted(map(name, ids)) == [name(number) for number in ids]
        assert [id_of(name(number)) for number in ids] == ids


@pytest.mark.parametrize(
    "name",
    [
        "wal/00000000000000000001.sst.6f1e.9a",  # a temporary of a two-phase write
        "wal/1.sst",
        "wal/00000000000000000001.manifest",
        "wal/99999999999999999999.sst",
        "other/00000000000000000001.sst",
        "wal/0000000000000000000\u0661.sst",  # a digit, but not one of ours
    ],
)
def test_what_is_not_named_to_the_letter_has_no_id(name: str) -> None:
    assert id_of(name) is None


def test_ids_take_64_bits() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        wal_name(2**64)
    with pytest.raises(ValueError, match="64 bits"):
        manifest_name(-1)


def test_a_listing_stops_at_the_first_gap() -> None:
    bucket = MemoryBucket()
    for number in (1, 2, 3, 5):
        bucket.put_if_absent(wal_name(number), b"")
    bucket.put_if_absent(wal_name(4) + ".temporary", b"")
    assert wal_ids(bucket, after=1) == [2, 3, 5]
    assert contiguous(2, wal_ids(bucket, after=1)) == 3
    assert contiguous(7, []) == 6
    assert contiguous(4, [5, 6]) == 3
