"""`holdfast log create`, `rotate` and `compact`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json, table
from holdfast.cli.opening import SegmentSize, owner_of, writer_options
from holdfast.cli.units import (
    count_of,
    human_size,
    human_span,
    human_time,
    parse_duration_ms,
    parse_size,
)
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from holdfast.logs.retention import Compaction, Retention


@runtime_checkable
class Rotatable(Protocol):
    """A log whose active segment can be sealed by hand."""

    def rotate(self) -> str: ...


@runtime_checkable
class Compactable(Protocol):
    """A log that can let go of its oldest segments."""

    def compact(self, limits: "Retention", *, dry_run: bool = False) -> "Compaction": ...


def create(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    format: Annotated[str, typer.Option(help="The format that the log is kept in.")] = "shanghai",
    segment_size: SegmentSize = None,
    first_index: Annotated[int, typer.Option(help="The index of the first entry.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Make an empty log, durably."""
    from contextlib import closing

    from holdfast.logs.open import create_log

    options = writer_options(segment_size, None)
    if first_index != 1:
        options["first_index"] = first_index
    with closing(create_log(path, format, **options)) as log:
        first, last = log.first_index, log.last_index
    if as_json:
        answer_json({"path": path, "format": format, "first_index": first, "last_index": last})
    else:
        answer(f"created {path}: an empty {format} log whose first entry will be {first}")


def rotate(path: LogPath, as_json: JsonOption = False) -> None:
    """Seal the active segment and begin a new one.

    An empty active segment stays as it is.
    """
    with owner_of(path, as_json=as_json) as log:
        if not isinstance(log, Rotatable):
            raise UnsupportedError(f"{path}: logs of this format have no segments to rotate")
        before = log.last_index
        active = log.rotate()
    if as_json:
        answer_json({"path": path, "active": active, "last_index": before})
    else:
        answer(f"{active} is the active segment; all up to entry {before} is sealed")


def compact(
    path: LogPath,
    before: Annotated[
        int | None,
        typer.Option(metavar="INDEX", help="Remove segments with only entries before this index."),
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            parser=parse_duration_ms,
            metavar="DURATION",
            help="Remove segments whose newest entry is older: 12h, 7d, 2w.",
        ),
    ] = None,
    keep_size: Annotated[
        int | None,
        typer.Option(
            parser=parse_size,
            metavar="SIZE",
            help="Remove the oldest segments until all take no more than this: 500MB, 10GB.",
        ),
    ] = None,
    acknowledged: Annotated[
        bool, typer.Option("--acknowledged", help="Remove what every replica has acknowledged.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the oldest segments.

    Those that any of the limits names; never the active segment, and never what a registered
    replica has not acknowledged.
    """
    from holdfast.logs.retention import Retention

    if before is older_than is keep_size is None and not acknowledged:
        raise ValueError("say what may go: --before, --older-than, --keep-size or --acknowledged")
    limits = Retention(before, older_than, keep_size, acknowledged)
    with owner_of(path, as_json=as_json) as log:
        if not isinstance(log, Compactable):
            raise UnsupportedError(f"{path}: logs of this format cannot be compacted")
        done = log.compact(limits, dry_run=dry_run)
    if as_json:
        answer_json({"path": path, "dry_run": dry_run, **asdict(done)})
    else:
        answer(_told(done, dry_run=dry_run))


def _told(done: "Compaction", *, dry_run: bool) -> str:
    lines = []
    if done.removed:
        rows = [
            (s.name, human_span(s.first_index, s.last_index), human_size(s.size),
             human_time(s.created_ms))
            for s in done.removed
        ]  # fmt: skip
        lines.append(table(["SEGMENT", "ENTRIES", "SIZE", "CREATED"], rows))
    verb = "would remove" if dry_run else "removed"
    what = f"{verb} {count_of(len(done.removed), 'segment')}, {human_size(done.freed)}"
    lines.append(f"{what}; the log begins at {done.first_index}; {done.stopped_by}")
    return "\n".join(lines)
