"""`holdfast log replicate` and `holdfast log replicas`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.opening import find_log, log_options, log_owner, log_reader
from holdfast.cli.options import (
    FollowOption,
    IntervalOption,
    JsonOption,
    LogPath,
    SegmentAge,
    SegmentSize,
    parse_size,
)
from holdfast.cli.output import answer, answer_rows, count_of, human_time, progress

if TYPE_CHECKING:
    from holdfast.logs.log import Log
    from holdfast.logs.replicas import Follower, Replica, Replicas

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The replica's name.")]


def replicate(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The log to copy.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The copy; created if it is missing.")
    ],
    name: Annotated[str, typer.Option(help="The name of the copy in the source.")],
    follow: FollowOption = False,
    batch_size: Annotated[
        int, typer.Option(parser=parse_size, metavar="SIZE", help="Bytes per batch at most.")
    ] = "16MB",  # type: ignore[assignment]  # parsed by the option
    interval: IntervalOption = "200ms",  # type: ignore[assignment]  # as above
    segment_size: SegmentSize = None,
    segment_age: SegmentAge = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a log, batch by batch.

    The source stores how much of the copy is durable.  After an interruption, the same command
    continues at the end of the copy.  Exits with 4 if the source has rewritten an entry that was
    copied: it was truncated, or restored from a backup.
    """
    from holdfast.logs.replicas import Follower

    replicas = _replicas_of(source)
    options = {"segment_size_max": segment_size, "segment_age_max_ms": segment_age}
    with log_reader(source) as reader, _target_of(source, target, options, as_json) as copy:
        follower = Follower(reader, copy, replicas, name)
        begin = copy.last_index
        try:
            _copy(follower, batch_size, interval if follow else None, f"copying {source}")
        finally:  # also after an error: this much is durable
            copied, last, lag = copy.last_index - begin, copy.last_index, follower.lag
            text = f"copied {count_of(copied, 'entry')} to {name}, up to {last}; {lag:,} behind"
            document = {"name": name, "copied": copied, "last_index": last, "lag": lag}
            answer(text, document, as_json=as_json)


def _copy(follower: "Follower", batch_size: int, interval_ms: int | None, title: str) -> None:
    done = 0
    with progress(title, unit="entries") as on_progress:
        while True:
            copied = follower.step(batch_size)
            done += copied
            on_progress(done, done + follower.lag)
            if copied:
                continue
            if interval_ms is None:
                break
            time.sleep(interval_ms / 1000)


@contextmanager
def _target_of(source: str, target: str, options: dict[str, Any], as_json: bool) -> "Iterator[Log]":
    """Own the copy; a new one begins where the source now begins."""
    from holdfast.doors import create_log, local_path

    place = Path(local_path(target))
    if place.resolve() == Path(local_path(source)).resolve():
        raise ValueError("SOURCE and TARGET are the same log")
    if place.is_dir() and any(place.iterdir()):
        with log_owner(target, as_json=as_json, **options) as log:
            yield log
        return
    format = find_log(source)
    with log_reader(source) as reader:
        first, codec = reader.first_index, getattr(reader, "codec", None)
    options = log_options(format, first_index=first, codec=codec, **options)
    with create_log(target, format=format.name, **options) as log:
        yield log


@app.callback()
def replicas(context: typer.Context, path: LogPath) -> None:
    """List and register the replicas of a log.

    `trim` and `truncate` keep what a registered replica has not acknowledged.
    """
    context.obj = path


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the replicas of a log and how far behind each is.

    Exits with 2 if the file of a replica is damaged, or names an entry beyond the log.
    """
    with log_reader(context.obj) as reader:
        found = reader.status().replicas
    rows = [(r.name, r.acknowledged, r.lag, human_time(r.updated_ms)) for r in found]
    answer_rows(["NAME", "ACKNOWLEDGED", "LAG", "UPDATED"], rows, found, as_json=as_json)
    _replicas_of(context.obj).list()  # raises the first error


@app.command()
def register(
    context: typer.Context,
    name: Name,
    at: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="INDEX",
            help="The last entry that it has; not beyond the end of the log.",
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Register a replica, so that `trim` waits for it.

    Registering it again sets its position, also where its file is damaged.
    """
    _tell_replica(_replicas_of(context.obj).register(name, at), as_json=as_json)


@app.command()
def acknowledge(
    context: typer.Context,
    name: Name,
    index: Annotated[int, typer.Argument(metavar="INDEX", help="The last entry that it has.")],
    as_json: JsonOption = False,
) -> None:
    """Record that all entries up to INDEX are durable at a replica."""
    _tell_replica(_replicas_of(context.obj).acknowledge(name, index), as_json=as_json)


@app.command()
def forget(context: typer.Context, name: Name, as_json: JsonOption = False) -> None:
    """Forget a replica; `trim` no longer waits for it."""
    _replicas_of(context.obj).forget(name)
    text = f"forgot {name}; `trim` no longer waits for it"
    answer(text, {"name": name, "forgotten": True}, as_json=as_json)


def _replicas_of(path: str) -> "Replicas":
    from holdfast.doors.logs import log_replicas

    find_log(path)
    return log_replicas(path)


def _tell_replica(replica: "Replica", *, as_json: bool) -> None:
    text = f"{replica.name} has acknowledged all up to {replica.acknowledged}"
    answer(text, replica, as_json=as_json)
