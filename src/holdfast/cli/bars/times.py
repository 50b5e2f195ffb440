"""Times of files as nanoseconds since 1970, and the ranges of the command line.

Text is ISO 8601, with or without a zone, or of a given format.  Numbers are of a given unit,
seconds by default.  A time without a zone is UTC, unless a zone is given.  No cast is lossy.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.bars.times import as_ns, day_of
from holdfast.cli.opening import refuse_reversed

UNITS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_NS, _UTC = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
_ZONED = r"(Z|[+-]\d\d(:?\d\d)?)$"


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How the times of a file are parsed."""

    unit: str = "s"
    format: str | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"--time-unit must be one of {', '.join(UNITS)}, not {self.unit!r}")

    def parse(self, column: Any) -> Any:
        """Return a column of times as timestamps in nanoseconds, UTC."""
        try:
            return self._parsed(column)
        except pa.ArrowException as error:
            raise ValueError(f"times: {error}") from error

    def _parsed(self, column: Any) -> Any:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
            kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._of_text(column.cast(pa.string()))
        if pa.types.is_integer(kind):
            return self._of_numbers(column)
        if pa.types.is_date(kind):
            return self._zoned(column.cast(_NS))
        if pa.types.is_timestamp(kind):
            return column.cast(_UTC) if kind.tz is not None else self._zoned(column.cast(_NS))
        raise ValueError(f"times must be timestamps, integers or text, not {kind}")

    def _of_text(self, column: Any) -> Any:
        if self.format is not None:
            return self._zoned(pc.strptime(column, format=self.format, unit="ns"))
        known = column.drop_null()
        if len(known) and _all(pc.match_substring_regex(known, r"^\s*\d+\s*$")):
            return self._of_numbers(pc.utf8_trim_whitespace(column).cast(pa.int64()))
        # Only a time of day can have a zone: the last part of a date looks like one.
        timed = pc.match_substring_regex(known, rf":.*{_ZONED}")
        return column.cast(_UTC) if len(known) and _all(timed) else self._zoned(column.cast(_NS))

    def _of_numbers(self, column: Any) -> Any:
        numbers = pc.multiply_checked(column.cast(pa.int64()), UNITS[self.unit])
        return numbers.cast(_UTC)

    def _zoned(self, times: Any) -> Any:
        if self.zone is None:
            return times.cast(_UTC)
        return pc.assume_timezone(times, self.zone).cast(_UTC)


def _all(flags: Any) -> bool:
    return bool(pc.all(flags).as_py())


def parse_span(start: str | None, stop: str | None, day: str | None) -> dict[str, Any]:
    """Parse --start and --stop, or --day, into nanoseconds since 1970, as a query takes them."""
    if day is not None:
        if start is not None or stop is not None:
            raise ValueError("--day excludes --start and --stop: pass a day, or a range")
        return dict(zip(("start", "stop"), day_of(day), strict=True))
    low, high = (None if text is None else as_ns(text, 0) for text in (start, stop))
    refuse_reversed(low, high, (start, stop))
    return {"start": low, "stop": high}
