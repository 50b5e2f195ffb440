"""Times as people write them, as nanoseconds since 1970: for Python, Spark and the command line.

A range is half-open: start <= time < stop.  A date is its midnight, as a start and as a stop.  A
time without a zone is UTC.
"""

import re
from typing import Any, Literal, TypeAlias

import numpy as np

from holdfast.bars.query import TIME_MIN_NS, TIME_STOP_NS, Span
from holdfast.formats.bar_time import DAY_NS

Moment: TypeAlias = Any  # nanoseconds, ISO text, numpy's, pandas' or Python's own; None: any
_EXPECTED = "expected YYYY-MM-DD[THH:MM[:SS]][Z], or seconds since 1970 with at least 9 digits"
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
_SECONDS = re.compile(r"\d{9,12}", re.ASCII)  # a year or a date without hyphens has fewer


def as_ns(moment: Moment, default: int) -> int:
    """Return the nanoseconds since 1970 of a time; without a time zone it is UTC.

    Text of digits is seconds; an integer is nanoseconds.
    """
    if moment is None:
        return default
    if isinstance(moment, int | np.integer):
        return int(moment)
    try:
        ns = _of_text(moment) if isinstance(moment, str) else _of_datetime(moment)
    except (ValueError, TypeError):
        ns = None
    if ns is None:
        raise ValueError(f"cannot parse {moment!r} as a timestamp; {_EXPECTED}")
    return ns


def span_of(
    start: Moment,
    stop: Moment,
    limit: int | None,
    take: Literal["first", "last"],
    *,
    day: Moment = None,
) -> Span:
    """Return the span from `start` to before `stop`, or that of one day."""
    if take not in ("first", "last"):
        raise ValueError(f"take must be 'first' or 'last', not {take!r}")
    if day is not None:
        if start is not None or stop is not None:
            raise ValueError("day excludes start and stop: pass a day, or a range")
        start, stop = day_of(day)
    low = min(max(as_ns(start, TIME_MIN_NS), TIME_MIN_NS), TIME_STOP_NS)
    high = min(as_ns(stop, TIME_STOP_NS), TIME_STOP_NS)
    return Span(low, max(high, low), limit, take == "first")


def day_of(day: Moment) -> tuple[int, int]:
    """Return the start of a day and of the next, in UTC."""
    start = as_ns(day, 0)
    if start % DAY_NS:
        raise ValueError(f"{day!r} is not a date; expected YYYY-MM-DD, a day in UTC")
    return start, start + DAY_NS


def _of_text(text: str) -> int | None:
    if _SECONDS.fullmatch(text):
        return int(text) * 10**9
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    date, time, seconds, fraction, sign, hours, minutes = match.groups()
    ns = _of_numpy(np.datetime64(f"{date}T{time or '00:00'}:{seconds or '00'}", "s"))
    offset_minutes = int(hours or 0) * 60 + int(minutes or 0)
    if ns is None or int(minutes or 0) > 59 or offset_minutes > 24 * 60:
        return None
    offset_ns = offset_minutes * 60 * 10**9
    return ns + int((fraction or "0").ljust(9, "0")) + (offset_ns if sign == "-" else -offset_ns)


def _of_datetime(moment: Any) -> int | None:
    if hasattr(moment, "to_datetime64"):  # pandas: in UTC
        return _of_numpy(moment.to_datetime64())
    offset = moment.utcoffset() if hasattr(moment, "utcoffset") else None
    if offset is None:
        return _of_numpy(np.datetime64(moment))
    local = _of_numpy(np.datetime64(moment.replace(tzinfo=None)))
    offset_ns = np.timedelta64(offset).astype("m8[ns]").astype(np.int64)
    return None if local is None else local - int(offset_ns)


def _of_numpy(time: "np.datetime64[Any]") -> int | None:
    """Return a time of any unit; None if it is missing.  A far one does not wrap."""
    if np.isnat(time):
        return None
    seconds = time.astype("M8[s]")
    rest = (time - seconds).astype("m8[ns]")
    return int(seconds.astype(np.int64)) * 10**9 + int(rest.astype(np.int64))
