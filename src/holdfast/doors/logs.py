"""Create, open and read logs by path.

A path is a string, a `Path` or a file:// URL.  Options are keyword-only.  An option that no format
has, or that the format of this log does not have, raises TypeError.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, Literal, TypedDict, Unpack

from holdfast.disk import OsDisk, Path
from holdfast.errors import ExistsError, NotFoundError
from holdfast.logs import opening, repair
from holdfast.logs.conversion import convert_log
from holdfast.logs.format import LogFormat
from holdfast.logs.log import Log, LogReader
from holdfast.logs.opening import FORMATS, format_named, format_of
from holdfast.logs.repairing import RepairPlan
from holdfast.logs.replicas import Replicas
from holdfast.logs.verify import OnProgress
from holdfast.posix import MeteredPosix
from holdfast.runtime import Runtime

__all__ = [
    "DEFAULT_FORMAT",
    "FORMATS",
    "LogOptions",
    "apply_repair",
    "convert_log",
    "create_log",
    "find_format",
    "log_format",
    "log_replicas",
    "open_log",
    "options_of",
    "plan_repair",
    "read_log",
]

DEFAULT_FORMAT = "raft-wal"
_LOOKED_AT_MAX = 100  # subdirectories that are searched for a log, to name it in an error


class LogOptions(TypedDict, total=False):
    """Options of an owner.  Each format has some of them; see the page of the format.

    first_index          of a new log; 1 by default
    segment_size_max     bytes after which a segment is sealed
    segment_age_max_ms   milliseconds after which a segment is sealed (raft-wal, shanghai)
    segment_fill_ms      time in which a segment should fill; its size adapts (raft-wal)
    codec                of a new log: plain payloads by default, 1 for Raft entries (raft-wal)
    capacity             entries per file of a new log, a power of two (file-log)
    sync_mode            see docs/formats/rlog.md (file-log)
    request_ttl_ms       how long request ids are remembered; None: without limit (file-log)
    requests_max         how many request ids are remembered (file-log)
    runtime              clocks, ids and threads; for tests
    """

    first_index: int
    segment_size_max: int
    segment_age_max_ms: int | None
    segment_fill_ms: int | None
    codec: int
    capacity: int
    sync_mode: Literal["ordered", "original"]
    request_ttl_ms: int | None
    requests_max: int | None
    runtime: Runtime | None


def create_log(path: Path, *, format: str = DEFAULT_FORMAT, **options: Unpack[LogOptions]) -> Log:
    """Create an empty log in a new or empty directory, and open it as its owner.

    The log is durable when this returns.  ExistsError if the directory holds anything.  The
    default format is raft-wal with the codec for plain payloads: a batch survives a crash whole or
    not at all.
    """
    kind = format_named(format)
    _check_options(kind, options)
    return opening.create(OsDisk(path), kind, **options)


def open_log(
    path: Path,
    *,
    create: bool = False,
    format: str | None = None,
    **options: Unpack[LogOptions],
) -> Log:
    """Open the log in a directory as its only owner: lock it, recover it, append to it.

    NotFoundError if there is none; with `create`, a missing or empty directory becomes a log of
    `format`, by default raft-wal.  The format of an existing log is found by its files: with
    another `format`, ExistsError.  LockedError if the log has an owner already.
    """
    disk = OsDisk(path)
    try:
        kind = find_format(disk)
    except NotFoundError:
        if not create or _holds_anything(disk):
            raise
        try:
            return create_log(path, format=format or DEFAULT_FORMAT, **options)
        except ExistsError:  # another process was faster, and has closed it
            kind = find_format(disk)
    if format is not None and format_named(format) is not kind:
        raise ExistsError(
            f"{disk.path} holds a {kind.name} log, not {format}; omit `format`, or convert the log"
        )
    _check_options(kind, options)
    return opening.open_writer(disk, **options)


def read_log(path: Path) -> LogReader:
    """Open the log in a directory for reading, beside an owner or without one.

    A reader takes no lock and changes nothing.  It shows what was durable when it was opened or
    last refreshed.  NotFoundError if there is no log.

    >>> holdfast.create_log(directory).close()
    >>> with holdfast.read_log(directory) as log:
    ...     batches = list(log.scan())
    """
    disk = OsDisk(path)
    return find_format(disk).open_reader(disk)


def log_format(path: Path) -> LogFormat:
    """Return the format of the log in a directory.  NotFoundError if there is none."""
    return find_format(OsDisk(path))


def log_replicas(path: Path) -> Replicas:
    """Return the registered replicas of the log in a directory."""
    return Replicas(OsDisk(path))


def plan_repair(
    path: Path,
    *,
    keep: Literal["before", "after"] = "before",
    on_progress: OnProgress = lambda done, total: None,
) -> RepairPlan[Any]:
    """Return how a damaged log can be repaired: keep the entries before the damage or after it.

    If there are none on that side, the others are kept.  `on_progress` gets bytes read and bytes
    to read.
    """
    find_format(OsDisk(path))
    with _metered(path, on_progress) as disk:
        return repair.plan_repair(disk, keep=keep)


def apply_repair(
    path: Path,
    plan: RepairPlan[Any],
    *,
    on_progress: OnProgress = lambda done, total: None,
) -> None:
    """Own the log and carry out the plan.  Nothing is deleted: .cut files keep what is cut out."""
    find_format(OsDisk(path))
    with _metered(path, on_progress) as disk:
        repair.apply_repair(disk, plan)


@contextmanager
def _metered(path: Path, on_progress: OnProgress) -> Iterator[OsDisk]:
    """Yield a disk that reports how much was read of it.  A plan reads a damaged log twice."""
    total, done = 2 * _size_of(OsDisk(path)), 0

    def count(size: int) -> None:
        nonlocal done
        done = min(done + size, total)
        on_progress(done, total)

    yield OsDisk(path, posix=MeteredPosix(count))
    on_progress(total, total)


def _size_of(disk: OsDisk, directory: str = "") -> int:
    below = [f"{directory}/{name}" if directory else name for name in disk.directories(directory)]
    return sum(disk.list(directory).values()) + sum(_size_of(disk, name) for name in below)


def find_format(disk: OsDisk) -> LogFormat:
    """Return the format of the log in a directory.

    NotFoundError if there is none; if a subdirectory holds a log, the error names it.
    """
    try:
        return format_of(disk)
    except NotFoundError as error:
        for name, kind in _logs_below(disk):
            why = f"{disk.path} has no log; {disk.path}/{name} has one ({kind})"
            raise NotFoundError(why) from error
        raise


def _logs_below(disk: OsDisk) -> list[tuple[str, str]]:
    try:
        names = disk.directories()[:_LOOKED_AT_MAX]
    except FileNotFoundError:
        return []
    below = [(name, OsDisk(f"{disk.path}/{name}")) for name in names]
    return [
        (name, kind.name) for name, inner in below for kind in FORMATS.values() if kind.owns(inner)
    ]


def _holds_anything(disk: OsDisk) -> bool:
    try:
        return bool(disk.list() or disk.directories())
    except FileNotFoundError:
        return False


def options_of(kind: LogFormat) -> list[str]:
    """Return the names of the options that the owner of a log of this format has."""
    return [
        name
        for name, parameter in signature(kind.open_writer).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    ]


def _check_options(kind: LogFormat, options: Any) -> None:
    known = options_of(kind)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{kind.name} logs have no option {name!r}; options: {', '.join(known)}"
            )
