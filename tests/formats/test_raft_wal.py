from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.formats import raft_wal as fmt
from holdfast.formats.checksums import crc32c
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import RaftEntry, encode_entry

HEADER = fmt.encode_header(fmt.Header(1, 0, 1))
batch_lists = st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=9), max_size=12)


def segment(batches: list[list[bytes]], *, sealed: bool = False) -> tuple[bytes, int]:
    """A segment of these batches, and where its index begins."""
    data, offsets, index_start = b"", list[int](), 0
    for i, payloads in enumerate(batches):
        last = sealed and i == len(batches) - 1
        batch = fmt.encode_batch(
            payloads,
            offset=len(data),
            header=b"" if data else HEADER,
            earlier=offsets,
            size_limit=None if last else 2**31,
        )
        data, index_start = data + batch.data, batch.index_start
        offsets += batch.offsets.tolist()
    return data, index_start


def payloads_of(data: bytes, scan: fmt.Scan) -> list[bytes]:
    found = zip(scan.starts.tolist(), scan.lengths.tolist(), strict=True)
    return [data[start + 8 : start + 8 + length] for start, length in found]


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [payload for batch in batches for payload in batch]


def test_the_known_first_batch() -> None:
    payload = encode_entry(RaftEntry(1, 1, 0, bytes((31 + 7 * j) & 255 for j in range(50))))
    batch = fmt.encode_batch([payload], offset=0, header=HEADER, size_limit=65536)
    assert (
        batch.data[:32].hex() == "0d6beb58000000000100000000000000" + "0" * 16 + "0100000000000000"
    )
    assert batch.data[32:40].hex() == "0100000046000000"
    assert batch.data[112:].hex() == "030000009e0d4f8c"
    assert (len(batch.data), batch.offsets.tolist(), batch.index_start) == (120, [32], 0)


def test_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == crc32c(memoryview(b"123456789")) == 0xE3069283


@given(batch_lists, st.integers(0, 3))
def test_a_segment_round_trips(batches: list[list[bytes]], zeros: int) -> None:
    data, _ = segment(batches)
    found = fmt.scan(memoryview(data + bytes(8 * zeros)))
    assert payloads_of(data, found) == flat(batches)
    assert (found.flaw, found.stop, found.index_start) == (None, len(data), 0)
    assert found.counts.tolist() == np.cumsum([len(batch) for batch in batches]).tolist()


@given(batch_lists.filter(bool))
def test_a_sealed_segment_is_found_by_its_index_and_without(batches: list[list[bytes]]) -> None:
    data, index_start = segment(batches, sealed=True)
    by_index = fmt.scan_sealed(memoryview(data + bytes(16)), index_start)
    assert isinstance(by_index, fmt.Scan)
    assert payloads_of(data, by_index) == flat(batches)
    assert fmt.bad_slices(memoryview(data), by_index.begins, by_index.commits) == []
    by_walk = fmt.scan(memoryview(data + bytes(16)))
    assert by_walk.index_start == index_start
    for name in ("starts", "lengths", "begins", "commits", "counts"):
        assert getattr(by_walk, name).tolist() == getattr(by_index, name).tolist()


@given(batch_lists.filter(bool), st.data())
def test_a_scan_may_begin_after_any_commit(batches: list[list[bytes]], draw: st.DataObject) -> None:
    sealed = draw.draw(st.booleans())
    data, index_start = segment(batches, sealed=sealed)
    whole = fmt.scan(memoryview(data))
    k = draw.draw(st.integers(0, len(batches) - 1))
    base, count = int(whole.commits[k]) + 8, int(whole.counts[k])
    rest = fmt.scan(memoryview(data[base:]), base)
    assert rest.starts.tolist() == whole.starts[count:].tolist()
    assert rest.begins.tolist() == whole.begins[k + 1 :].tolist()
    assert (rest.stop, rest.flaw) == (whole.stop, None)
    assert rest.index_start == (index_start if k < len(batches) - 1 else 0)


