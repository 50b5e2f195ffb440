"""Columns that writers pass, as numpy arrays: no value is missing, and none is changed.

A missing value (None, NaN where text, a flag or an integer is expected, NA, NaT) is an error that
names its row, counted from 1.  NaN is a value of a column of floats.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.bars.query import TIME_STOP_NS

Ints = npt.NDArray[np.int64]
_PER_UNIT_NS = {
    **{"W": 7 * 86_400 * 10**9, "D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9},
    **{"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1},
}
_RANGE = "times must be from 1970 to 2261"


def as_array(column: Any, name: str) -> npt.NDArray[Any]:
    """Return a column as one numpy array; ValueError names a row whose value is missing."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return _of_arrow(column, name)
    if hasattr(column, "isna"):  # pandas
        return _of_pandas(column, name)
    if isinstance(column, list | tuple):
        if set(map(type, column)) in ({int}, {float}, {bool}):  # without Arrow, which is slow here
            array = np.asarray(column)
            if array.dtype.kind in "iufb":
                return array
        return _of_arrow(_arrow(column, name, is_frame=False), name)
    if hasattr(column, "__arrow_c_array__"):
        return _of_arrow(pa.array(column), name)
    array = np.asarray(column)
    if array.dtype.kind == "O":
        return _of_arrow(_arrow(array, name, is_frame=True), name)
    return array


def _of_pandas(column: Any, name: str) -> npt.NDArray[Any]:
    kind = column.dtype
    if isinstance(kind, np.dtype) and kind.kind != "O":
        return np.asarray(column)
    missing = np.asarray(column.isna())
    if missing.any():
        raise _missing(name, int(np.flatnonzero(missing)[0]))
    if isinstance(getattr(kind, "numpy_dtype", None), np.dtype) and kind.numpy_dtype.kind in "iufb":
        array: npt.NDArray[Any] = column.to_numpy(dtype=kind.numpy_dtype)
        return array
    if hasattr(kind, "tz"):
        return np.asarray(column.dt.tz_convert(None) if hasattr(column, "dt") else column)
    return _of_arrow(_arrow(np.asarray(column, object), name, is_frame=True), name)


def _arrow(values: Any, name: str, *, is_frame: bool) -> Any:
    """Return objects as Arrow; in a frame, NaN among them is a missing value."""
    try:
        return pa.array(values, from_pandas=is_frame)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"column {name}: the values are not of one type: {error}") from error


def _of_arrow(column: Any, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        raise _missing(name, pc.index(pc.is_null(column), True).as_py())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _of_arrow(column.cast(kind.value_type), name)
    if pa.types.is_timestamp(kind):
        return np.asarray(column.cast("int64").to_numpy()).view(f"datetime64[{kind.unit}]")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return np.asarray(column.to_pylist(), np.str_)
    if not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise ValueError(f"column {name} is of {kind}; cast it to a number, a flag or text")
    array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _missing(name: str, row: int) -> ValueError:
    return ValueError(
        f"column {name}: row {row + 1} has no value; a bar needs a value in every column: "
        "fill it, or leave the row out"
    )


def as_symbols(column: Any) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the symbols of a column, and for each row the number of its symbol."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        array = as_array(column, "symbol")
        if array.dtype.kind != "U":
            raise ValueError(f"symbols must be text, not {array.dtype}")
        column = pa.array(array)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise _missing("symbol", pc.index(pc.is_null(column), True).as_py())
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names: list[Any] = column.dictionary.to_pylist()
    codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    if any(not isinstance(name, str) for name in names):
        if None in names and (codes == names.index(None)).any():
            raise _missing("symbol", int(np.flatnonzero(codes == names.index(None))[0]))
        if any(not isinstance(name, str | None) for name in names):
            raise ValueError(f"symbols must be text, not {column.type.value_type}")
        names = [name or "" for name in names]  # which no row has
    return names, codes


def as_times(column: Any) -> Ints:
    """Return times as nanoseconds since 1970; checked in their own unit, so that none wraps."""
    if isinstance(column, list | tuple) and column and hasattr(column[0], "year"):
        try:
            column = pa.array(column, pa.timestamp("ns"))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{_RANGE}, with or without a zone: {error}") from error
    moments = getattr(column, "dt", column)
    if getattr(moments, "tz", None) is not None and hasattr(moments, "tz_convert"):  # pandas
        column = moments.tz_convert(None)
    array = as_array(column, "time")
    if array.dtype.kind == "M":
        unit, step = np.datetime_data(array.dtype)
        if unit in ("Y", "M"):
            array, unit, step = array.astype("datetime64[D]"), "D", 1
        if unit not in _PER_UNIT_NS:
            raise ValueError(f"times must be in units of a nanosecond or more, not of {unit}")
        if np.isnat(array).any():
            raise _missing("time", int(np.flatnonzero(np.isnat(array))[0]))
        return _in_range(array.astype(np.int64), _PER_UNIT_NS[unit] * step)
    if array.dtype == np.int64:
        return _in_range(array, 1)
    raise ValueError(f"times must be timestamps or nanoseconds, not {array.dtype}")


def as_seconds(seconds: Any, nanoseconds: Any) -> Ints:
    """Return times from MarketStore's `Epoch`, and `Nanoseconds` if it is not None."""
    times = _in_range(_whole(as_array(seconds, "Epoch"), "Epoch"), 10**9)
    if nanoseconds is None:
        return times
    more = _whole(as_array(nanoseconds, "Nanoseconds"), "Nanoseconds")
    wrong = np.flatnonzero((more < 0) | (more >= 10**9))
    if len(wrong):
        raise ValueError(
            f"column Nanoseconds: row {wrong[0] + 1} has {more[wrong[0]]}; expected 0 to 999999999"
        )
    if len(more) != len(times):
        raise ValueError("the columns have different lengths")
    return times + more


def _whole(array: npt.NDArray[Any], name: str) -> Ints:
    if array.dtype.kind not in "iuf":
        raise ValueError(f"column {name} must be whole numbers, not {array.dtype}")
    limit = TIME_STOP_NS // 10**9 if name == "Epoch" else 10**9
    wrong = ~((array >= 0) & (array < limit))
    if array.dtype.kind == "f":
        wrong |= array != np.floor(array)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        what = _RANGE if array[row] == np.floor(array[row]) else "expected whole numbers"
        raise ValueError(f"column {name}: row {row + 1} has {array[row]}; {what}")
    return array.astype(np.int64)


def _in_range(units: Ints, per_unit_ns: int) -> Ints:
    if len(units) and not 0 <= int(units.min()) <= int(units.max()) < TIME_STOP_NS // per_unit_ns:
        wrong = (units < 0) | (units >= TIME_STOP_NS // per_unit_ns)
        raise ValueError(f"{_RANGE}; that of row {int(np.flatnonzero(wrong)[0]) + 1} is not")
    return units * per_unit_ns
