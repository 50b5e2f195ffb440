"""The options of the data source `holdfast-bars`, read once, and refused if they make no sense."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from holdfast.bars.query import Span
from holdfast.bars.tables import span_of
from holdfast.disk import OsDisk
from holdfast.formats.bar_time import parse_timeframe
from holdfast.spark.option_values import flag, number, refuse_unfit, spelled, transaction
from holdfast.staged import Transaction

Use = Literal["read", "write", "writeStream"]

# Which option is for what.
_USES: dict[str, tuple[Use, ...]] = {
    "path": get_args(Use),
    "timeframe": get_args(Use),
    "attributes": get_args(Use),
    "symbols": ("read",),
    "years": ("read",),
    "start": ("read",),
    "end": ("read",),
    "columns": ("read",),
    "packed": ("read",),
    "maxPartitionBytes": ("read",),
    "ticks": ("write", "writeStream"),
    "symbol": ("write", "writeStream"),
    "txnAppId": ("write",),
    "txnVersion": ("write",),
    "checkpointLocation": ("write", "writeStream"),  # of the stream whose batch is written
    "queryName": ("writeStream",),
}
_YEARS = re.compile(r"([12][0-9]{3})(?:-([12][0-9]{3}))?")
_ALWAYS = Span()
PARTITION_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class BarOptions:
    """What was asked for, checked as far as it can be without a look at the store."""

    given: tuple[str, ...]
    path: str
    timeframe: str = ""
    attributes: str = ""
    symbols: tuple[str, ...] | None = None
    years: tuple[int, ...] | None = None
    span: Span = _ALWAYS
    columns: tuple[str, ...] | None = None
    packed: bool = False
    partition_bytes: int = PARTITION_BYTES
    ticks: bool = False
    symbol: str | None = None
    transaction: Transaction | None = None
    checkpoint: str | None = None

    def only_for(self, use: Use) -> "BarOptions":
        """Refuse what has no meaning there: Spark tells only now whether it reads or writes."""
        refuse_unfit(self.given, use, _USES)
        return self.complete()

    def choosing(self, columns: Sequence[str]) -> "BarOptions":
        return replace(self, columns=tuple(columns))

    def complete(self) -> "BarOptions":
        """Refuse to guess."""
        if not self.path:
            raise ValueError("name the root: .load('/the/directory')")
        for name, value in (("timeframe", self.timeframe), ("attributes", self.attributes)):
            if not value:
                raise ValueError(f"set {name}: of SYMBOL/TIMEFRAME/ATTRIBUTES one reads one bucket")
        return self


def parse_options(options: Mapping[str, str]) -> BarOptions:
    """ValueError with what to do on its first line."""
    values = spelled(options, _USES, "holdfast-bars")
    if "timeframe" in values:
        parse_timeframe(values["timeframe"])
    return BarOptions(
        given=tuple(values),
        path=OsDisk(values["path"]).path if "path" in values else "",  # tasks run elsewhere
        timeframe=values.get("timeframe", ""),
        attributes=values.get("attributes", ""),
        symbols=_words(values, "symbols"),
        years=_years(values),
        span=_span(values),
        columns=_words(values, "columns"),
        packed=flag(values, "packed", default=False),
        partition_bytes=number(values, "maxPartitionBytes") or PARTITION_BYTES,
        ticks=flag(values, "ticks", default=False),
        symbol=values.get("symbol"),
        transaction=transaction(values),
        checkpoint=values.get("checkpointLocation"),
    )


def _words(values: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    if name not in values or (name == "symbols" and values[name] == "*"):
        return None
    words = tuple(dict.fromkeys(word.strip() for word in values[name].split(",")))
    if not all(words):
        raise ValueError(f"set {name} to names with commas between them, not {values[name]!r}")
    return words


def _years(values: Mapping[str, str]) -> tuple[int, ...] | None:
    if "years" not in values:
        return None
    found: set[int] = set()
    for word in values["years"].split(","):
        match = _YEARS.fullmatch(word.strip())
        if match is None:
            raise ValueError(f"set years to such as 2019,2021-2023, not {values['years']!r}")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _span(values: Mapping[str, str]) -> Span:
    """ISO text as numpy reads it, UTC; or nanoseconds since 1970."""

    def moment(name: str) -> str | int | None:
        text = values.get(name)
        return int(text) if text and re.fullmatch(r"[0-9]{5,19}", text) else text

    try:
        return span_of(moment("start"), moment("end"), None, "last")
    except ValueError as error:
        raise ValueError(f"set start and end to such as 2021-03-01T09:30: {error}") from error