@pytest.mark.parametrize(("spare", "seals"), [(0, False), (-1, True)])
def test_seals_when_entries_and_index_pass_the_limit(spare: int, seals: bool) -> None:
    limit = 32 + 3 * 16 + fmt.index_frame_size(3) + spare
    batch = fmt.encode_batch([b"12345678"] * 3, offset=0, header=HEADER, size_limit=limit)
    assert bool(batch.index_start) == seals


@settings(max_examples=300)
@given(batch_lists.filter(bool), st.data())
def test_a_flipped_bit_costs_at_most_what_follows(
    batches: list[list[bytes]], draw: st.DataObject
) -> None:
    data = bytearray(segment(batches)[0])
    whole = fmt.scan(memoryview(bytes(data)))
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    hit = int(np.searchsorted(whole.commits + 8, bit // 8, "right"))
    data[bit // 8] ^= 1 << bit % 8
    found = fmt.scan(memoryview(data))
    before = int(whole.counts[hit - 1]) if hit else 0
    kept = payloads_of(bytes(data), found)
    assert kept == flat(batches)[: len(kept)]
    assert len(kept) == before


@given(batch_lists.filter(bool), st.data())
def test_a_cut_is_a_flaw_and_keeps_whole_batches(
    batches: list[list[bytes]], draw: st.DataObject
) -> None:
    data = segment(batches)[0]
    whole = fmt.scan(memoryview(data))
    cut = draw.draw(st.integers(0, len(data) - 1))
    found = fmt.scan(memoryview(data[:cut]))
    assert len(found.commits) == np.searchsorted(whole.commits + 8, cut, "right")
    assert found.stop <= cut


def test_a_payload_full_of_headers_changes_nothing() -> None:
    fake = fmt.encode_batch([b"fake" * 2], offset=0, size_limit=2**31).data
    random = Random(4)
    batches = [[fake * random.randint(1, 400) for _ in range(5)] for _ in range(60)]
    data, index_start = segment(batches, sealed=True)
    assert payloads_of(data, fmt.scan(memoryview(data))) == flat(batches)
    found = fmt.scan_sealed(memoryview(data), index_start)
    assert isinstance(found, fmt.Scan)
    assert payloads_of(data, found) == flat(batches)


def test_many_windows() -> None:
    random = Random(5)
    batches = [
        [random.randbytes(random.choice((0, 90, 3000, 1 << 20))) for _ in range(3)]
        for _ in range(30)
    ]
    data, _ = segment(batches)
    assert payloads_of(data, fmt.scan(memoryview(data + bytes(4096)))) == flat(batches)


def test_reserved_bytes_in_use_are_a_flaw() -> None:
    data = bytearray(segment([[b"one"], [b"two"]])[0])
    data[len(data) - 7] = 9
    assert payloads_of(bytes(data), fmt.scan(memoryview(data))) == [b"one"]


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"\x04\0\0\0\0\0\0\0", "type 0x4"),
        (b"\0\0\0\0\1\0\0\0", "no type"),
        (b"\1\0\0\0\xff\xff\xff\xff", "cut by the end"),
        (b"\1\0\0\0\1\0\0\0x\0\0\0\0\0\0\0", "without its commit"),
        (b"\3\0\0\0\1\0\0\0", "checksum"),
        (b"\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", "does not name the entries"),
    ],
)
def test_what_follows_the_last_batch_is_a_flaw(tail: bytes, why: str) -> None:
    data = segment([[b"one"], [b"two"]])[0]
    found = fmt.scan(memoryview(data + tail))
    assert found.flaw is not None
    assert (found.stop, found.flaw.offset, len(found.starts)) == (len(data), len(data), 2)
    assert why in found.flaw.why


def test_nothing_follows_a_seal() -> None:
    data, index_start = segment([[b"one"], [b"two"]], sealed=True)
    more = fmt.encode_batch([b"more"], offset=len(data), size_limit=2**31).data
    found = fmt.scan(memoryview(data + more))
    assert (len(found.starts), found.stop, found.index_start) == (2, len(data), index_start)
    assert found.flaw == Flaw(len(data), "frames after the index")


