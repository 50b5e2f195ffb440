from pathlib import Path
from random import Random
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UnsupportedError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw

U64 = st.integers(0, 2**64 - 1)
LSN = st.integers(1, 2**64 - 1)
headers = st.builds(fmt.Header, id=st.uuids(), created_ms=U64, first_lsn=LSN, last_lsn=U64)
payload_lists = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=300)
HEADER = fmt.encode_header(fmt.Header(UUID(int=1), 0, 1))


def segment(payloads: list[bytes]) -> bytes:
    return HEADER + fmt.encode_entries(payloads)[0]


def payloads_of(data: bytes, scan: fmt.Scan) -> list[bytes]:
    found = [fmt.decode_entry(data, int(begin)) for begin in scan.bounds[:-1]]
    assert not [flaw for flaw in found if isinstance(flaw, Flaw)]
    return [payload for payload in found if isinstance(payload, bytes)]


@given(headers)
def test_header_round_trips(header: fmt.Header) -> None:
    assert fmt.decode_header(fmt.encode_header(header)) == header


def test_header_is_the_one_of_the_text() -> None:
    golden = (Path(__file__).parents[1] / "golden/shanghai/header.bin").read_bytes()
    header = fmt.Header(UUID("f47ac572-e34d-4ab3-9c8e-3f2a1b6fc84e"), 0x18B2E5FA000, 1)
    assert fmt.encode_header(header) == golden
    assert fmt.decode_header(golden) == header


def test_unknown_reserved_bytes_are_ignored() -> None:
    assert fmt.decode_header(HEADER[:48] + b"?" * 16) == fmt.decode_header(HEADER)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="version 2; this release reads version 1"):
        fmt.decode_header(HEADER[:6] + b"\0\2" + HEADER[8:])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut to 0"),
        (HEADER[:63], "cut to 63"),
        (b"GARBAGE" * 10, "magic"),
        (HEADER[:32] + bytes(32), "first LSN is 0"),
    ],
)
def test_an_invalid_header_is_a_flaw(data: bytes, why: str) -> None:
    flaw = fmt.decode_header(data)
    assert isinstance(flaw, Flaw)
    assert why in flaw.why


@given(payload_lists)
def test_entries_round_trip(payloads: list[bytes]) -> None:
    data = segment(payloads)
    scan = fmt.scan(data)
    assert scan.flaw is None
    assert payloads_of(data, scan) == payloads
    ends = fmt.encode_entries(payloads)[1]
    assert (scan.bounds[1:] - fmt.HEADER_SIZE).tolist() == ends.tolist()


@given(payload_lists, st.integers(0, 5))
def test_slices_of_one_buffer_encode_alike(payloads: list[bytes], before: int) -> None:
    bounds = np.cumsum([before, *map(len, payloads)])
    data, ends = fmt.encode_slices(bytes(before) + b"".join(payloads) + b"after", bounds)
    wanted, wanted_ends = fmt.encode_entries(payloads)
    assert (bytes(data), ends) == (bytes(wanted), wanted_ends)


