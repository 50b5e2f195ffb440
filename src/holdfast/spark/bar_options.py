"""Options of the data source `holdfast-bars`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from holdfast.bars.query import Span
from holdfast.bars.times import as_ns, span_of
from holdfast.formats.bar_time import parse_timeframe
from holdfast.spark.options import (
    DIRECTORY,
    FLAG,
    TEXT,
    WRITES,
    Kind,
    Options,
    Use,
    names,
    number,
    option,
)

_YEARS = re.compile(r"([12][0-9]{3})(?:-([12][0-9]{3}))?")
_PARTITION_BYTES = 64 * 2**20
_USES: tuple[Use, ...] = ("read", *WRITES)


def _time_ns(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{5,19}", text) else as_ns(text, 0)


def _symbols(text: str) -> tuple[str, ...] | None:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(words):
        raise ValueError(text)
    return None if words == ("*",) else words


def _years(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for word in text.split(","):
        match = _YEARS.fullmatch(word.strip())
        if match is None:
            raise ValueError(text)
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


_TIME = Kind("a time such as 2021-03-01T09:30 (UTC), or nanoseconds since 1970", _time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarOptions(Options):
    """Which bars to read, or where to write bars."""

    source: ClassVar[str] = "holdfast-bars"

    path: str = option(DIRECTORY, *_USES, default="")
    timeframe: str = option(TEXT, *_USES, default="")
    attributes: str = option(TEXT, *_USES, default="")
    symbols: tuple[str, ...] | None = option(Kind("names separated by commas", _symbols), "read")
    years: tuple[int, ...] | None = option(Kind("years such as 2019,2021-2023", _years), "read")
    starting_time: int | None = option(_TIME, "read")
    ending_time: int | None = option(_TIME, "read")
    columns: tuple[str, ...] | None = option(names(), "read")
    packed: bool = option(FLAG, "read", default=False)
    max_partition_bytes: int = option(number(), "read", default=_PARTITION_BYTES)
    ticks: bool = option(FLAG, *WRITES, default=False)
    symbol: str | None = option(TEXT, *WRITES)

    @classmethod
    def of_bucket(
        cls, path: str, timeframe: str, attributes: str, options: Mapping[str, Any]
    ) -> Self:
        """Parse the options of a read of one timeframe and attribute group."""
        texts = {name: str(value) for name, value in options.items()}
        bucket = {"path": path, "timeframe": timeframe, "attributes": attributes}
        return cls.parse(bucket | texts).only_for("read")

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.timeframe:
            parse_timeframe(self.timeframe)

    @property
    def span(self) -> Span:
        return span_of(self.starting_time, self.ending_time, None, "last")

    def only_for(self, use: Use) -> Self:
        found = Options.only_for(self, use)
        for name, value in (("timeframe", self.timeframe), ("attributes", self.attributes)):
            if not value:
                raise ValueError(f"set {name}: a frame has one timeframe and attribute group")
        return found

    def choosing(self, columns: Sequence[str]) -> Self:
        return replace(self, columns=tuple(columns))
