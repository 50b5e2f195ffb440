"""The progress of a pipeline, read from its checkpoint and stores, without Spark.

The pipeline may be running.
"""

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.errors import CorruptError, HoldfastError
from holdfast.spark.pipelines import checkpoint
from holdfast.spark.pipelines.declared import KEEPS_ROWS_APART, Declared
from holdfast.spark.pipelines.positions import COUNTS, lag_of, newest_of
from holdfast.verdicts import find_owner


@dataclass(frozen=True, slots=True)
class Lag:
    """How much of a source a sink has not read yet; None if it is unknown."""

    source: str
    behind: int | None
    unit: str


@dataclass(frozen=True, slots=True)
class SinkStatus:
    name: str
    format: str
    path: str
    batch: int | None  # the last one that is committed
    committed_ms: int | None
    rows_read: int | None  # by that batch; None if its run was killed before it stored this
    rows: int | None  # that it holds now, where that is known without reading them
    lags: tuple[Lag, ...]


@dataclass(frozen=True, slots=True)
class Status:
    pipeline: str
    checkpoint: str
    running: int | None  # the process that runs it
    sinks: tuple[SinkStatus, ...]
    dead_letters: int


def status(declared: Declared) -> Status:
    """Return the progress of a pipeline.

    ChangedError if the checkpoint belongs to another pipeline, CorruptError if it is damaged.
    """
    record = checkpoint.read_record(declared.checkpoint, declared.name)
    owner = find_owner(OsDisk(declared.checkpoint))
    places = {sink.name: (sink.format, sink.path) for sink in declared.sinks}
    if record is not None and KEEPS_ROWS_APART in record.active:
        places[KEEPS_ROWS_APART] = ("holdfast-log", declared.dead_letters)
    sinks = []
    for name, (format, path) in places.items():
        query = record.queries.get(name) if record else None
        sources = [text.rpartition(" (")[0] for text in query.sources] if query else []
        progress = checkpoint.read_progress(declared.checkpoint, name)
        sinks.append(
            SinkStatus(
                name,
                format,
                path,
                progress.batch if progress else None,
                progress.committed_ms if progress else None,
                progress.rows if progress else None,
                rows_in(format, path),
                _lags(declared, sources, progress),
            )
        )
    running = owner.pid if owner and owner.alive else None
    letters = rows_in("holdfast-log", declared.dead_letters) or 0
    return Status(declared.name, declared.checkpoint, running, tuple(sinks), letters)


def rows_in(format: str, path: str) -> int | None:
    """Return the number of rows in a sink; 0 if it does not exist, None if it is unknown."""
    if format == "holdfast-log":
        try:
            with closing(read_log(path)) as guest:
                return guest.last_index - guest.first_index + 1
        except CorruptError:
            raise
        except HoldfastError:
            return 0
    return _parquet_rows(Path(path)) if format == "parquet" else None


def _lags(
    declared: Declared, sources: list[str], progress: checkpoint.Progress | None
) -> tuple[Lag, ...]:
    known = {source.name: source for source in declared.sources}
    found: dict[str, Lag] = {}
    offsets = progress.offsets if progress else (None,) * len(sources)
    for name, offset in zip(sources, offsets, strict=True):
        if name in known:
            source = known[name]
            unit = COUNTS[source.format][1] if source.format in COUNTS else "batch"
            found[name] = Lag(name, lag_of(source, offset, newest_of(source, offset)), unit)
    return tuple(found.values())


def _parquet_rows(directory: Path) -> int:
    """Count the rows of committed files: a killed batch leaves others beside them."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in committed_files(directory))


def committed_files(directory: Path) -> list[Path]:
    """Return the committed files of a Parquet sink, from the log that Spark keeps."""
    log = directory / "_spark_metadata"
    if not log.is_dir():
        return []
    batches = {_batch(path): path for path in log.iterdir() if path.name[0].isdigit()}
    # A compacted one holds all earlier ones.
    first = max((batch for batch, path in batches.items() if path.suffix), default=0)
    lines = [
        line
        for batch in sorted(batch for batch in batches if batch >= first)
        for line in batches[batch].read_text(encoding="utf-8").splitlines()[1:]
    ]
    paths = dict.fromkeys(json.loads(line)["path"] for line in lines)
    return [Path(unquote(urlsplit(path).path)) for path in paths]


def _batch(path: Path) -> int:
    return int(path.name.removesuffix(".compact"))