@given(payload_lists, st.data())
def test_any_cut_leaves_a_prefix(payloads: list[bytes], draw: st.DataObject) -> None:
    whole = segment(payloads)
    cut = draw.draw(st.integers(fmt.HEADER_SIZE, len(whole)))
    scan = fmt.scan(whole[:cut])
    found = payloads_of(whole, scan)
    assert found == payloads[: len(found)]
    assert (scan.flaw is None) == (scan.bounds[-1] == cut)


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3), st.data())
def test_no_flipped_bit_goes_unseen(payloads: list[bytes], draw: st.DataObject) -> None:
    whole = bytearray(segment(payloads))
    bit = draw.draw(st.integers(fmt.HEADER_SIZE * 8, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert fmt.scan(bytes(whole)).flaw is not None


def test_zeros_are_never_entries() -> None:
    for size in (8, 4096, 1 << 20):
        assert fmt.scan(HEADER + bytes(size)).flaw == Flaw(64, "unwritten space")


@pytest.mark.parametrize("payloads", [[], [b""], [b"x", b""], [b""] * 100])
def test_empty_payloads_and_batches_are_refused(payloads: list[bytes]) -> None:
    with pytest.raises(ValueError, match="empty"):
        fmt.encode_entries(payloads)


def test_a_length_of_4_gib_is_a_flaw_and_allocates_nothing() -> None:
    flaw = fmt.decode_entry(b"\xff\xff\xff\xff" + bytes(100))
    assert isinstance(flaw, Flaw)
    assert "payload of 4294967295 bytes" in flaw.why


def test_a_payload_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "PAYLOAD_SIZE_MAX", 10)
    with pytest.raises(ValueError, match="at most 10"):
        fmt.encode_entries([b"x" * 11])


def large_segments() -> dict[str, list[bytes]]:
    random = Random(7)
    inner = bytes(fmt.encode_entries([b"planted"] * 50)[0])
    return {
        "equal": [random.randbytes(100) for _ in range(12_000)],
        "mixed": [random.randbytes(random.randrange(1, 300)) for _ in range(9_000)],
        "zeros": [bytes(random.randrange(1, 300)) for _ in range(9_000)],
        "planted entries": [inner * random.randrange(1, 6) for _ in range(1_000)],
        "one huge": [random.randbytes(900_000), b"x", random.randbytes(500_000)],
    }


@pytest.mark.parametrize("name", large_segments())
def test_lanes_find_what_a_walk_finds(name: str) -> None:
    payloads = large_segments()[name]
    data = segment(payloads)
    walked = fmt._walk_on(memoryview(data), np.array([fmt.HEADER_SIZE]))
    assert len(data) > 1_000_000
    assert fmt.scan(data).bounds.tolist() == walked.tolist()
    assert payloads_of(data, fmt.scan(data)) == payloads


@pytest.mark.parametrize("name", large_segments())
def test_damage_anywhere_in_a_large_segment_is_found(name: str) -> None:
    payloads = large_segments()[name]
    whole = segment(payloads)
    bounds = fmt.scan(whole).bounds
    random = Random(3)
    for _ in range(12):
        at = random.randrange(fmt.HEADER_SIZE, len(whole))
        rotten = bytearray(whole)
        rotten[at] ^= 1 << random.randrange(8)
        scan = fmt.scan(rotten)
        hit = int(np.searchsorted(bounds, at, "right")) - 1
        assert scan.flaw is not None
        assert scan.flaw.offset == bounds[hit] == scan.bounds[-1]
    for cut in (1, 7, 8, 9, 1000):
        scan = fmt.scan(whole[:-cut])
        assert scan.flaw is not None
        assert scan.bounds[-1] == bounds[np.searchsorted(bounds, len(whole) - cut, "right") - 1]


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 70))
def test_garbage_is_only_ever_a_flaw(garbage: bytes, entries: int) -> None:
    data = segment([b"sound"] * entries) + garbage if entries else HEADER + garbage
    scan = fmt.scan(data)
    assert scan.bounds[-1] <= len(data)
    assert (scan.flaw is None) == (scan.bounds[-1] == len(data))


def test_garbage_the_size_of_a_segment() -> None:
    for seed in range(20):
        scan = fmt.scan(HEADER + Random(seed).randbytes(300_000))
        assert scan.flaw == Flaw(64, scan.flaw.why if scan.flaw else "")


@given(payload_lists)
def test_views_are_arrow_arrays_without_a_copy(payloads: list[bytes]) -> None:
    data, ends = fmt.encode_entries(payloads)
    bounds = np.array([0, *ends])
    views = fmt.payload_views(memoryview(data), bounds)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.binary_view(), len(payloads), buffers)
    array.validate(full=True)
    assert array.to_pylist() == payloads


def test_valid_entries_are_found_after_damage() -> None:
    payloads = [b"entry %06d" % i for i in range(2_000)]
    data = bytearray(segment(payloads))
    bounds = fmt.scan(data).bounds
    data[bounds[500] + 3] ^= 0xFF
    data[bounds[900] + 19] ^= 0xFF
    assert fmt.resync(memoryview(data), int(bounds[500]) + 1) == bounds[901]
    assert fmt.resync(memoryview(b"x" * 10_000), 0) is None


def test_a_hundred_thousand_mutants_are_only_ever_flaws() -> None:
    """Bytes replaced, cut out and put in: no error but a flaw, and bounds that stay inside."""
    random = Random(11)
    sound = segment([random.randbytes(random.randrange(1, 40)) for _ in range(6)])
    for _ in range(100_000):
        data = bytearray(sound)
        for _ in range(1 + int(random.random() * 3)):
            at = int(random.random() * len(data))
            kind = random.random()
            if kind < 0.6:
                data[at] = int(random.random() * 256)
            elif kind < 0.8:
                del data[at : at + int(random.random() * 30)]
            else:
                data[at:at] = random.randbytes(int(random.random() * 30))
        try:
            header = fmt.decode_header(data)
        except UnsupportedError:
            continue
        if isinstance(header, fmt.Header):
            scan = fmt.scan(data)
            assert (scan.flaw is None) == (scan.bounds[-1] == len(data))
