"""How commands open logs: as a guest to read, as the owner to write."""

import errno
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.console import remark
from holdfast.cli.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from holdfast.disk import OsDisk
    from holdfast.logs.log import Log
    from holdfast.logs.open import Format
    from holdfast.reports import InspectableGuest

SegmentSize = Annotated[
    int | None,
    typer.Option(
        parser=parse_size,
        metavar="SIZE",
        help="Rotate when the active segment is this big: 512KB, 64MB (the default), 1GB. "
        "It is not kept in the log: give it to each command that writes.",
    ),
]
SegmentAge = Annotated[
    int | None,
    typer.Option(
        parser=parse_duration_ms,
        metavar="DURATION",
        help="Rotate when the active segment is this old: 30m, 12h, 7d. "
        "It is not kept in the log either.",
    ),
]


def find_log(path: str) -> "tuple[OsDisk, Format]":
    """The directory and its format, or an error that says what to do."""
    from holdfast.disk import OsDisk
    from holdfast.logs.open import format_of

    disk = OsDisk(path)
    if not Path(disk.path).exists():
        advice = f"no such directory; make a log there with `holdfast log create {path}`"
        raise FileNotFoundError(errno.ENOENT, advice, path)
    return disk, format_of(disk)


@contextmanager
def guest_of(path: str) -> "Iterator[InspectableGuest]":
    """Read a log beside its owner, if it has one."""
    from holdfast.reports import open_guest

    find_log(path)
    with closing(open_guest(path)) as guest:
        yield guest


@contextmanager
def owner_of(
    path: str,
    *,
    segment_size: int | None = None,
    segment_age: int | None = None,
    as_json: bool = False,
) -> "Iterator[Log]":
    """Own a log, with what was staged for it committed; recovery's mending is told on stderr."""
    from holdfast.logs.open import open_log

    find_log(path)
    with closing(open_log(path, **writer_options(segment_size, segment_age))) as log:
        for mended in getattr(log, "mended", ()):
            remark(f"recovered {path}: {mended}", as_json=as_json)
        yield log


def writer_options(segment_size: int | None, segment_age_ms: int | None) -> dict[str, Any]:
    """Only what was asked for, so that a format's own defaults hold."""
    asked: dict[str, Any] = {"segment_size_max": segment_size, "segment_age_max_ms": segment_age_ms}
    return {name: value for name, value in asked.items() if value is not None}
