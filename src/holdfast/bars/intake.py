"""Rows that writers pass (Arrow, polars, duckdb, pandas, numpy) as columns for many symbols.

Times are a column `time` of timestamps, a frame's index of them, or MarketStore's own `Epoch` in
seconds with, perhaps, `Nanoseconds`.  Symbols are a column `symbol`, or one symbol for all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.bars.intake_columns import as_array, as_seconds, as_symbols, as_times
from holdfast.formats.year_file import TICKS_FIELD, TYPES, Schema, schema_of, type_code
from holdfast.tabular import cast_column

Ints = npt.NDArray[np.int64]
Table: TypeAlias = Any  # pyarrow.Table or RecordBatch, pandas.DataFrame, numpy structured array
TIME, SYMBOL, EPOCH, NANOSECONDS = "time", "symbol", "Epoch", "Nanoseconds"
_RESERVED = {TIME, SYMBOL, EPOCH, NANOSECONDS}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by columns, with the symbol and the time of each row."""

    symbols: list[str]
    codes: npt.NDArray[np.int32]  # into symbols
    times_ns: Ints
    columns: dict[str, npt.NDArray[Any]]


def take_in(table: Table, symbol: str | None) -> Rows:
    columns = _columns(table)
    if TIME in columns:
        times = as_times(columns.pop(TIME))
    elif EPOCH in columns:
        times = as_seconds(columns.pop(EPOCH), columns.pop(NANOSECONDS, None))
    else:
        raise ValueError("no times: pass a column `time` of timestamps, or `Epoch` in seconds")
    if (named := columns.pop(SYMBOL, None)) is not None and symbol is None:
        symbols, codes = as_symbols(named)
    elif named is None and symbol is not None:
        symbols, codes = [symbol], np.zeros(len(times), np.int32)
    else:
        raise ValueError("pass either `symbol` or a column `symbol`")
    if not columns:
        raise ValueError("no columns to store: there are only symbols and times")
    arrays = {name: as_array(column, name) for name, column in columns.items()}
    if any(len(array) != len(times) for array in (codes, *arrays.values())):
        raise ValueError("the columns have different lengths")
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
    if hasattr(table, "__arrow_c_stream__"):  # polars, duckdb, Arrow readers
        import pyarrow as pa

        read = pa.table(table)
        return {name: read.column(name) for name in read.column_names}
    raise ValueError(
        f"cannot read rows from {type(table).__name__}; pass Arrow, anything with "
        "__arrow_c_stream__, pandas, a numpy array with named fields, or a dictionary of columns"
    )


def schema_for(columns: Mapping[str, npt.NDArray[Any]], *, is_variable: bool) -> Schema:
    """Return the schema of a new bucket for these columns."""
    if clash := _RESERVED & columns.keys():
        raise ValueError(f"the column name {clash.pop()} is reserved; rename the column")
    return schema_of(
        tuple((name, type_code(array.dtype)) for name, array in columns.items()), is_variable
    )


def stored_rows(
    columns: Mapping[str, npt.NDArray[Any]], schema: Schema, ticks: npt.NDArray[np.uint32] | None
) -> npt.NDArray[np.uint8]:
    """Return rows as the log stores them, in the schema's order, without lossy casts."""
    if columns.keys() != set(schema.names):
        wanted, got = ", ".join(schema.names), ", ".join(columns)
        raise ValueError(f"the bucket has the columns {wanted}; the rows have {got}")
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
            raise ValueError(f"column {name}: a text has over {wanted.itemsize // 4} characters")
        return array.astype(wanted)
    if array.dtype.kind in "iu" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if len(array) and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            raise ValueError(f"column {name}: {wanted} cannot hold all values")
        return array.astype(wanted)
    if wanted.kind == "f" and array.dtype.kind in "fiu":
        import pyarrow as pa

        kind = pa.from_numpy_dtype(wanted)
        found: npt.NDArray[Any] = cast_column(pa.array(array), kind, name).to_numpy()
        return found
    raise ValueError(f"column {name} has the type {wanted}, not {array.dtype}")


def cut(codes: npt.NDArray[np.int32], years: Ints) -> tuple[Ints, Ints]:
    """Sort rows by symbol and year; return the order, and where each run begins."""
    both = codes.astype(np.int64) * 4096 + years
    if len(both) and (both[1:] < both[:-1]).any():
        order = np.argsort(both, kind="stable")
        both = both[order]
    else:
        order = np.arange(len(both), dtype=np.int64)
    bounds = np.flatnonzero(np.append(True, both[1:] != both[:-1])) if len(both) else both
    return order, np.append(bounds, len(both)).astype(np.int64)


def pick(order: Ints, bounds: Ints, wanted: Sequence[int]) -> tuple[Ints, Ints]:
    """Return order and bounds of some of the runs."""
    if len(wanted) == len(bounds) - 1:
        return order, bounds
    pieces = [order[bounds[at] : bounds[at + 1]] for at in wanted]
    return np.concatenate(pieces), np.cumsum([0, *(len(piece) for piece in pieces)])


def names_of(symbols: str | Sequence[str]) -> list[str]:
    """Return the names in a string with commas, or in a sequence."""
    words = symbols.split(",") if isinstance(symbols, str) else list(symbols)
    return list(dict.fromkeys(words))
