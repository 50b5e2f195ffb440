"""What writers bring - Arrow tables, pandas frames, numpy arrays - as columns for many symbols.

Times are a column `time` of timestamps, a frame's index of them, or MarketStore's own `Epoch` in
seconds with, perhaps, `Nanoseconds`.  Symbols are a column `symbol`, or one symbol for all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.bars.query import TIME_MAX_NS
from holdfast.formats.year_file import TICKS_FIELD, TYPES, Schema, schema_of, type_code

Ints = npt.NDArray[np.int64]
Table: TypeAlias = Any  # pyarrow.Table or RecordBatch, pandas.DataFrame, numpy structured array
TIME, SYMBOL, EPOCH, NANOSECONDS = "time", "symbol", "Epoch", "Nanoseconds"
_RESERVED = {TIME, SYMBOL, EPOCH, NANOSECONDS}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by columns: whose each is, and when."""

    symbols: list[str]
    codes: npt.NDArray[np.int32]  # into symbols
    times_ns: Ints
    columns: dict[str, npt.NDArray[Any]]


def take_in(table: Table, symbol: str | None) -> Rows:
    columns = _columns(table)
    times = _times(columns)
    if (named := columns.pop(SYMBOL, None)) is not None and symbol is None:
        symbols, codes = _encoded(named)
    elif named is None and symbol is not None:
        symbols, codes = [symbol], np.zeros(len(times), np.int32)
    else:
        raise ValueError("name the symbol, or bring a column `symbol`: one of the two")
    if not columns:
        raise ValueError("no columns but symbols and times")
    arrays = {name: _array(column) for name, column in columns.items()}
    if any(len(array) != len(times) for array in arrays.values()):
        raise ValueError("columns of different lengths")
    if len(times) and not 0 <= int(times.min()) <= int(times.max()) <= TIME_MAX_NS:
        raise ValueError("times must be from 1970 to 2261")
    return Rows(symbols, codes, times, arrays)


def _columns(table: Table) -> dict[str, Any]:
    if isinstance(table, np.ndarray):
        if table.dtype.names is None:
            raise ValueError("a numpy array must have named fields")
        return {name: table[name] for name in table.dtype.names}
    if isinstance(table, Mapping):
        return dict(table)
    if hasattr(table, "column_names"):  # Arrow
        return {name: table.column(name) for name in table.column_names}
    if hasattr(table, "iloc"):  # pandas
        columns = {str(name): table[name] for name in table.columns}
        if TIME not in columns and EPOCH not in columns and hasattr(table.index, "as_unit"):
            columns[TIME] = table.index
        return columns
    raise ValueError(f"{type(table).__name__} is neither Arrow, pandas nor numpy")


def _times(columns: dict[str, Any]) -> Ints:
    if TIME in columns:
        return _nanoseconds(columns.pop(TIME))
    if EPOCH not in columns:
        raise ValueError("no times: a column `time` of timestamps, or `Epoch` in seconds")
    seconds = _array(columns.pop(EPOCH)).astype(np.int64)
    if len(seconds) and not 0 <= int(seconds.min()) <= int(seconds.max()) <= TIME_MAX_NS // 10**9:
        raise ValueError("times must be from 1970 to 2261")
    times: Ints = seconds * 10**9
    if NANOSECONDS in columns:
        times = times + _array(columns.pop(NANOSECONDS)).astype(np.int64)
    return times


def _nanoseconds(column: Any) -> Ints:
    moments = getattr(column, "dt", column)
    if getattr(moments, "tz", None) is not None:  # pandas: a series, or an index
        column = moments.tz_convert(None)
    array = _array(column)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").view(np.int64)
    if array.dtype == np.int64:
        return array
    raise ValueError(f"times are timestamps or nanoseconds, not {array.dtype}")


