"""Casts that lose nothing but the last digits of a float."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 60  # characters of a value in an error


def cast_column(column: Any, wanted: pa.DataType, name: str) -> Any:
    """Return the array as another type.

    ValueError names the column and the first value that the type cannot hold.  A float may be
    rounded to a shorter float, but not to infinity or 0.
    """
    kind = column.type
    if kind == wanted:
        return column
    if pa.types.is_dictionary(kind):
        return cast_column(column.cast(kind.value_type), wanted, name)
    try:
        return _cast(column, wanted)
    except pa.ArrowException as error:
        value = _first_refused(column, wanted)
        shown = repr(value)[:_SHOWN]
        raise ValueError(f"column {name}: {shown} does not fit into {wanted}: {error}") from error


def _cast(column: Any, wanted: pa.DataType) -> Any:
    cast = column.cast(wanted)
    if pa.types.is_floating(wanted) and pa.types.is_floating(column.type):
        grown = pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(column)))
        if pc.any(grown).as_py():
            raise pa.ArrowInvalid("it would become infinite")
        if pc.any(pc.and_(pc.equal(cast, 0), pc.not_equal(column, 0))).as_py():
            raise pa.ArrowInvalid("it would become 0")
    return cast


def _first_refused(column: Any, wanted: pa.DataType) -> object:
    """Halve the column until one value is left."""
    while len(column) > 1:
        half = len(column) // 2
        try:
            _cast(column.slice(0, half), wanted)
        except pa.ArrowException:
            column = column.slice(0, half)
        else:
            column = column.slice(half)
    return column[0].as_py() if len(column) else None
