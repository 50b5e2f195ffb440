"""The columns of bars as Spark has them, and from numpy to Arrow without a loop over rows.

Spark has no unsigned numbers: the next wider signed type holds them, and DECIMAL(20,0) the widest.
Its timestamps have microseconds; so a row's moment is `epoch_ns` BIGINT, nanoseconds since 1970,
and `time` TIMESTAMP, cut to microseconds, is there for whoever asks for it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
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


def spark_schema(schema: Schema, columns: Sequence[str] | None) -> StructType:
    """Of these columns, or of `symbol`, `epoch_ns` and all that the bucket has."""
    if clash := _OWN.keys() & set(schema.names):
        raise ValueError(f"the bucket has a column {clash.pop()!r}: no frame can have two of them")
    known = _OWN | {name: _TYPES[TYPES[code]] for name, code in schema.columns}
    chosen = (SYMBOL, EPOCH_NS, *schema.names) if columns is None else columns
    for name in chosen:
        if name not in known:
            raise ValueError(f"set columns to some of {', '.join(known)}; there is no {name!r}")
    return StructType([StructField(name, known[name], False) for name in chosen])


def refuse_other(given: StructType, ours: StructType) -> None:
    """A schema that the user brings may choose and order columns, and no more."""
    for mine, theirs in zip(ours, given, strict=True):
        if mine.dataType != theirs.dataType:
            raise ValueError(
                f"{mine.name} is {mine.dataType.simpleString()}: cast it behind the read"
            )


class Shape:
    """Makes batches of exactly the schema that Spark was told."""

    def __init__(self, schema: StructType, timeframe: str) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._timeframe = timeframe

    @property
    def stored(self) -> tuple[str, ...]:
        """What must be read of the year files."""
        return tuple(name for name in self._schema.names if name not in _OWN)

    def batches(self, symbols: Sequence[str], found: Sequence[Rows]) -> list[pa.RecordBatch]:
        """The rows of some files, one after the other."""
        counts = [len(rows.times_ns) for rows in found]
        times = np.concatenate([rows.times_ns for rows in found])
        stored = [
            np.concatenate(pieces) if len(found) > 1 else pieces[0]
            for pieces in zip(*(rows.columns for rows in found), strict=True)
        ]
        codes = np.repeat(np.arange(len(symbols), dtype=np.int32), counts)
        names = pa.array(symbols, pa.string())
        batches = []
        for start in range(0, len(times), _ROWS):
            cut = slice(start, start + _ROWS)
            columns = dict(zip(self.stored, stored, strict=True))
            arrays = []
            for field in self._schema:
                if field.name == SYMBOL:
                    array = pa.DictionaryArray.from_arrays(codes[cut], names).dictionary_decode()
                elif field.name == TIMEFRAME:
                    array = pa.repeat(self._timeframe, len(times[cut]))
                elif field.name == EPOCH_NS:
                    array = pa.array(times[cut])
                elif field.name == TIME:
                    array = pa.array(times[cut] // 1000).view(field.type)
                else:
                    array = _array(columns[field.name][cut], field.type)
                arrays.append(array)
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return batches


def _array(column: np.ndarray, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(wanted):  # unsigned 64 bits are the lower half of a decimal
        wide = np.zeros((len(column), 2), np.uint64)
        wide[:, 0] = column
        return pa.Array.from_buffers(wanted, len(column), [None, pa.py_buffer(wide.tobytes())])
    return pa.array(column, wanted, safe=False)


def can_hold(kind: DataType) -> bool:
    """Has a bar such columns?"""
    if isinstance(kind, DecimalType):
        return kind.scale == 0 and kind.precision <= 20
    return isinstance(kind, StringType) or kind in _TYPES.values()
