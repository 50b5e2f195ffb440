"""Rows as Arrow tables; resampling of bars."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.bars.intake import SYMBOL, TIME
from holdfast.bars.query import Rows
from holdfast.bars.reducing import REDUCE
from holdfast.formats.bar_time import DAY_NS
from holdfast.formats.year_file import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Rules: TypeAlias = Mapping[str, str]
_WEEK_NS, _MONDAY_NS = 7 * DAY_NS, 4 * DAY_NS  # 5 January 1970
_USUAL = {"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"}


def table_of(rows: Mapping[str, Rows], names: tuple[str, ...], schema: Schema) -> "pa.Table":
    """Return one table of all symbols; times in nanoseconds, UTC."""
    import pyarrow as pa

    counts = [len(one.times_ns) for one in rows.values()]
    codes = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    symbols = pa.array(list(rows), pa.string())
    arrays = [pa.DictionaryArray.from_arrays(pa.array(codes), symbols)]
    times = _joined([one.times_ns for one in rows.values()])
    arrays.append(pa.array(times).view(pa.timestamp("ns", "UTC")))
    for at, name in enumerate(names):
        column = _joined([one.columns[at] for one in rows.values()])
        arrays.append(pa.array(column, pa.string() if schema.row[name].kind == "U" else None))
    return pa.table(arrays, names=[SYMBOL, TIME, *names])


def _joined(pieces: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def resampled(
    rows: Mapping[str, Rows],
    names: tuple[str, ...],
    own_ns: int,
    step_ns: int,
    rules: Rules,
    limit: int | None,
    take: Literal["first", "last"],
) -> dict[str, Rows]:
    """Join bars to bars of `step_ns`, without empty intervals; weeks begin on Monday."""
    if step_ns % own_ns or (DAY_NS % step_ns and step_ns % DAY_NS):
        raise ValueError(f"cannot resample bars of {own_ns} ns to {step_ns} ns")
    chosen = [rules.get(name) or _USUAL.get(name.lower(), "") for name in names]
    for name, rule in zip(names, chosen, strict=True):
        if rule not in REDUCE:
            raise ValueError(f"set a rule for {name} in `rules`: one of {', '.join(REDUCE)}")
    found, first_ns = {}, 0 if step_ns % _WEEK_NS else _MONDAY_NS
    for symbol, one in rows.items():
        steps = (one.times_ns - first_ns) // step_ns
        starts = np.flatnonzero(np.append(True, steps[1:] != steps[:-1])[: len(steps)])
        columns = [
            REDUCE[rule](column, starts) if len(starts) else column
            for rule, column in zip(chosen, one.columns, strict=True)
        ]
        times, kept = steps[starts] * step_ns + first_ns, slice(None)
        if limit is not None:
            kept = slice(0, limit) if take == "first" else slice(max(len(times) - limit, 0), None)
        found[symbol] = Rows(times[kept], [column[kept] for column in columns])
    return found
