"""The options of the data source `holdfast-bars`, read once and refused where they make no sense.

Names are in camel case and in any case; what is not known is refused, because a misspelt option
that is ignored reads the wrong rows in silence.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from holdfast.bars.query import Span
from holdfast.bars.staging import Transaction
from holdfast.bars.tables import span_of
from holdfast.disk import OsDisk
from holdfast.formats.bar_time import parse_timeframe

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
    "maxPartitionBytes": ("read",),
    "ticks": ("write", "writeStream"),
    "symbol": ("write", "writeStream"),
    "txnAppId": ("write",),
    "txnVersion": ("write",),
    "checkpointLocation": ("write", "writeStream"),  # of the stream whose batch is written
    "queryName": ("writeStream",),
}
_SPELLING = {name.lower(): name for name in _USES}
_YEARS = re.compile(r"([12][0-9]{3})(?:-([12][0-9]{3}))?")
_NUMBER_MAX = 2**63
_ALWAYS = Span()


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
    partition_bytes: int = 16 * 2**20
    ticks: bool = False
    symbol: str | None = None
    transaction: Transaction | None = None
    checkpoint: str | None = None

    def only_for(self, use: Use) -> "BarOptions":
        """Refuse what has no meaning there: Spark tells only now whether it reads or writes."""
        strange = [name for name in self.given if use not in _USES[name]]
        if strange:
            fit = ", ".join(name for name, uses in _USES.items() if use in uses)
            raise ValueError(f"remove the option {strange[0]}: {use} takes {fit}")
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
    values: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() not in _SPELLING:
            known = ", ".join(sorted(_SPELLING.values(), key=str.lower))
            raise ValueError(f"remove the option {key!r}: holdfast-bars knows {known}")
        values[_SPELLING[key.lower()]] = value
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
        partition_bytes=_number(values, "maxPartitionBytes", 16 * 2**20),
        ticks=_flag(values, "ticks"),
        symbol=values.get("symbol"),
        transaction=_transaction(values),
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


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) < _NUMBER_MAX):
        raise ValueError(f"set {name} to a number from 1 on, not {text!r}")
    return int(text)


def _flag(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ValueError(f"set {name} to true or false, not {text!r}")
    return text == "true"


def _transaction(values: Mapping[str, str]) -> Transaction | None:
    app, version = values.get("txnAppId"), values.get("txnVersion")
    if app is None and version is None:
        return None
    if not app or version is None:
        raise ValueError("set both txnAppId and txnVersion, or neither")
    if not (version.isascii() and version.isdecimal() and int(version) < _NUMBER_MAX):
        raise ValueError(f"set txnVersion to a number from 0 on, not {version!r}")
    return Transaction(app, int(version))
