"""Rows as Arrow tables; moments as people write them; bars put together to longer ones."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.bars.intake import SYMBOL, TIME
from holdfast.bars.parts import Column
from holdfast.bars.query import TIME_MAX_NS, TIME_MIN_NS, Rows, Span
from holdfast.formats.bar_time import DAY_NS
from holdfast.formats.year_file import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Moment: TypeAlias = Any  # nanoseconds, ISO text, numpy's, pandas' or Python's own; None: any
Rules: TypeAlias = Mapping[str, str]
_USUAL = {"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"}


def as_ns(moment: Moment, default: int) -> int:
    """Nanoseconds since 1970 of whatever means a moment, taken as UTC if it does not say."""
    if moment is None:
        return default
    if isinstance(moment, int | np.integer):
        return int(moment)
    if hasattr(moment, "tz_convert"):  # pandas
        moment = moment.tz_convert(None) if moment.tz is not None else moment
        return int(moment.as_unit("ns").value)
    offset = moment.utcoffset() if hasattr(moment, "utcoffset") else None
    if offset is not None:  # datetime
        moment = moment.replace(tzinfo=None) - offset
    text = moment[:-1] if isinstance(moment, str) and moment.endswith("Z") else moment
    time: np.datetime64 = np.datetime64(text, "ns")
    if np.isnat(time):
        raise ValueError(f"{moment!r} is no moment")
    return int(time.astype(np.int64))


def span_of(start: Moment, end: Moment, limit: int | None, take: Literal["first", "last"]) -> Span:
    if take not in ("first", "last"):
        raise ValueError(f"take the first or the last, not {take!r}")
    low = max(as_ns(start, TIME_MIN_NS), TIME_MIN_NS)
    high = min(as_ns(end, TIME_MAX_NS), TIME_MAX_NS)
    return Span(low, max(high, low - 1), limit, take == "first")


def table_of(rows: Mapping[str, Rows], names: tuple[str, ...], schema: Schema) -> "pa.Table":
    """One table of all symbols; times in nanoseconds, UTC."""
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
    """Bars of `step_ns` made of shorter ones; only intervals that have any."""
    if step_ns % own_ns or (DAY_NS % step_ns and step_ns % DAY_NS):
        raise ValueError(f"{own_ns} ns bars cannot be put together to ones of {step_ns} ns")
    chosen = [rules.get(name) or _USUAL.get(name.lower(), "") for name in names]
    for name, rule in zip(names, chosen, strict=True):
        if rule not in _REDUCE:
            raise ValueError(f"say in `rules` how {name} is put together: {', '.join(_REDUCE)}")
    found = {}
    for symbol, one in rows.items():
        steps = one.times_ns // step_ns
        starts = np.flatnonzero(np.append(True, steps[1:] != steps[:-1])[: len(steps)])
        columns = [
            _REDUCE[rule](column, starts) if len(starts) else column
            for rule, column in zip(chosen, one.columns, strict=True)
        ]
        times, kept = steps[starts] * step_ns, slice(None)
        if limit is not None:
            kept = slice(0, limit) if take == "first" else slice(max(len(times) - limit, 0), None)
        found[symbol] = Rows(times[kept], [column[kept] for column in columns])
    return found


def _last(column: Column, starts: npt.NDArray[np.intp]) -> Column:
    last: Column = column[np.append(starts[1:], len(column)) - 1]
    return last


def _sum(column: Column, starts: npt.NDArray[np.intp]) -> Column:
    wide = np.float64 if column.dtype.kind == "f" else np.int64
    sums: Column = np.add.reduceat(column.astype(wide), starts)
    return sums


def _mean(column: Column, starts: npt.NDArray[np.intp]) -> Column:
    counts = np.diff(np.append(starts, len(column)))
    means: Column = np.add.reduceat(column.astype(np.float64), starts) / counts
    return means


_REDUCE: dict[str, Any] = {
    "first": lambda column, starts: column[starts],
    "last": _last,
    "max": np.maximum.reduceat,
    "min": np.minimum.reduceat,
    "sum": _sum,
    "mean": _mean,
}
