"""Check the tables of a pipeline and list all problems.

This module checks what needs no Spark; `frames` checks schemas, SQL and output modes.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.spark.bar_options import BarOptions
from holdfast.spark.kv_options import KvOptions
from holdfast.spark.log_options import LogOptions
from holdfast.spark.options import Options, Use
from holdfast.spark.pipelines.declared import (
    Declared,
    Problem,
    Sink,
    Source,
    Step,
    Table,
    Trigger,
)
from holdfast.spark.pipelines.reading import find_function

# Sources can be read again from an offset, tables have a schema, sinks take each batch once.
SOURCES = ("holdfast-log", "holdfast-kv", "parquet", "orc", "text", "rate")
TABLES = ("holdfast-bars", "holdfast-kv", "holdfast-log", "parquet", "orc")
SINKS = ("holdfast-log", "holdfast-kv", "holdfast-bars", "parquet")
PAYLOADS = {"holdfast-log": "payload", "holdfast-kv": "value", "text": "value"}
"""The column that `parse` reads."""

_OPTIONS: dict[str, type[Options]] = {
    kind.source: kind for kind in (LogOptions, KvOptions, BarOptions)
}
_MODES = {"parquet": ("append",)}  # others also update
_KEYS = {
    "": "name checkpoint trigger source table step sink dead_letter",
    "source": "format path options parse parse_options schema watermark",
    "table": "format path options",
    "step": "sql function watermark",
    "sink": "from format path mode options",
    "dead_letter": "path",
}
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WATERMARK = re.compile(r"(\w+)\s+(\d+ \w+)")
_EVERY = re.compile(r"every (\d+)(ms|s|m|h)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_PATH_ADVICE = 'add path = "...", relative to this file'
_SCHEMA_ADVICE = 'add schema = "column TYPE, ..."'


def check(file: str | Path, tables: Mapping[str, Any]) -> tuple[Declared | None, list[Problem]]:
    """Return the pipeline, or None if too much is missing, and all problems."""
    checking = _Checking(Path(file))
    declared = checking.pipeline(tables)
    return declared, checking.problems


def nearest(word: str, known: Collection[str]) -> str:
    """Return `; did you mean ...?`, or nothing."""
    found = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {found[0]}?" if found else ""


class _Table:
    """One table of the file: returns its values, and records problems with them."""

    def __init__(self, checking: "_Checking", key: str, values: object, kind: str) -> None:
        self._checking, self._key = checking, key
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        if not isinstance(values, Mapping):
            self.wrong("", f"make it a table: [{key}]")
        known = _KEYS[kind].split()
        for name in self.values:
            if name not in known:
                hint = nearest(name, known) or f"; known are {', '.join(known)}"
                self.wrong(name, f"remove it: unknown key{hint}")

    def wrong(self, name: str, what: str) -> None:
        self._checking.wrong(".".join(filter(None, (self._key, name))), what)

    def text(self, name: str, advice: str | None = None) -> str | None:
        """Return a string.  Without one, record the advice as a problem."""
        value = self.values.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None:
            self.wrong(name, f"write a string, not {value!r}")
        elif advice is not None:
            self.wrong(name, advice)
        return None

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        wanted = None if default else f"add {name} = one of {', '.join(choices)}"
        value = self.text(name, wanted) or default or ""
        if value and value not in choices:
            hint = nearest(value, choices) or f": one of {', '.join(choices)}"
            self.wrong(name, f"set another than {value!r}{hint}")
        return value

    def options(self, name: str = "options") -> dict[str, str]:
        values = self.values.get(name, {})
        if not isinstance(values, Mapping):
            self.wrong(name, 'write a table: { name = "value" }')
            return {}
        found: dict[str, str] = {}
        for key, value in values.items():
            if isinstance(value, bool):
                found[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                found[key] = str(value)
            else:
                self.wrong(f"{name}.{key}", f"write a string, a number or a boolean, not {value!r}")
        return found

    def watermark(self) -> tuple[str, str] | None:
        text = self.text("watermark")
        if text is None:
            return None
        match = _WATERMARK.fullmatch(text.strip())
        if match is None:
            self.wrong("watermark", f'write "COLUMN DELAY", as in "at 5 minutes", not {text!r}')
            return None
        return match[1], match[2]


class _Checking:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._base = file.absolute().parent
        self.problems: list[Problem] = []

    def wrong(self, key: str, what: str) -> None:
        self.problems.append(Problem(str(self._file), key, what))

    def pipeline(self, tables: Mapping[str, Any]) -> Declared | None:
        top = _Table(self, "", tables, "")
        name = top.text("name", 'add name = "...": the checkpoint belongs to this name') or ""
        if name and not _NAME.fullmatch(name):
            top.wrong("name", f"use letters, digits, '.', '_' and '-', not {name!r}")
        where = top.text(
            "checkpoint", 'add checkpoint = "DIRECTORY", for the progress of the pipeline'
        )
        if where and "://" in where:
            top.wrong("checkpoint", "name a local directory: it is locked while the pipeline runs")
        trigger = self._trigger(top)
        sources = [self._source(n, table) for n, table in self._tables(top, "source")]
        fixed = [self._table(n, table) for n, table in self._tables(top, "table")]
        for one in fixed:
            if one.name in [source.name for source in sources]:
                self.wrong(f"table.{one.name}", f"use another name: {one.name} is a source too")
        given = [*(source.name for source in sources), *(table.name for table in fixed)]
        steps = self._steps(top, given)
        views = [*given, *(step.name for step in steps)]
        sinks = [self._sink(n, table, views) for n, table in self._tables(top, "sink")]
        for kind, found in (("source", sources), ("sink", sinks)):
            if not found:
                self.wrong(kind, f"add a table [{kind}.NAME]: without one there is nothing to do")
        letters = _Table(self, "dead_letter", tables.get("dead_letter", {}), "dead_letter")
        default = f"{where}/dead-letters"
        dead = self._resolved(letters.text("path") or default)
        self._one_writer_each([*sources, *fixed], sinks, dead)
        if not where or not name:
            return None
        found_sources, found_steps, found_sinks = tuple(sources), tuple(steps), tuple(sinks)
        checkpoint = self._resolved(where)
        return Declared(
            str(self._file),
            name,
            checkpoint,
            trigger,
            found_sources,
            found_steps,
            found_sinks,
            dead,
            tuple(fixed),
        )

    def _tables(self, top: _Table, kind: str) -> Iterable[tuple[str, _Table]]:
        tables = top.values.get(kind, {})
        if not isinstance(tables, Mapping):
            top.wrong(kind, f"write [{kind}.NAME]: each has a name")
            return
        for name, values in tables.items():
            table = _Table(self, f"{kind}.{name}", values, kind)
            if not _IDENTIFIER.fullmatch(name):
                table.wrong("", "use letters, digits and '_' in its name, a letter first")
            yield name, table

    def _trigger(self, top: _Table) -> Trigger:
        text = top.text("trigger") or "available-now"
        if match := _EVERY.fullmatch(text):
            return Trigger("continuous", int(match[1]) * _UNIT_MS[match[2]])
        if text not in ("available-now", "once"):
            top.wrong("trigger", f'write "available-now", "once" or "every 5s", not {text!r}')
        return Trigger(text)

    def _source(self, name: str, table: _Table) -> Source:
        format = table.choice("format", SOURCES)
        path = None
        if format != "rate":
            path = table.text("path", _PATH_ADVICE)
        resolved = self._found(table, path) if path else None
        parse = table.choice("parse", ("none", "json", "csv"), "none")
        source = Source(
            name,
            format,
            resolved,
            path,
            table.options(),
            None if parse == "none" else parse,
            table.options("parse_options"),
            table.text("schema"),
            table.watermark(),
        )
        self._schema(table, source)
        self._known_options(table, format, "readStream", source.options, resolved)
        return source

    def _table(self, name: str, table: _Table) -> Table:
        format = table.choice("format", TABLES)
        path = table.text("path", _PATH_ADVICE) or ""
        resolved = self._found(table, path) if path else ""
        options = table.options()
        self._known_options(table, format, "read", options, resolved)
        return Table(name, format, resolved, path, options)

    def _found(self, table: _Table, path: str) -> str:
        """Return the absolute path of something to read."""
        resolved = self._resolved(path)
        if "://" not in resolved and not Path(resolved).exists():
            table.wrong("path", f"{resolved} does not exist: create it, or correct the path")
        return resolved

    def _schema(self, table: _Table, source: Source) -> None:
        """Check that there is a schema where one is needed, and nowhere else."""
        needs = source.parse is not None or source.format in ("parquet", "orc")
        if needs and source.schema is None and "schema" not in table.values:
            table.wrong("schema", _SCHEMA_ADVICE)
        if source.schema is not None and not needs:
            table.wrong("schema", f'remove it, or add parse = "json": {source.format} has its own')
        if source.parse is None and source.parse_options:
            table.wrong("parse_options", "remove it, or add parse")
        if source.parse is not None and source.format not in PAYLOADS:
            table.wrong("parse", f"remove it: only {', '.join(PAYLOADS)} have payloads")
        if source.parse is not None and "columns" in map(str.lower, source.options):
            table.wrong("options.columns", "remove it: parse chooses the columns")

    def _steps(self, top: _Table, views: list[str]) -> list[Step]:
        steps: list[Step] = []
        for name, table in self._tables(top, "step"):
            if name in views:
                table.wrong("", f"use another name: {name} is a source or a table already")
            steps.append(self._step(name, table, [*views, *(step.name for step in steps)]))
        return steps

    def _step(self, name: str, table: _Table, views: list[str]) -> Step:
        given = table.values.get("function")
        if ("sql" in table.values) == (given is not None):
            table.wrong("", 'give it either sql = "SELECT ..." or function = "module:name"')
        function = given if callable(given) else None
        if function is None and given is not None:
            function = self._function(table)
        for parameter in inspect.signature(function).parameters if function else ():
            if parameter not in views:
                hint = nearest(parameter, views) or f"; before it are {', '.join(views)}"
                table.wrong("function", f"no source or earlier step is called {parameter}{hint}")
        return Step(name, table.text("sql"), function, table.watermark())

    def _function(self, table: _Table) -> Callable[..., Any] | None:
        reference = table.text("function")
        if reference is None:
            return None
        try:
            return find_function(self._file, reference)
        except ValueError as error:
            table.wrong("function", f'write "module:name": {error}')
        return None

    def _sink(self, name: str, table: _Table, views: list[str]) -> Sink:
        view = table.text("from", f"add from = one of {', '.join(views)}") or ""
        if view and view not in views:
            hint = nearest(view, views) or f"; there are {', '.join(views)}"
            table.wrong("from", f"no source or step is called {view}{hint}")
        format = table.choice("format", SINKS)
        path = table.text("path", _PATH_ADVICE) or ""
        mode = table.choice("mode", ("append", "update", "complete"), "append")
        fitting = _MODES.get(format, ("append", "update"))
        if format in SINKS and mode not in fitting:
            table.wrong("mode", f"set {' or '.join(fitting)}: {format} cannot {mode}")
        resolved = self._resolved(path) if path else ""
        sink = Sink(name, view, format, resolved, path, mode, table.options())
        self._known_options(table, format, "writeStream", sink.options, resolved)
        return sink

    def _known_options(
        self, table: _Table, format: str, use: Use, options: Mapping[str, str], path: str | None
    ) -> None:
        """Check the options of Holdfast's formats.  Spark's own formats ignore unknown options."""
        if "path" in map(str.lower, options):
            table.wrong("options.path", "remove it: path is a key of its own")
        elif format in _OPTIONS and path:
            try:
                _OPTIONS[format].parse({**options, "path": path}).only_for(use)
            except ValueError as error:
                table.wrong("options", str(error))

    def _one_writer_each(self, given: list[Source | Table], sinks: list[Sink], dead: str) -> None:
        taken = {
            one.path: f"{type(one).__name__.lower()}.{one.name} reads it"
            for one in given
            if one.path
        }
        for sink in sinks:
            if sink.path and sink.path in taken:
                self.wrong(f"sink.{sink.name}.path", f"name another: {taken[sink.path]}")
            taken.setdefault(sink.path, f"sink.{sink.name} writes to it")
        if dead in taken:
            self.wrong("dead_letter.path", f"name another: {taken[dead]}")

    def _resolved(self, path: str) -> str:
        if "://" in path:
            return path
        try:
            return str((self._base / path).resolve())
        except RuntimeError:  # a cycle of links: opening it will fail
            return str(self._base / path)
