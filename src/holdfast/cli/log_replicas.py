"""`holdfast log replicate` and `holdfast log replicas`."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json, progress, table
from holdfast.cli.opening import (
    SegmentAge,
    SegmentSize,
    find_log,
    guest_of,
    owner_of,
    writer_options,
)
from holdfast.cli.units import count_of, human_time, parse_duration_ms, parse_size

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
        str, typer.Argument(metavar="TARGET", help="The copy; made if it is not there.")
    ],
    name: Annotated[str, typer.Option(help="Under which the source knows this copy.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as the source grows, until Ctrl-C.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option(parser=parse_size, metavar="SIZE", help="Copy at most this at once.")
    ] = "16MB",  # type: ignore[assignment]  # parsed like what a person types
    interval: Annotated[
        int,
        typer.Option(
            parser=parse_duration_ms, metavar="DURATION", help="With --follow, how often to look."
        ),
    ] = "200ms",  # type: ignore[assignment]  # as above
    segment_size: SegmentSize = None,
    segment_age: SegmentAge = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a log, batch by batch.

    The source remembers what is durable in the copy.  Run it again after any interruption and it
    goes on where the copy ends.
    """
    from holdfast.logs.replicas import Follower, Replicas

    disk, _ = find_log(source)
    options = writer_options(segment_size, segment_age)
    with guest_of(source) as guest, _target_of(source, target, options, as_json) as copy:
        follower = Follower(guest, copy, Replicas(disk), name)
        begin = copy.last_index
        try:
            _copy(follower, batch_size, interval if follow else None, f"copying {source}")
        finally:  # whatever stopped us, this much is durable there
            _tell(name, copy.last_index - begin, copy.last_index, follower.lag, as_json=as_json)


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


def _tell(name: str, copied: int, last_index: int, lag: int, *, as_json: bool) -> None:
    if as_json:
        answer_json({"name": name, "copied": copied, "last_index": last_index, "lag": lag})
    else:
        answer(f"copied {count_of(copied, 'entry')} to {name}, up to {last_index}; {lag:,} behind")


@contextmanager
def _target_of(source: str, target: str, options: dict[str, int], as_json: bool) -> "Iterator[Log]":
    """The copy, open for writing; a new one begins where the source now begins."""
    from holdfast.disk import OsDisk
    from holdfast.logs.open import create_log

    place = Path(OsDisk(target).path)
    if place.resolve() == Path(OsDisk(source).path).resolve():
        raise ValueError("SOURCE and TARGET are the same log")
    if place.is_dir() and OsDisk(target).list():
        with owner_of(target, **options, as_json=as_json) as log:
            yield log
        return
    _, format = find_log(source)
    with guest_of(source) as guest:
        first = guest.first_index
    with closing(create_log(target, format.name, first_index=first, **options)) as log:
        yield log


@app.callback()
def replicas(context: typer.Context, path: LogPath) -> None:
    """Say who follows a log, and up to where.

    Compaction keeps what a registered replica has not acknowledged.
    """
    context.obj = path


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the replicas of a log and how far behind each is."""
    from holdfast.errors import CorruptError
    from holdfast.reports import list_replicas

    disk, _ = find_log(context.obj)
    with guest_of(context.obj) as guest:
        found, unreadable = list_replicas(disk, guest.last_index)
    for damage in unreadable:
        raise CorruptError(damage.file, damage.offset, damage.why)
    if as_json:
        answer_json([asdict(replica) for replica in found])
    else:
        rows = [(r.name, r.acknowledged, r.lag, human_time(r.updated_ms)) for r in found]
        answer(table(["NAME", "ACKNOWLEDGED", "LAG", "UPDATED"], rows))


@app.command()
def register(
    context: typer.Context,
    name: Name,
    at: Annotated[
        int, typer.Option(min=0, metavar="INDEX", help="It already has all up to this entry.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Register a replica, so that compaction waits for it."""
    _tell_replica(_replicas_of(context).register(name, at), as_json=as_json)


@app.command()
def acknowledge(
    context: typer.Context,
    name: Name,
    index: Annotated[int, typer.Argument(metavar="INDEX", help="The last entry it has.")],
    as_json: JsonOption = False,
) -> None:
    """Say that all entries up to INDEX are durable at a replica."""
    _tell_replica(_replicas_of(context).acknowledge(name, index), as_json=as_json)


@app.command()
def forget(context: typer.Context, name: Name, as_json: JsonOption = False) -> None:
    """Forget a replica: it no longer holds compaction back."""
    _replicas_of(context).forget(name)
    if as_json:
        answer_json({"name": name, "forgotten": True})
    else:
        answer(f"forgot {name}; it no longer holds compaction back")


def _replicas_of(context: typer.Context) -> "Replicas":
    from holdfast.logs.replicas import Replicas

    return Replicas(find_log(context.obj)[0])


def _tell_replica(replica: "Replica", *, as_json: bool) -> None:
    if as_json:
        answer_json(asdict(replica))
    else:
        answer(f"{replica.name} has acknowledged all up to {replica.acknowledged}")