def test_a_wrong_index_is_a_flaw() -> None:
    data, index_start = segment([[b"one"], [b"two"]], sealed=True)
    lying = bytearray(data)
    lying[index_start] += 8
    crc = crc32c(bytes(lying[int(fmt.scan(memoryview(data)).begins[1]) : -8]))
    lying[-4:] = crc.to_bytes(4, "little")
    found = fmt.scan(memoryview(lying))
    assert (len(found.starts), found.index_start) == (1, 0)
    assert isinstance(fmt.scan_sealed(memoryview(lying), index_start), Flaw)


@pytest.mark.parametrize("index_start", [0, 8, 36, 48, 2**40])
def test_a_missing_index_is_a_flaw(index_start: int) -> None:
    data, _ = segment([[b"one"], [b"two"]], sealed=True)
    assert isinstance(fmt.scan_sealed(memoryview(data), index_start), Flaw)


@pytest.mark.parametrize("byte", [0, 4, 7, 9, 40, 44])
def test_a_batch_after_a_flaw_is_seen(byte: int) -> None:
    """Type, length, payload or commit of the second of three batches."""
    data = bytearray(segment([[b"one" * 9], [b"two" * 9], [b"three" * 9]])[0] + bytes(64))
    second = int(fmt.scan(memoryview(data)).begins[1])
    data[second + byte] ^= 0x20
    found = fmt.scan(memoryview(data))
    assert found.stop == second
    assert fmt.is_followed_by_batch(bytes(data[found.stop :]), found.stop)
    data[-65] ^= 1
    assert not fmt.is_followed_by_batch(bytes(data[found.stop :]), found.stop)


def test_batches_in_a_torn_payload_do_not_count() -> None:
    fake = fmt.encode_batch([b"fake" * 2], offset=0, size_limit=2**31).data
    data = bytearray(segment([[b"one"], [fake * 40, b"two"]])[0])
    data[-20] ^= 1
    found = fmt.scan(memoryview(data + bytes(64)))
    assert len(found.starts) == 1
    assert not fmt.is_followed_by_batch(bytes(data[found.stop :]) + bytes(64), found.stop)


@pytest.mark.parametrize("data", [b"", HEADER[:31], b"\1" + HEADER[1:], HEADER[:4] + b"\1" * 28])
def test_a_damaged_header_is_a_flaw(data: bytes) -> None:
    assert isinstance(fmt.decode_header(data), Flaw)


@pytest.mark.parametrize("byte", [0, 4, 5, 9, 24])
def test_a_damaged_frame_of_a_sealed_segment_costs_its_batch(byte: int) -> None:
    batches = [[b"one"], [b"two", b"2"], [b"three"]]
    data, index_start = segment(batches, sealed=True)
    whole = fmt.scan_sealed(memoryview(data), index_start)
    assert isinstance(whole, fmt.Scan)
    rotten = bytearray(data)
    rotten[int(whole.begins[1]) + byte] ^= 0x10
    found = fmt.scan_sealed(memoryview(rotten), index_start, strict=False)
    assert isinstance(found, fmt.Scan)
    assert found.commits.tolist() == whole.commits.tolist()
    assert found.counts.tolist() == whole.counts.tolist()
    assert fmt.bad_slices(memoryview(rotten), found.begins, found.commits) == [1]


def test_header_round_trips() -> None:
    header = fmt.Header(2**64 - 1, 2**63, 65536)
    assert fmt.decode_header(fmt.encode_header(header)) == header


def test_limits_are_enforced_on_write() -> None:
    with pytest.raises(ValueError, match="at most 67108864 fit"):
        fmt.encode_batch([bytes(fmt.ENTRY_SIZE_MAX + 1)], offset=0, size_limit=2**31)
    with pytest.raises(ValueError, match="too large: at most 4294967295"):
        fmt.encode_batch([b"x"], offset=2**32 - 16, size_limit=2**31)
