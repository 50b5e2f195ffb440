"""A pipeline whose file was read and checked.  The page: docs/pipelines.md

Sources and tables become views of their names.  Steps use them and earlier steps.  Each sink takes
one view.  Paths are absolute here, and options are text, as Spark requires.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

KEEPS_ROWS_APART = "dead-letters"
"""The query that collects bad rows.  A sink cannot have this name: it is not an identifier."""


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    format: str
    path: str | None = None
    declared_path: str | None = None  # as the file has it
    options: Mapping[str, str] = field(default_factory=dict)
    parse: str | None = None  # json or csv
    parse_options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    watermark: tuple[str, str] | None = None  # column and delay


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that are read as a whole in every batch, to join with."""

    name: str
    format: str
    path: str
    declared_path: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Either SQL, or a function whose parameters are named after the views it gets."""

    name: str
    sql: str | None = None
    function: Callable[..., Any] | None = None
    watermark: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    view: str
    format: str
    path: str
    declared_path: str
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches begin: once, available-now, or every so many milliseconds."""

    kind: str
    every_ms: int = 0


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline that can be run."""

    file: str
    name: str
    checkpoint: str
    trigger: Trigger
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    dead_letters: str  # the log that bad rows go to
    tables: tuple[Table, ...] = ()

    def source(self, name: str) -> Source:
        return next(source for source in self.sources if source.name == name)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file: the key and what to do."""

    file: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.what}" if self.key else f"{self.file}: {self.what}"


class InvalidError(ValueError):
    """The pipeline cannot run as declared; the message lists all problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
