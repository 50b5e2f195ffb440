"""Options of the data source `holdfast-log`."""

import json
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, get_args

from holdfast.disk import OsDisk
from holdfast.logs.opening import FORMATS
from holdfast.logs.scan_plan import FOREVER
from holdfast.spark.options import (
    DIRECTORY,
    FLAG,
    READS,
    TEXT,
    USES,
    WRITES,
    Kind,
    Options,
    Use,
    choice,
    names,
    number,
    option,
    position,
)

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]

COLUMNS = ("index", "payload", "segment", "offset")
CORRUPT_COLUMN = "_corrupt_record"
_MODE = choice(get_args(Mode))


def _directories(text: str) -> tuple[str, ...]:
    return tuple(OsDisk(path).path for path in json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions(Options):
    """What to read of which logs, or how to append to one."""

    source: ClassVar[str] = "holdfast-log"
    place: ClassVar[str] = "the log's directory"

    path: str | None = option(DIRECTORY, *USES)
    paths: tuple[str, ...] = option(
        Kind("a JSON list of local directories", _directories), "read", default=()
    )
    starting_index: int | Literal["earliest", "latest"] = option(
        position("earliest", "latest"), *READS, default="earliest"
    )
    ending_index: int = option(number(), "read", default=FOREVER)
    columns: tuple[str, ...] = option(names(COLUMNS), *READS, default=COLUMNS)
    verify: bool = option(FLAG, *READS, default=True)
    mode: Mode = option(_MODE, *READS, default="FAILFAST")  # noqa: RUF009 - a field
    max_entries_per_trigger: int | None = option(number(), "readStream")
    fail_on_data_loss: bool = option(FLAG, "readStream", default=True)
    format: str | None = option(choice(tuple(FORMATS)), *WRITES)
    max_segment_bytes: int | None = option(number(), *WRITES)
    order_by: str | None = option(TEXT, *WRITES)

    @property
    def directories(self) -> tuple[str, ...]:
        """Return the paths of all logs."""
        return self.paths if self.path is None else (self.path, *self.paths)

    def only_for(self, use: Use) -> Self:
        if use == "read" and self.starting_index == "latest":
            raise ValueError("set startingIndex to earliest or a number: latest is for readStream")
        return Options.only_for(self, use)
