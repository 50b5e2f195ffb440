"""The checkpoint of a pipeline: its name, what it depends on, and its progress.

    pipeline.json          the pipeline's name and, of every query, what its progress depends on
    queries/SINK           Spark's own checkpoint of that sink's query
    queries/dead-letters   and of the query that collects bad rows
    batches/SINK.json      how many rows its last batch has read, which Spark does not store
    dead-letters           the log of bad rows, unless the file names another place

Spark identifies a source by its number and state by its shape.  A changed pipeline that continues
from an old checkpoint may read the wrong log from the wrong place.  So a changed pipeline does not
run: the error lists the changes and the choices.  This module does not need Spark.
"""

import hashlib
import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, HoldfastError
from holdfast.spark.pipelines.declared import KEEPS_ROWS_APART, Declared, Sink, Source, Step, Table

_FILE = "pipeline.json"
_VERSION = 1


class ChangedError(HoldfastError):
    """The checkpoint was created by a different pipeline, or a different version of this one."""


@dataclass(frozen=True, slots=True)
class Query:
    """What the progress of one query depends on."""

    sources: tuple[str, ...]  # in the order of Spark's offsets, each with its format
    made_of: Mapping[str, str]  # key in the file -> its value


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of pipeline.json: all queries so far, and which of them are active."""

    queries: Mapping[str, Query]
    active: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a query."""

    batch: int
    committed_ms: int
    rows: int | None  # that it read; None if its run was killed before it stored this
    offsets: tuple[Mapping[str, Any] | None, ...]  # one for each source


@contextmanager
def owned(checkpoint: str) -> Iterator[None]:
    """Lock the checkpoint: two runs at the same time would undo each other's work."""
    lock = OsDisk(checkpoint).lock()
    try:
        yield
    finally:
        lock.release()


def describe(
    declared: Declared,
    sink: Sink | None,
    sources: Collection[str],
    views: Collection[str],
    columns: Mapping[str, str] | None = None,
) -> Query:
    """Describe what a query depends on; without a sink, the query of the dead letters.

    `columns` are those of the tables: their rows may change, but not their columns.
    """
    made: dict[str, str] = {}
    for table in declared.tables:
        if table.name in views:
            made |= _keys(f"table.{table.name}", _of_table(table, columns or {}))
    for source in declared.sources:
        if source.name in sources:
            made |= _keys(f"source.{source.name}", _of_source(source))
    for step in declared.steps:
        if step.name in views:
            made |= _keys(f"step.{step.name}", _of_step(step))
    if sink is not None:
        known = {"from": sink.view, "format": sink.format, "path": sink.declared_path}
        made |= _keys(f"sink.{sink.name}", {**known, "mode": sink.mode})
    numbered = tuple(f"{name} ({declared.source(name).format})" for name in sources)
    return Query(numbered, made)


def agree(declared: Declared, queries: Mapping[str, Query], *, accept_changes: bool) -> None:
    """Check that the checkpoint belongs to this pipeline, unchanged; record it in a new checkpoint.

    ChangedError lists all differences and the choices.  `accept_changes` accepts them, except other
    sources of a sink.
    """
    before = read_record(declared.checkpoint, declared.name)
    if before is not None:
        _refuse_changes(declared, before, queries, accept_changes)
    # The progress of a removed sink is kept, in case it is added again.
    known = {**(before.queries if before else {}), **queries}
    document = {
        "version": _VERSION,
        "pipeline": declared.name,
        "active": list(queries),
        "queries": {name: asdict(query) for name, query in known.items()},
    }
    data = json.dumps(document, indent=1).encode()
    OsDisk(declared.checkpoint).create(_FILE, data, replace=True)


def read_record(checkpoint: str, name: str) -> Record | None:
    """Return the record; None in a new checkpoint.  ChangedError if another pipeline owns it."""
    path = Path(checkpoint, _FILE)
    try:
        document = json.loads(path.read_bytes())
        version, owner = document["version"], document["pipeline"]
        active = tuple(map(str, document["active"]))
        queries = {
            query: Query(tuple(found["sources"]), dict(found["made_of"]))
            for query, found in document["queries"].items()
        }
    except FileNotFoundError:
        _refuse_foreign_files(checkpoint)
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(str(path), 0, f"not a pipeline's record: {error!r}") from error
    if version != _VERSION:
        raise ChangedError(f"{path} has version {version}: run it with a newer Holdfast")
    if owner != name:
        raise ChangedError(
            f"{checkpoint} belongs to the pipeline {owner!r}: name another checkpoint for {name!r}"
        )
    return Record(queries, active)


