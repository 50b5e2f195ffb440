"""`holdfast log trim` and `truncate`: print what would be removed; with --apply, remove it."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.opening import log_owner, method_of
from holdfast.cli.options import ApplyOption, JsonOption, LogPath, parse_duration_ms, parse_size
from holdfast.cli.output import PLANNED, answer, count_of, human_size, human_span, human_time, table
from holdfast.errors import OutOfRangeError

if TYPE_CHECKING:
    from holdfast.logs.retention import Trim


def trim(
    path: LogPath,
    before: Annotated[
        int | None,
        typer.Option(metavar="INDEX", help="Remove segments with only entries before INDEX."),
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
            help="Remove the oldest segments until the log takes at most SIZE: 500MB, 10GB.",
        ),
    ] = None,
    acknowledged: Annotated[
        bool, typer.Option("--acknowledged", help="Remove what every replica has acknowledged.")
    ] = False,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the removal of the oldest segments; --apply removes them.

    A segment goes if any of the limits names it. The active segment stays, and so does what a
    registered replica has not acknowledged.
    """
    from holdfast.logs.retention import Retention

    if before is older_than is keep_size is None and not acknowledged:
        raise ValueError("pass --before, --older-than, --keep-size or --acknowledged")
    limits = Retention(before, older_than, keep_size, acknowledged)
    with log_owner(path, as_json=as_json) as log:
        why = f"{path}: logs of this format cannot be trimmed"
        done: Trim = method_of(log, "trim" if apply else "plan_trim", why)(limits)
    document = {"path": path, "applied": apply, **asdict(done)}
    answer(_trim_lines(done, applied=apply), document, as_json=as_json)


def _trim_lines(done: "Trim", *, applied: bool) -> Iterator[str]:
    if done.removed:
        rows = [
            (s.name, human_span(s.first_index, s.last_index), human_size(s.size),
             human_time(s.created_ms))
            for s in done.removed
        ]  # fmt: skip
        yield table(["SEGMENT", "ENTRIES", "SIZE", "CREATED"], rows)
    what = f"{count_of(len(done.removed), 'segment')}, {human_size(done.freed)}"
    verb, begins = ("removed", "begins") if applied else ("would remove", "would begin")
    yield f"{verb} {what}; the log {begins} at {done.first_index}; {done.stopped_by}"
    if not applied:
        yield PLANNED


def truncate(
    path: LogPath,
    before: Annotated[
        int | None, typer.Option(metavar="INDEX", help="Remove all entries before INDEX.")
    ] = None,
    after: Annotated[
        int | None, typer.Option(metavar="INDEX", help="Remove all entries after INDEX.")
    ] = None,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the removal of the oldest or the newest entries; --apply removes them.

    Entries that a registered replica needs, or already has, stay. raft-wal logs lose entries at
    either end, FileLogs the newest ones. `trim` removes whole segments from every log.
    """
    from holdfast.doors.logs import log_replicas

    if (before is None) == (after is None):
        raise ValueError("pass either --before or --after")
    with log_owner(path, as_json=as_json) as log:
        first, last = log.first_index, log.last_index
        kept = _kept(first, last, before, after)
        log_replicas(path).refuse_removal((first, last), kept)  # also of a plan
        why = f"{path}: this format cannot remove its"
        if before is not None:
            why = f"{why} oldest entries; `holdfast log trim` removes whole segments"
            remove, index = method_of(log, "truncate_head", why), kept[0]
        else:
            why = f"{why} newest entries; acknowledged entries stay"
            remove, index = method_of(log, "truncate_tail", why), kept[1]
        if apply:
            remove(index)
    removed = (last + 1 - first) - (kept[1] + 1 - kept[0])
    document = {"path": path, "applied": apply, "removed": removed, "first_index": kept[0]}
    document["last_index"] = kept[1]
    what = human_span(*kept) if kept[0] <= kept[1] else "nothing"
    verb, holds = ("removed", "holds") if apply else ("would remove", "would hold")
    lines = [f"{verb} {count_of(removed, 'entry')}; the log {holds} {what}"]
    answer(lines if apply else [*lines, PLANNED], document, as_json=as_json)


def _kept(first: int, last: int, before: int | None, after: int | None) -> tuple[int, int]:
    """Return the first and last index of what stays."""
    if before is not None and before > last + 1:
        raise OutOfRangeError(f"no entry right before {before}: the log ends at {last}")
    if after is not None and after < first - 1:
        raise OutOfRangeError(f"no entry right after {after}: the log begins at {first}")
    return max(first, before or first), last if after is None else min(last, after)
