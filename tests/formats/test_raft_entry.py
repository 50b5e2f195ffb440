from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats import raft_entry as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import RaftEntry, Time

U64 = st.integers(0, 2**64 - 1)
zones = st.one_of(
    st.none(), st.integers(-12 * 3600, 14 * 3600).filter(lambda s: not -120 < s <= -60)
)
times = st.one_of(
    st.none(), st.builds(Time, unix_ns=st.integers(-(10**19), 10**20), offset_s=zones)
)
entries = st.builds(
    RaftEntry,
    index=U64,
    term=U64,
    type=st.integers(0, 255),
    data=st.binary(max_size=200),
    extensions=st.binary(max_size=200),
    appended_at=times.map(fmt.encode_time),
)


@given(entries)
def test_an_entry_round_trips(entry: RaftEntry) -> None:
    assert fmt.decode_entry(fmt.encode_entry(entry)) == entry


@given(times)
def test_a_time_round_trips(time: Time | None) -> None:
    assert fmt.decode_time(fmt.encode_time(time)) == time


def test_the_known_entry() -> None:
    data = bytes((31 + 7 * j) & 255 for j in range(50))
    wanted = (
        bytes.fromhex("01010032") + data + bytes.fromhex("00010000000000000000" + "00000000ffff")
    )
    assert fmt.encode_entry(RaftEntry(1, 1, 0, data)) == wanted


@pytest.mark.parametrize(
    ("time", "encoded"),
    [
        (None, "01000000000000000000000000ffff"),
        (Time(0), "010000000e7791f70000000000ffff"),
        (Time(0, 0), "010000000e7791f700000000000000"),
        (Time(1, 5 * 3600 + 1800), "010000000e7791f70000000001014a"),
        (Time(0, -3661), "020000000e7791f70000000000ffc3ff"),
    ],
)
def test_known_times(time: Time | None, encoded: str) -> None:
    assert fmt.encode_time(time).hex() == encoded
    assert fmt.decode_time(bytes.fromhex(encoded)) == time


@pytest.mark.parametrize(
    "entry",
    [
        RaftEntry(-1),
        RaftEntry(2**64),
        RaftEntry(1, 2**64),
        RaftEntry(1, 1, 256),
        RaftEntry(1, appended_at=b""),
        RaftEntry(1, appended_at=b"\3" + bytes(14)),
    ],
)
def test_what_cannot_be_written_is_refused(entry: RaftEntry) -> None:
    with pytest.raises(ValueError):
        fmt.encode_entry(entry)


@pytest.mark.parametrize("offset_s", [-60, -119, 10**7])
def test_a_zone_that_cannot_be_written_is_refused(offset_s: int) -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        fmt.encode_time(Time(0, offset_s))


WHOLE = fmt.encode_entry(RaftEntry(300, 2, 5, b"data", b"more"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no number where the index"),
        (b"\xff" * 11, "no number where the index"),
        (b"\xff" * 9 + b"\2" + WHOLE, "no number where the index"),
        (WHOLE[:6], "data of 4 bytes cut to 1"),
        (WHOLE[:-1], "a time of 14 bytes"),
        (WHOLE + b"\0", "a time of 16 bytes and version 1"),
        (WHOLE + b"\0\0", "a time of 17 bytes"),
        (b"\1\1\x80\2\0\0" + fmt.ZERO_TIME, "type 256"),
    ],
)
def test_damage_is_a_flaw(data: bytes, why: str) -> None:
    flaw = fmt.decode_entry(data)
    assert isinstance(flaw, Flaw)
    assert why in flaw.why


def test_a_time_of_no_version_is_a_flaw() -> None:
    assert fmt.decode_time(bytes(15)) == Flaw(0, "a time of 15 bytes and version 0")


def compare(payloads: list[bytes]) -> int:
    """Columns hold what one by one decodes; return how many are bad."""
    data = b"".join(payloads)
    lengths = np.array([len(p) for p in payloads], np.int64)
    columns = fmt.decode_columns(memoryview(data), np.cumsum(lengths) - lengths, lengths)
    for i, payload in enumerate(payloads):
        entry = fmt.decode_entry(payload)
        assert columns.bad[i] == isinstance(entry, Flaw)
        if isinstance(entry, Flaw):
            continue
        row = (columns.index[i], columns.term[i], columns.type[i])
        assert tuple(map(int, row)) == (entry.index, entry.term, entry.type)
        start, length = int(columns.data_start[i]), int(columns.data_length[i])
        assert data[start : start + length] == entry.data
        start, length = int(columns.extensions_start[i]), int(columns.extensions_length[i])
        assert data[start : start + length] == entry.extensions
        time = fmt.decode_time(entry.appended_at)
        assert bool(columns.is_appended[i]) == (time is not None)
        if isinstance(time, Time):
            seconds = int(columns.appended_s[i]) - fmt.UNIX_EPOCH
            assert seconds * 10**9 + int(columns.appended_ns[i]) == time.unix_ns
    return int(columns.bad.sum())


@given(st.lists(entries, max_size=30))
def test_columns_are_the_entries(entries: list[RaftEntry]) -> None:
    assert compare([fmt.encode_entry(entry) for entry in entries]) == 0


def test_columns_know_what_is_bad() -> None:
    random, bad = Random(5), 0
    for _ in range(200):
        payloads = []
        for _ in range(50):
            entry = RaftEntry(random.getrandbits(random.randint(1, 64)), 3, 0, random.randbytes(9))
            payload = bytearray(fmt.encode_entry(entry))
            for _ in range(random.randint(0, 2)):
                payload[random.randrange(len(payload))] = random.choice((0, 1, 0x80, 0xFF))
            payloads.append(bytes(payload[: random.choice((99, 99, 30, 4, 0))]))
        bad += compare(payloads)
    assert 1000 < bad < 9000
