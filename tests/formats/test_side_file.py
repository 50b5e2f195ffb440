import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.formats import side_file as fmt
from holdfast.formats.flaw import Flaw

GOLDEN = Path(__file__).parents[1] / "golden/side_file"
CODEC = {"codec": 1, "stable": {"43757272656e745465726d": "0400000000000000"}}
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "replica": ("replicas/north.json", {"acknowledged": 7, "updated_ms": 1794865474184}),
    "transaction": (
        "staging/txn-a440cace3f3f051f679fc0096bb6339b.json",
        {"app": "golden-query", "version": 6},
    ),
    "origin": (
        "origin.json",
        {
            "source": "/srv/golden/before",
            "first_index": 100,
            "belongings": {"raft-wal": CODEC},
        },
    ),
}
NAME, BODY = FILES["replica"]
FIELDS = {"acknowledged": int, "updated_ms": int}


def fields_of(body: dict[str, Any]) -> dict[str, type]:
    return {field: type(value) for field, value in body.items()}


@pytest.mark.parametrize("kind", FILES)
def test_golden_files_are_read_and_written(kind: str) -> None:
    (name, body), golden = FILES[kind], (GOLDEN / f"{kind}.json").read_bytes()
    assert fmt.encode_side_file(name, body) == golden
    assert fmt.decode_side_file(name, golden, fields_of(body)) == body
    assert json.loads(golden)["body"] == body, "any JSON parser reads it"


@pytest.mark.parametrize("kind", FILES)
def test_files_of_0_1_0_are_read(kind: str) -> None:
    name, body = FILES[kind]
    for data in (json.dumps(body), json.dumps(body, indent=1)):
        assert fmt.decode_side_file(name, data.encode(), fields_of(body)) == body


@pytest.mark.parametrize("kind", FILES)
def test_every_flipped_bit_is_a_flaw(kind: str) -> None:
    name, body = FILES[kind]
    golden = (GOLDEN / f"{kind}.json").read_bytes()
    for bit in range(8 * len(golden)):
        flipped = bytearray(golden)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(fmt.decode_side_file(name, bytes(flipped), fields_of(body)), Flaw), bit


@pytest.mark.parametrize("kind", FILES)
def test_every_shorter_and_every_longer_file_is_a_flaw(kind: str) -> None:
    name, body = FILES[kind]
    golden = (GOLDEN / f"{kind}.json").read_bytes()
    others = [golden[:size] for size in range(len(golden))]
    others += [golden[start:] for start in range(1, len(golden))]
    others += [golden + bytes([byte]) for byte in range(256)]
    others += [golden + golden, golden[:-2] + b" }\n", golden.replace(b"\n", b"\r\n")]
    for data in others:
        assert isinstance(fmt.decode_side_file(name, data, fields_of(body)), Flaw), data


def test_bytes_in_a_row_that_are_overwritten_are_a_flaw() -> None:
    golden, random = (GOLDEN / "replica.json").read_bytes(), Random(1)
    for _ in range(5000):
        size = random.randrange(1, 40)
        start = random.randrange(len(golden))
        data = golden[:start] + random.randbytes(size) + golden[start + size :]
        found = fmt.decode_side_file(NAME, data, FIELDS)
        assert isinstance(found, Flaw) or data == golden


def test_a_file_under_the_name_of_another_is_a_flaw() -> None:
    data = fmt.encode_side_file(NAME, BODY)
    found = fmt.decode_side_file("replicas/south.json", data, FIELDS)
    assert isinstance(found, Flaw)
    assert "checksum" in found.why


@pytest.mark.parametrize(
    "body",
    [
        {"acknowledged": 7},
        {"acknowledged": 7, "updated_ms": 1, "more": 0},
        {"acknowledged": "7", "updated_ms": 1},
        {"acknowledged": 7.0, "updated_ms": 1},
        {"acknowledged": True, "updated_ms": 1},
        {"acknowledged": None, "updated_ms": 1},
        [7, 1],
        7,
    ],
)
def test_other_fields_and_types_are_a_flaw_in_both_forms(body: Any) -> None:
    for data in (json.dumps(body).encode(), fmt.encode_side_file(NAME, body)):
        assert isinstance(fmt.decode_side_file(NAME, data, FIELDS), Flaw)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"[" * 100_000, b"9" * 10_000])
def test_what_cannot_be_parsed_is_a_flaw(data: bytes) -> None:
    assert isinstance(fmt.decode_side_file(NAME, data, FIELDS), Flaw)
