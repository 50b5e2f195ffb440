"""`holdfast log create` and `rotate`."""

from typing import Annotated

import typer

from holdfast.cli.opening import given, log_owner, method_of
from holdfast.cli.options import FormatOption, JsonOption, LogPath, SegmentSize
from holdfast.cli.output import answer


def create(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    format: FormatOption = None,
    segment_size: SegmentSize = None,
    first_index: Annotated[
        int, typer.Option(min=1, metavar="INDEX", help="The index of the first entry.")
    ] = 1,
    codec: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="What the payloads of a raft-wal log are: 1 for Raft entries, 65536 or more for "
            "a codec of your own. Default: plain payloads.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an empty log, durably."""
    from holdfast.doors import create_log
    from holdfast.doors.logs import DEFAULT_FORMAT

    format = format or DEFAULT_FORMAT
    first = None if first_index == 1 else first_index
    if codec is not None and format != "raft-wal":
        raise ValueError(f"--codec is for raft-wal logs, not for {format}")
    options = given(segment_size_max=segment_size, first_index=first, codec=codec)
    with create_log(path, format=format, **options) as log:
        document = {"path": path, "format": format, "first_index": log.first_index}
        document["last_index"] = log.last_index
    text = f"created {path}: an empty {format} log whose first entry will be {first_index}"
    answer(text, document, as_json=as_json)


def rotate(path: LogPath, as_json: JsonOption = False) -> None:
    """Seal the active segment and create a new one.

    An empty active segment is not sealed.
    """
    with log_owner(path, as_json=as_json) as log:
        last, why = log.last_index, f"{path}: logs of this format have no segments to rotate"
        active = method_of(log, "rotate", why)()
    text = f"{active} is the active segment; all up to entry {last} is sealed"
    answer(text, {"path": path, "active": active, "last_index": last}, as_json=as_json)
