"""The options of the data source `holdfast-log`, read once and refused where they make no sense."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.disk import OsDisk
from holdfast.logs.open import FORMATS
from holdfast.logs.scan_plan import FOREVER
from holdfast.spark.option_values import flag, number, refuse_unfit, spelled, transaction
from holdfast.staged import Transaction

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
        refuse_unfit(self.given, use, _USES)
        if not self.paths:
            ends = {"read": "load", "readStream": "load", "write": "save", "writeStream": "start"}
            raise ValueError(f"name the log's directory: .{ends[use]}('/the/directory')")
        if use == "read" and self.start == "latest":
            raise ValueError("startingIndex is earliest or a number; latest is for readStream")
        return self


def parse_options(options: Mapping[str, str]) -> LogOptions:
    """ValueError with what to do on its first line."""
    values = spelled(options, _USES, "holdfast-log")
    last = number(values, "endingIndex")
    return LogOptions(
        given=tuple(values),
        paths=_paths(values),
        start=_start(values),
        stop=FOREVER if last is None else last + 1,
        columns=_columns(values),
        verify=flag(values, "verify", default=True),
        mode=_mode(values),
        entries_max=number(values, "maxEntriesPerTrigger"),
        fail_on_data_loss=flag(values, "failOnDataLoss", default=True),
        format=_format(values),
        segment_size_max=number(values, "segmentSizeMax"),
        order_by=values.get("orderBy"),
        transaction=transaction(values),
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
    wanted = "earliest, latest or a number from 1 on"
    return number(values, "startingIndex", wanted=wanted) or 1


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in values.get("columns", ",".join(COLUMNS)).split(","))
    if not set(names) <= set(COLUMNS) or len(set(names)) != len(names):
        raise ValueError(f"set columns to some of {','.join(COLUMNS)}, not {values['columns']!r}")
    return names


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
