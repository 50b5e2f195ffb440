"""Year files of the real server: each header and record, rebuilt to the byte."""

import numpy as np
import pytest
from tests.bars.conftest import Golden

from holdfast.formats import year_file as fmt
from holdfast.formats.flaw import Flaw


def test_headers_are_rebuilt_to_the_byte(golden: Golden) -> None:
    paths = golden.year_files()
    assert len(paths) >= 15
    for path in paths:
        data = path.read_bytes()
        header = fmt.decode_header(data)
        assert isinstance(header, fmt.Header)
        assert fmt.encode_header(header) == data[: fmt.HEADER_SIZE]
        if not header.schema.is_variable:
            assert len(data) == header.stop


def test_fixed_records_are_rebuilt_to_the_byte(golden: Golden) -> None:
    for path in golden.year_files():
        data = path.read_bytes()
        header = fmt.decode_header(data)
        assert isinstance(header, fmt.Header)
        schema = header.schema
        if schema.is_variable:
            continue
        records = np.frombuffer(data, schema.record, header.count, fmt.HEADER_SIZE)
        index = np.flatnonzero(records[fmt.INDEX_FIELD]) + 1
        rows = np.empty(len(index), schema.row)
        for name in schema.names:
            rows[name] = records[name][index - 1]
        again = bytearray(header.stop)
        again[: fmt.HEADER_SIZE] = fmt.encode_header(header)
        encoded = bytes(fmt.encode_records(index, rows, schema))
        for at, one in enumerate(index.tolist()):
            offset, size = schema.offset_of(one), schema.record_size
            again[offset : offset + size] = encoded[at * size : at * size + size]
        assert again == data


def test_payloads_are_rebuilt_to_the_byte_compressed_or_not(golden: Golden) -> None:
    count = 0
    for path in golden.year_files():
        data = path.read_bytes()
        header = fmt.decode_header(data)
        assert isinstance(header, fmt.Header)
        if not header.schema.is_variable:
            continue
        slots = np.frombuffer(data, fmt.SLOT, header.count, fmt.HEADER_SIZE)
        for index, offset, length in slots[slots["index"] != 0].tolist():
            assert slots[index - 1]["index"] == index
            found = fmt.decode_payload(
                data[offset : offset + length], header.schema.stored.itemsize
            )
            assert not isinstance(found, Flaw)
            rows = np.frombuffer(found[0], header.schema.stored)
            assert (np.diff(rows[fmt.TICKS_FIELD].astype(np.int64)) >= 0).all()
            again = fmt.encode_payload(found[0], compress=found[1])
            assert again == data[offset : offset + length]
            assert ("nocompress" in str(path)) != found[1]
            count += 1
    assert count > 40


def test_a_new_year_of_zeros_is_marked() -> None:
    schema = fmt.schema_of((("Close", 2),), False)
    rows = np.zeros(2, schema.row)
    marked = fmt.encode_records(np.array([0, 1]), rows, schema)
    assert np.frombuffer(bytes(marked), "<i8")[::2].tolist() == [fmt.NO_DATA_MARK, 1]
    rows["Close"] = 1.5
    assert np.frombuffer(bytes(fmt.encode_records(np.array([0]), rows[:1], schema)), "<i8")[0] == 0


@pytest.mark.parametrize("offset", [0, 264, 272, 280, 288, 296, 33080])
def test_a_header_that_lies_is_a_flaw(offset: int) -> None:
    schema = fmt.schema_of((("Open", 0), ("Volume", 1)), False)
    data = bytearray(fmt.encode_header(fmt.Header(2021, 60 * 10**9, schema)))
    data[offset : offset + 8] = b"\x07\x01\x02\x03\x04\x05\x06\xff"
    assert isinstance(fmt.decode_header(data), Flaw)
    assert isinstance(fmt.decode_header(data[:1000]), Flaw)


def test_an_invalid_payload_is_a_flaw() -> None:
    for data in (b"", b"\xff\xff\xff\xff\x0f", b"\x80" * 5, b"\x10abc"):
        assert isinstance(fmt.decode_payload(data, 12), Flaw)


@pytest.mark.parametrize(
    "columns",
    [(), (("a", 0), ("a", 1)), (("", 0),), (("x" * 33, 0),), (("a", 8),), (("a\0", 0),)],
)
def test_columns_that_no_header_can_hold_are_refused(columns: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match="column"):
        fmt.schema_of(columns, False)


def test_every_type_has_its_code() -> None:
    for name in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "U16", "U3"):
        code = fmt.type_code(np.dtype(name))
        assert np.dtype(fmt.TYPES[code]).kind == np.dtype(name).kind
    with pytest.raises(ValueError, match="type"):
        fmt.type_code(np.dtype("f2"))
