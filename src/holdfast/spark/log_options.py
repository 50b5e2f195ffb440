"""The options of the data source `holdfast-log`, read once and refused where they make no sense.

Names are in camel case and in any case; what is not known is refused, because a misspelt option
that is ignored reads the wrong rows in silence.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.disk import OsDisk
from holdfast.logs.open import FORMATS
from holdfast.logs.scan_plan import FOREVER
from holdfast.logs.staging import Transaction

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
Use = Literal["read", "readStream", "write", "writeStream"]

COLUMNS = ("index", "payload", "segment", "offset")
CORRUPT_COLUMN = "_corrupt_record"

# Which option is for what.  Spark itself adds those that are for everything.
_USES: dict[str, tuple[Use, ...]] = {
    "path": get_args(Use),
    "paths": ("read",),
    "startingIndex": ("read", "readStream"),
    "endingIndex": ("read",),
    "columns": ("read", "readStream"),
    "verify": ("read", "readStream"),
    "mode": ("read", "readStream"),
    "maxEntriesPerTrigger": ("readStream",),
    "failOnDataLoss": ("readStream",),
    "format": ("write", "writeStream"),
    "segmentSizeMax": ("write", "writeStream"),
    "orderBy": ("write", "writeStream"),
    "txnAppId": ("write",),
    "txnVersion": ("write",),
    "checkpointLocation": ("write", "writeStream"),  # of the stream whose batch is written
    "queryName": ("writeStream",),
}
_SPELLING = {name.lower(): name for name in _USES}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What was asked for, checked as far as it can be without a look at the log."""

    given: tuple[str, ...]
    paths: tuple[str, ...]
    start: int | Literal["earliest", "latest"] = "earliest"
    stop: int = FOREVER
    columns: tuple[str, ...] = COLUMNS
    verify: bool = True
    mode: Mode = "FAILFAST"
    entries_max: int | None = None
    fail_on_data_loss: bool = True
    format: str = "shanghai"
    segment_size_max: int | None = None
    order_by: str | None = None
    transaction: Transaction | None = None
    checkpoint: str | None = None

    def only_for(self, use: Use) -> "LogOptions":
        """Refuse what has no meaning there: Spark tells only now whether it reads or writes."""
        strange = [name for name in self.given if use not in _USES[name]]
        if strange:
            fit = ", ".join(name for name, uses in _USES.items() if use in uses)
            raise ValueError(f"remove the option {strange[0]}: {use} takes {fit}")
        if not self.paths:
            ends = {"read": "load", "readStream": "load", "write": "save", "writeStream": "start"}
            raise ValueError(f"name the log's directory: .{ends[use]}('/the/directory')")
        if use == "read" and self.start == "latest":
            raise ValueError("startingIndex is earliest or a number; latest is for readStream")
        return self


def parse_options(options: Mapping[str, str]) -> LogOptions:
    """ValueError with what to do on its first line."""
    values: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() not in _SPELLING:
            known = ", ".join(sorted(_SPELLING.values(), key=str.lower))
            raise ValueError(f"remove the option {key!r}: holdfast-log knows {known}")
        values[_SPELLING[key.lower()]] = value
    last = _index(values, "endingIndex")
    return LogOptions(
        given=tuple(values),
        paths=_paths(values),
        start=_start(values),
        stop=FOREVER if last is None else last + 1,
        columns=_columns(values),
        verify=_flag(values, "verify"),
        mode=_mode(values),
        entries_max=_index(values, "maxEntriesPerTrigger"),
        fail_on_data_loss=_flag(values, "failOnDataLoss"),
        format=_format(values),
        segment_size_max=_index(values, "segmentSizeMax"),
        order_by=values.get("orderBy"),
        transaction=_transaction(values),
        checkpoint=values.get("checkpointLocation"),
    )


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    """Absolute: tasks run in directories of their own."""
    several = json.loads(values.get("paths", "[]"))
    one = [values["path"]] if "path" in values else []
    return tuple(OsDisk(path).path for path in [*one, *several])


def _start(values: Mapping[str, str]) -> int | Literal["earliest", "latest"]:
    text = values.get("startingIndex", "earliest").lower()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return _number(text, "startingIndex", "earliest, latest or a number from 1 on")


def _index(values: Mapping[str, str], name: str) -> int | None:
    return _number(values[name], name, "a number from 1 on") if name in values else None


def _number(text: str, name: str, wanted: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) < FOREVER):
        raise ValueError(f"set {name} to {wanted}, not {text!r}")
    return int(text)


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in values.get("columns", ",".join(COLUMNS)).split(","))
    if not set(names) <= set(COLUMNS) or len(set(names)) != len(names):
        raise ValueError(f"set columns to some of {','.join(COLUMNS)}, not {values['columns']!r}")
    return names


def _flag(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ValueError(f"set {name} to true or false, not {text!r}")
    return text == "true"


def _mode(values: Mapping[str, str]) -> Mode:
    text = values.get("mode", "FAILFAST").upper()
    for mode in get_args(Mode):
        if text == mode:
            return text  # type: ignore[return-value]  # it is that very string
    raise ValueError(f"set mode to one of {', '.join(get_args(Mode))}, not {text!r}")


def _format(values: Mapping[str, str]) -> str:
    name = values.get("format", "shanghai")
    if name not in FORMATS:
        raise ValueError(f"set format to one of {', '.join(FORMATS)}, not {name!r}")
    return name


def _transaction(values: Mapping[str, str]) -> Transaction | None:
    app, version = values.get("txnAppId"), values.get("txnVersion")
    if app is None and version is None:
        return None
    if not app or version is None:
        raise ValueError("set both txnAppId and txnVersion, or neither")
    return Transaction(app, _number(version, "txnVersion", "a number from 0 on", least=0))
