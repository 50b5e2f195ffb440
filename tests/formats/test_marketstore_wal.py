"""Logs of the real program, rebuilt to the byte."""

from tests.bars.conftest import Golden

from holdfast.formats import market_wal, marketstore_wal
from holdfast.formats.flaw import Flaw

BROKEN = ("torn", "bad_md5", "tglen", "garbage", "second_status", "no_final", "empty", "ten_bytes")


def rebuilt(data: bytes) -> bytes:
    parts = [data[:11]]
    for message in market_wal.scan(memoryview(data)).messages:
        if isinstance(message, market_wal.Info):
            parts.append(market_wal.encode_info(message.tgid, message.destination, message.status))
        elif isinstance(message, market_wal.Group):
            intervals = marketstore_wal.decode_intervals(message)
            assert not isinstance(intervals, Flaw)
            sets = b"".join(map(marketstore_wal.encode_interval, intervals))
            parts.append(market_wal.encode_group(message.tgid, sets, len(intervals)))
    return b"".join(parts)


def test_logs_are_rebuilt_to_the_byte(golden: Golden) -> None:
    paths = [path for path in golden.logs() if not path.name.startswith(BROKEN)]
    assert len(paths) >= 25
    for path in paths:
        assert rebuilt(path.read_bytes()) == path.read_bytes()


def test_garbage_in_a_group_is_a_flaw() -> None:
    for sets in (b"\x00", b"\x00\xff\xff", b"\x02\x00\x00" + bytes(60), bytes(27) + b"\x01"):
        data = market_wal.encode_group(1, sets, 1)
        message = market_wal.scan(memoryview(data), 0).messages[0]
        assert isinstance(message, market_wal.Group)
        assert isinstance(marketstore_wal.decode_intervals(message), Flaw)
