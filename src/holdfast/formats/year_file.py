"""MarketStore's year files: bytes to values and back.  The page: docs/formats/year_file.md

year file := header[37024] record[intervals of the year]             integers are little-endian
          |  header[37024] slot[intervals of the year] payload*      where records vary in number
record    := index:i64 columns pad                                   index 0: nothing here
slot      := index:i64 offset:i64 length:i64                         of the interval's payload
payload   := (columns ticks:u32)*                                    one snappy block, or as it is

Interval i is at 37024 + (i - 1) record sizes.  Of days, index 0 is New Year's: its record lies in
the unused end of the header, and is there if it is not all zeros.  MarketStore writes it so too,
but never reads it.
"""

import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cramjam import DecompressionError, snappy  # to the byte what MarketStore's encoder makes

from holdfast.formats.bar_time import DAY_NS, interval_count
from holdfast.formats.flaw import Flaw

Bytes = bytes | bytearray | memoryview
Rows = npt.NDArray[np.void]

HEADER_SIZE, VERSION = 37_024, 2
COLUMNS_MAX, NAME_SIZE = 1024, 32
NEW_YEAR_ROOM = 365 * 8  # the unused end of a header
NO_DATA_MARK = -1  # the index of a New Year's record whose columns are all zeros
SLOT = np.dtype([("index", "<i8"), ("offset", "<i8"), ("length", "<i8")])
INDEX_FIELD, TICKS_FIELD = "\0index", "\0ticks"  # no column can have such a name
_FIXED_HEADER = struct.Struct("<q256sqqqqqq")
_NAMES_AT = 312
TYPES_AT = _NAMES_AT + COLUMNS_MAX * NAME_SIZE
HEAD_SIZE = _NAMES_AT + 255 * NAME_SIZE  # everything but the types
_AUTHOR = b"Created By Writer"
_BLOCK = 4096
_EXPANSION_MAX = 64  # no snappy block grows by more

TYPES: dict[int, str] = {
    **{0: "<f4", 1: "<i4", 2: "<f8", 3: "<i8", 4: "<i8", 5: "|i1", 6: "|b1", 9: "<i2"},
    **{10: "|u1", 11: "<u2", 12: "<u4", 13: "<u8", 14: "<U16"},
}
_CODES = {np.dtype(name): code for code, name in TYPES.items() if code != 4}


@dataclass(frozen=True, eq=False)
class Schema:
    """The columns of a bucket, in the order of its files, and whether intervals hold many rows.

    Created by schema_of, equal ones are the same object.
    """

    columns: tuple[tuple[str, int], ...]  # names and type codes
    is_variable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return schema_of, (self.columns, self.is_variable)  # also in another process

    @cached_property
    def row(self) -> np.dtype[Any]:
        """Return the type of a row without index and pad."""
        return np.dtype([(name, TYPES[code]) for name, code in self.columns])

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """Return the type of a row in the log and in payloads: rows of ticks have their ticks."""
        return np.dtype([*self.row.descr, (TICKS_FIELD, "<u4")]) if self.is_variable else self.row

    @cached_property
    def record_size(self) -> int:
        return 24 if self.is_variable else 8 + (self.row.itemsize + 7) // 8 * 8

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def offset_of(self, index: int) -> int:
        return HEADER_SIZE + (index - 1) * self.record_size

    @cached_property
    def record(self) -> np.dtype[Any]:
        """Return the type of a record in the file."""
        if self.is_variable:
            return SLOT
        fields = [(name, 8 + self.row.fields[name][1]) for name in self.names]  # type: ignore[index]
        return np.dtype(
            {
                "names": [INDEX_FIELD, *self.names],
                "formats": ["<i8", *(TYPES[code] for _, code in self.columns)],
                "offsets": [0, *(offset for _, offset in fields)],
                "itemsize": self.record_size,
            }
        )


@dataclass(frozen=True, slots=True)
class Header:
    year: int
    timeframe_ns: int
    schema: Schema
    description: bytes = _AUTHOR

    @property
    def count(self) -> int:
        """Return the number of records or slots."""
        return interval_count(self.year, self.timeframe_ns)

    @property
    def stop(self) -> int:
        """Return the end of the last record or slot: the size of a new file."""
        return HEADER_SIZE + self.count * self.schema.record_size

    @property
    def first_index(self) -> int:
        return 0 if self.timeframe_ns == DAY_NS else 1

    @property
    def last_index(self) -> int:
        return self.count - 1 + self.first_index


@lru_cache(4096)
def schema_of(columns: tuple[tuple[str, int], ...], is_variable: bool) -> Schema:
    """Return a schema; equal schemas are the same object."""
    check_columns(columns)
    return Schema(columns, is_variable)


def check_columns(columns: tuple[tuple[str, int], ...]) -> None:
    """Raise ValueError for columns that a header cannot hold."""
    names = [name for name, _ in columns]
    if not 0 < len(names) <= 254:
        raise ValueError(f"a bucket must have 1 to 254 columns, not {len(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name: {names}")
    for name, code in columns:
        if not 0 < len(name.encode()) <= NAME_SIZE or "\0" in name:
            raise ValueError(f"invalid column name {name!r}: use 1 to {NAME_SIZE} bytes")
        if code not in TYPES:
            raise ValueError(f"column {name} is of type {code}, which has no size")


