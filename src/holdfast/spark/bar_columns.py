"""The columns of bars in Spark, and their conversion from numpy to Arrow without a loop over rows.

Spark has no unsigned numbers: the next wider signed type holds them, and DECIMAL(20,0) the widest.
Its timestamps have microseconds.  So the time of a row is `epoch_ns` BIGINT, nanoseconds since
1970; `time` TIMESTAMP, truncated to microseconds, is read on request.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.bars.query import Rows
from holdfast.formats.year_file import TYPES, Schema

SYMBOL, TIMEFRAME, EPOCH_NS, TIME = "symbol", "timeframe", "epoch_ns", "time"
_OWN: dict[str, DataType] = {
    SYMBOL: StringType(),
    TIMEFRAME: StringType(),
    EPOCH_NS: LongType(),
    TIME: TimestampType(),
}
_TYPES: dict[str, DataType] = {
    "<f4": FloatType(),
    "<f8": DoubleType(),
    "|i1": ByteType(),
    "<i2": ShortType(),
    "<i4": IntegerType(),
    "<i8": LongType(),
    "|u1": ShortType(),
    "<u2": IntegerType(),
    "<u4": LongType(),
    "<u8": DecimalType(20, 0),
    "|b1": BooleanType(),
    "<U16": StringType(),
}
_ROWS = 1 << 16  # in a batch
_PACK = 1 << 12  # bars in a packed row


def spark_schema(schema: Schema, columns: Sequence[str] | None) -> StructType:
    """Return the schema of these columns, or of `symbol`, `epoch_ns` and those of the bucket."""
    if clash := _OWN.keys() & set(schema.names):
        raise ValueError(
            f"the bucket has a column {clash.pop()!r}, a name that the data source needs itself"
        )
    known = _OWN | {name: _TYPES[TYPES[code]] for name, code in schema.columns}
    chosen = (SYMBOL, EPOCH_NS, *schema.names) if columns is None else columns
    for name in chosen:
        if name not in known:
            raise ValueError(f"set columns to some of {', '.join(known)}; {name!r} does not exist")
    return StructType([StructField(name, known[name], False) for name in chosen])


def refuse_other(given: StructType, own: StructType) -> None:
    """Check that the schema of a user only chooses and orders columns."""
    for mine, theirs in zip(own, given, strict=True):
        if mine.dataType != theirs.dataType:
            raise ValueError(
                f"{mine.name} is {mine.dataType.simpleString()}: cast it after the read"
            )


class Shape:
    """Makes batches of the schema that Spark knows."""

    def __init__(self, schema: StructType, timeframe: str) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._timeframe = timeframe

    @property
    def stored(self) -> tuple[str, ...]:
        """Return the columns to read from the year files."""
        return tuple(name for name in self._schema.names if name not in _OWN)

    def batches(self, symbols: Sequence[str], found: Sequence[Rows]) -> list[pa.RecordBatch]:
        """Return the rows of some files, one after the other."""
        columns = self._joined(found)
        counts = [len(rows.times_ns) for rows in found]
        codes = np.repeat(np.arange(len(symbols), dtype=np.int32), counts)
        names = pa.array(symbols, pa.string())
        batches = []
        for start in range(0, len(codes), _ROWS):
            cut = slice(start, start + _ROWS)
            own = pa.DictionaryArray.from_arrays(codes[cut], names).dictionary_decode()
            fixed = {SYMBOL: own, TIMEFRAME: pa.repeat(self._timeframe, len(own))}
            arrays = [
                fixed[field.name]
                if field.name in fixed
                else _array(columns[field.name][cut], field.type)
                for field in self._schema
            ]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return batches

    def _joined(self, found: Sequence[Rows]) -> dict[str, np.ndarray]:
        """Join all columns but those that are the same for a symbol."""
        times = np.concatenate([rows.times_ns for rows in found])
        columns = {EPOCH_NS: times}
        if TIME in self._schema.names:
            columns[TIME] = times // 1000
        pieces = zip(*(rows.columns for rows in found), strict=True)
        for name, parts in zip(self.stored, pieces, strict=True):
            columns[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return columns


class PackedShape(Shape):
    """Makes rows of many bars of one symbol each, with arrays for columns.

    Spark converts rows of a Python source one by one, which is slow.  Arrays are passed as a whole,
    and `unpacked` makes rows of them in the code that Spark compiles for a query.
    """

    def batches(self, symbols: Sequence[str], found: Sequence[Rows]) -> list[pa.RecordBatch]:
        columns = self._joined(found)
        stops = np.cumsum([len(rows.times_ns) for rows in found])
        starts = [
            np.arange(stop - len(rows.times_ns), stop, _PACK)
            for stop, rows in zip(stops, found, strict=True)
        ]
        names = pa.array(np.repeat(symbols, [len(own) for own in starts]), pa.string())
        bounds = np.append(np.concatenate(starts), stops[-1]).astype(np.int32)
        firsts = np.searchsorted(bounds, np.arange(0, stops[-1], _ROWS))
        return [
            self._batch(names[first:last], bounds[first : last + 1], columns)
            for first, last in pairwise([*firsts.tolist(), len(names)])
            if last > first
        ]

    def _batch(
        self, names: pa.Array, bounds: np.ndarray, columns: dict[str, np.ndarray]
    ) -> pa.RecordBatch:
        cut, offsets = slice(bounds[0], bounds[-1]), pa.array(bounds - bounds[0])
        fixed = {SYMBOL: names, TIMEFRAME: pa.repeat(self._timeframe, len(names))}
        arrays = []
        for field in self._schema:
            if (array := fixed.get(field.name)) is None:
                values = _array(columns[field.name][cut], field.type.value_type)
                array = pa.ListArray.from_arrays(offsets, values, field.type)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def packed_schema(schema: StructType) -> StructType:
    """Return the schema with arrays for all columns but `symbol` and `timeframe`."""
    return StructType(
        [
            field
            if field.name in (SYMBOL, TIMEFRAME)
            else StructField(field.name, ArrayType(field.dataType, containsNull=False), False)
            for field in schema
        ]
    )


def unpacked(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows of a packed frame, with these columns.  The frame needs EPOCH_NS."""
    at, value = "packed_at", "packed_epoch_ns"
    exploded = frame.select("*", F.posexplode(EPOCH_NS).alias(at, value))
    return exploded.select(
        *(
            F.col(value).alias(name)
            if name == EPOCH_NS
            else F.col(name)
            if name in (SYMBOL, TIMEFRAME)
            else F.col(name)[F.col(at)].alias(name)
            for name in columns
        )
    )


def _array(column: np.ndarray, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(wanted):  # unsigned 64 bits are the lower half of a decimal
        wide = np.zeros((len(column), 2), np.uint64)
        wide[:, 0] = column
        return pa.Array.from_buffers(wanted, len(column), [None, pa.py_buffer(wide.tobytes())])
    if pa.types.is_timestamp(wanted):
        return pa.array(column).view(wanted)
    return pa.array(column, wanted, safe=False)


def can_hold(kind: DataType) -> bool:
    """Return whether a bar can have a column of this type."""
    if isinstance(kind, DecimalType):
        return kind.scale == 0 and kind.precision <= 20
    return isinstance(kind, StringType) or kind in _TYPES.values()