def _array(column: Any) -> npt.NDArray[Any]:
    """One numpy array of a column, with no value missing."""
    if hasattr(column, "null_count"):  # Arrow
        if column.null_count:
            raise ValueError("a bar has no missing values")
        if hasattr(column, "combine_chunks"):
            column = column.combine_chunks()
        if str(column.type).startswith("timestamp"):
            unit = column.type.unit
            return np.asarray(column.cast("int64").to_numpy()).view(f"datetime64[{unit}]")
        array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    else:
        array = np.asarray(column)
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    return array


def _encoded(column: Any) -> tuple[list[str], npt.NDArray[np.int32]]:
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = pa.array(np.asarray(column).astype(np.str_))
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise ValueError("a row without a symbol")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names: list[str] = column.dictionary.to_pylist()
    return names, column.indices.to_numpy(zero_copy_only=False).astype(np.int32)


def schema_for(columns: Mapping[str, npt.NDArray[Any]], *, is_variable: bool) -> Schema:
    """The schema of a bucket that is made for these columns."""
    if clash := _RESERVED & columns.keys():
        raise ValueError(f"no column can be called {clash.pop()}")
    return schema_of(
        tuple((name, type_code(array.dtype)) for name, array in columns.items()), is_variable
    )


def stored_rows(
    columns: Mapping[str, npt.NDArray[Any]], schema: Schema, ticks: npt.NDArray[np.uint32] | None
) -> npt.NDArray[np.uint8]:
    """Rows as the log has them, in the schema's order whatever the writer's; nothing is bent."""
    if columns.keys() != set(schema.names):
        wanted, got = ", ".join(schema.names), ", ".join(columns)
        raise ValueError(f"the bucket has the columns {wanted}; not {got}")
    count = len(next(iter(columns.values())))
    rows = np.empty(count, schema.stored)
    for name, code in schema.columns:
        rows[name] = _cast(columns[name], np.dtype(TYPES[code]), name)
    if ticks is not None:
        rows[TICKS_FIELD] = ticks
    return rows.view(np.uint8).reshape(count, -1)


def _cast(array: npt.NDArray[Any], wanted: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    if array.dtype == wanted:
        return array
    if array.dtype.kind == wanted.kind == "U":
        if len(array) and int(np.char.str_len(array).max()) > wanted.itemsize // 4:
            raise ValueError(f"column {name}: text of more than {wanted.itemsize // 4} characters")
        return array.astype(wanted)
    if array.dtype.kind in "iu" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if len(array) and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            raise ValueError(f"column {name}: a value that {wanted} cannot hold")
        return array.astype(wanted)
    if wanted.kind == "f" and array.dtype.kind in "fiu":
        return array.astype(wanted)
    raise ValueError(f"column {name} is of {wanted}; not of {array.dtype}")


def cut(codes: npt.NDArray[np.int32], years: Ints) -> tuple[Ints, Ints]:
    """An order in which rows of one symbol and year are together, and where each run begins."""
    both = codes.astype(np.int64) * 4096 + years
    if len(both) and (both[1:] < both[:-1]).any():
        order = np.argsort(both, kind="stable")
        both = both[order]
    else:
        order = np.arange(len(both), dtype=np.int64)
    bounds = np.flatnonzero(np.append(True, both[1:] != both[:-1])) if len(both) else both
    return order, np.append(bounds, len(both)).astype(np.int64)


def pick(order: Ints, bounds: Ints, wanted: Sequence[int]) -> tuple[Ints, Ints]:
    """The same for some of the runs."""
    if len(wanted) == len(bounds) - 1:
        return order, bounds
    pieces = [order[bounds[at] : bounds[at + 1]] for at in wanted]
    return np.concatenate(pieces), np.cumsum([0, *(len(piece) for piece in pieces)])


def names_of(symbols: str | Sequence[str]) -> list[str]:
    """One name, several, or several in one string with commas."""
    words = symbols.split(",") if isinstance(symbols, str) else list(symbols)
    return list(dict.fromkeys(words))