def type_code(dtype: np.dtype[Any]) -> int:
    """Return the code of a column type; ValueError if there is none."""
    if dtype.kind == "U" and dtype.itemsize <= 64:
        dtype = np.dtype("<U16")
    code = _CODES.get(dtype.newbyteorder("<"))
    if code is None:
        raise ValueError(f"columns of type {dtype} are not supported")
    return code


@lru_cache(64)
def _header(year: int, timeframe_ns: int, schema: Schema, description: bytes) -> bytes:
    kind, size, count = int(schema.is_variable), schema.record_size, len(schema.columns)
    fixed = _FIXED_HEADER.pack(VERSION, description, year, timeframe_ns, kind, count, size, 0)
    names = b"".join(name.encode().ljust(NAME_SIZE, b"\0") for name in schema.names)
    types = bytes(code for _, code in schema.columns)
    head = fixed + names.ljust(TYPES_AT - _NAMES_AT, b"\0") + types
    return head.ljust(HEADER_SIZE, b"\0")


def encode_header(header: Header) -> bytes:
    return _header(header.year, header.timeframe_ns, header.schema, header.description)


@lru_cache(512)
def encode_header_blocks(header: Header) -> tuple[tuple[int, bytes], ...]:
    """Encode a header by offsets, without New Year's room and blocks of zeros (holes)."""
    data = encode_header(header)[:-NEW_YEAR_ROOM]
    blocks = ((at, data[at : at + _BLOCK]) for at in range(0, len(data), _BLOCK))
    return tuple((at, block) for at, block in blocks if block.strip(b"\0"))


def decode_header(data: Bytes) -> Header | Flaw:
    if len(data) < HEADER_SIZE:
        return Flaw(0, f"header of {HEADER_SIZE} bytes cut to {len(data)}")
    return decode_header_parts(data[:HEAD_SIZE], data[TYPES_AT : TYPES_AT + COLUMNS_MAX])


def decode_header_parts(head: Bytes, types: Bytes) -> Header | Flaw:
    """Decode a header from its first HEAD_SIZE bytes and its types; the rest is unused."""
    if len(head) < HEAD_SIZE or len(types) < COLUMNS_MAX:
        return Flaw(0, f"header of {HEADER_SIZE} bytes cut short")
    version, author, year, timeframe_ns, kind, count, size, _ = _FIXED_HEADER.unpack_from(head)
    if version != VERSION:
        return Flaw(0, f"version {version}, not {VERSION}")
    if not 1970 <= year <= 2261 or not 0 < timeframe_ns <= 366 * DAY_NS or kind not in (0, 1):
        return Flaw(264, f"year {year}, timeframe of {timeframe_ns} ns, record type {kind}")
    if not 0 < count < 255:
        return Flaw(288, f"{count} columns")
    names = bytes(head[_NAMES_AT : _NAMES_AT + NAME_SIZE * count])
    cuts = range(0, len(names), NAME_SIZE)
    try:
        words = [names[at : at + NAME_SIZE].rstrip(b"\0").decode() for at in cuts]
        schema = schema_of(tuple(zip(words, types[:count], strict=True)), kind == 1)
    except ValueError as error:
        return Flaw(_NAMES_AT, str(error))
    if size != schema.record_size:
        return Flaw(296, f"records of {size} bytes, not {schema.record_size}")
    return Header(year, timeframe_ns, schema, author.rstrip(b"\0"))


def has_new_year(header: Header) -> bool:
    """Return whether a record for New Year's Day fits in the unused end of the header."""
    return header.first_index == 0 and header.schema.record_size <= NEW_YEAR_ROOM


def encode_records(index: npt.NDArray[np.int64], rows: Rows, schema: Schema) -> Bytes:
    """Encode fixed records; a New Year's Day of zeros gets a mark, so that it is not lost."""
    records = np.zeros((len(rows), schema.record_size), np.uint8)
    data = rows.view(np.uint8).reshape(len(rows), -1)
    records[:, 8 : 8 + data.shape[1]] = data
    records[:, :8] = new_year_marked(index, data).astype("<i8").view(np.uint8).reshape(-1, 8)
    return records.tobytes()


def new_year_marked(
    index: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Return the index fields of these records."""
    if not len(index) or index.min() > 0:
        return index
    return np.where((index == 0) & ~data.any(axis=1), NO_DATA_MARK, index)


def encode_payload(rows: Bytes, *, compress: bool) -> bytes:
    return bytes(snappy.compress_raw(rows)) if compress else bytes(rows)


def decode_payload(data: Bytes, row_size: int) -> tuple[bytes, bool] | Flaw:
    """Return the rows, and whether they were compressed, which the file does not record."""
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if 0 < size <= _EXPANSION_MAX * len(data) and size % row_size == 0:
        try:
            return bytes(snappy.decompress_raw(data)), True
        except DecompressionError:
            pass
    if data and len(data) % row_size == 0:
        return bytes(data), False
    return Flaw(0, f"{len(data)} bytes are not rows of {row_size}, compressed or not")
