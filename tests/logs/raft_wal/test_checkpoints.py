import pytest

from holdfast.formats.raft_entry import (
    CONFIGURATION,
    RaftEntry,
    add_to_checksum,
    decode_checkpoint,
    encode_checkpoint,
)
from holdfast.logs.raft_wal import OPAQUE_CODEC, RAFT_CODEC, RaftWal
from holdfast.testing import SimDisk


def total(entries: list[RaftEntry]) -> int:
    checksum = 0
    for entry in entries:
        checksum = add_to_checksum(checksum, entry)
    return checksum


def entries(first: int, last: int) -> list[RaftEntry]:
    return [RaftEntry(i, 3, 0, b"data %d" % i, b"x") for i in range(first, last + 1)]


def test_the_sum_is_of_the_fields_big_endian_begun_with_zero() -> None:
    checksum = 0
    for byte in bytes(7) + b"\5" + bytes(7) + b"\3" + bytes(8) + b"data" + b"more":
        checksum = ((checksum ^ byte) * 0x100000001B3) % 2**64
    assert add_to_checksum(0, RaftEntry(5, 3, 0, b"data", b"more")) == checksum


def test_the_first_configuration_resets_the_sum() -> None:
    assert add_to_checksum(99, RaftEntry(1, 1, CONFIGURATION, b"who")) == 0
    assert add_to_checksum(99, RaftEntry(2, 1, CONFIGURATION, b"who")) != 0


def test_a_checkpoint_round_trips() -> None:
    assert decode_checkpoint(encode_checkpoint(7, 2**64 - 1)) == (7, 2**64 - 1)
    assert decode_checkpoint(bytes(24)) is None
    assert decode_checkpoint(b"short") is None


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_sum_is_damage(wrong: int) -> None:
    with RaftWal(SimDisk(), codec=RAFT_CODEC, segment_size_max=400) as wal:
        wal.store_logs(entries(1, 12))
        first = encode_checkpoint(2, total(entries(2, 12)))
        wal.store_logs([RaftEntry(13, 3, 0, b"", first)])
        rest = [wal.get_log(13), *entries(14, 20)]
        wal.store_logs(entries(14, 20))
        wal.store_logs([RaftEntry(21, 3, 0, b"", encode_checkpoint(13, total(rest) + wrong))])
        found = wal.check_whole()
        assert [(d.first_index, d.last_index) for d in found] == [(13, 20)] * wrong
        wal.truncate_head(14)
        assert wal.check_whole() == []  # its range is not complete any more


def test_opaque_payloads_have_no_checkpoints() -> None:
    with RaftWal(SimDisk(), codec=OPAQUE_CODEC) as wal:
        wal.append([b"x"])
        assert wal.check_whole() == []
        assert wal.decode_columns(next(iter(wal.scan()))) is None