def read_progress(checkpoint: str, query: str) -> Progress | None:
    """Return the last batch that Spark has committed."""
    home = query_path(checkpoint, query)
    batch = max(_numbers(home / "commits"), default=None)
    if batch is None:
        return None
    commit, offsets = home / "commits" / str(batch), home / "offsets" / str(batch)
    try:
        lines = offsets.read_text(encoding="utf-8").splitlines()[2:]
        found = tuple(None if line == "-" else json.loads(line) for line in lines)
    except (ValueError, FileNotFoundError) as error:
        raise CorruptError(str(offsets), 0, f"not a batch's offsets: {error!r}") from error
    rows = _rows_of(checkpoint, query, batch)
    return Progress(batch, commit.stat().st_mtime_ns // 1_000_000, rows, found)


def note_batch(checkpoint: str, query: str, batch: int, rows: int) -> None:
    """Store the number of rows of a batch, which Spark does not."""
    data = json.dumps({"batch": batch, "rows": rows}).encode()
    OsDisk(checkpoint).create(f"batches/{query}.json", data, replace=True)


def _rows_of(checkpoint: str, query: str, batch: int) -> int | None:
    path = Path(checkpoint, "batches", f"{query}.json")
    try:
        noted = json.loads(path.read_bytes())
        return int(noted["rows"]) if noted["batch"] == batch else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(str(path), 0, f"not a batch's rows: {error!r}") from error


def query_path(checkpoint: str, query: str) -> Path:
    return Path(checkpoint, "queries", query)


def _numbers(directory: Path) -> Iterator[int]:
    if directory.is_dir():
        yield from (int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def _refuse_foreign_files(checkpoint: str) -> None:
    found = Path(checkpoint)
    strange = {path.name for path in found.iterdir()} if found.is_dir() else set()
    if strange := strange - {"LOCK"}:
        raise ChangedError(
            f"{checkpoint} is not the checkpoint of a pipeline: it has {sorted(strange)[0]}; "
            "name another one"
        )


def _refuse_changes(
    declared: Declared,
    record: Record,
    after: Mapping[str, Query],
    accept_changes: bool,
) -> None:
    before = record.queries
    changes = [change for name in after for change in _changes(name, before.get(name), after[name])]
    changes += [f"sink.{name} is new" for name in after if name in before.keys() - {*record.active}]
    changes += [f"sink.{name} was removed" for name in record.active if name not in after]
    changes = list(dict.fromkeys(changes))
    lost = [
        name
        for name, query in after.items()
        if name in before and before[name].sources != query.sources
    ]
    start_over = (
        "start over, with another checkpoint and new paths for the sinks, or they hold rows twice"
    )
    if lost:
        then, now = (", ".join(found[lost[0]].sources) for found in (before, after))
        raise ChangedError(
            f"{declared.file}: {lost[0]} now reads {now or 'nothing'}, but its progress was "
            f"recorded for {then or 'nothing'}: change it back, give the sink another name and "
            f"path, or {start_over}"
        )
    if changes and not accept_changes:
        raise ChangedError(
            f"{declared.file} differs from the pipeline of {declared.checkpoint}: "
            f"{'; '.join(changes)}.  Change it back; or continue with --accept-changes, if the "
            f"rows that were written so far may stay; or {start_over}"
        )


def _changes(name: str, before: Query | None, after: Query) -> Iterator[str]:
    if before is None:
        yield f"sink.{name} is new" if name != KEEPS_ROWS_APART else "bad rows are now collected"
        return
    for key in dict.fromkeys((*before.made_of, *after.made_of)):
        then, now = before.made_of.get(key), after.made_of.get(key)
        if then != now:
            what = "is new" if then is None else "was removed" if now is None else "has changed"
            yield f"{key} {what}"


def _of_source(source: Source) -> dict[str, str | None]:
    return {
        "format": source.format,
        "path": source.declared_path,
        "parse": source.parse,
        "parse_options": json.dumps(dict(source.parse_options), sort_keys=True),
        "schema": _words(source.schema),
        "watermark": " ".join(source.watermark) if source.watermark else None,
    }


def _of_table(table: Table, columns: Mapping[str, str]) -> dict[str, str | None]:
    return {
        "format": table.format,
        "path": table.declared_path,
        "options": json.dumps(dict(table.options), sort_keys=True),
        "columns": columns.get(table.name),
    }


def _of_step(step: Step) -> dict[str, str | None]:
    code = inspect.getsource(step.function) if step.function else None
    return {
        "sql": _words(step.sql),
        "function": hashlib.sha256(code.encode()).hexdigest() if code else None,
        "watermark": " ".join(step.watermark) if step.watermark else None,
    }


def _keys(table: str, values: Mapping[str, str | None]) -> dict[str, str]:
    return {f"{table}.{key}": value for key, value in values.items() if value is not None}


def _words(text: str | None) -> str | None:
    """Normalise white space."""
    return None if text is None else " ".join(text.split())
