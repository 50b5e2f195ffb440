"""Opening a log without knowing its format: the bytes tell."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from holdfast.disk import Disk, OsDisk, Path
from holdfast.errors import HoldfastError
from holdfast.logs import staging
from holdfast.logs.file_log import FileLog, FileLogGuest
from holdfast.logs.file_log import repair as file_log_repair
from holdfast.logs.file_log import tasks as file_log_tasks
from holdfast.logs.file_log.directory import is_file_log
from holdfast.logs.log import Damage, Guest, Log, SegmentInfo
from holdfast.logs.raft_wal import RaftWal, RaftWalGuest
from holdfast.logs.raft_wal import repair as raft_wal_repair
from holdfast.logs.raft_wal import tasks as raft_wal_tasks
from holdfast.logs.raft_wal.belongings import belongings_of, open_with
from holdfast.logs.raft_wal.directory import is_raft_wal
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.repairing import RepairPlan
from holdfast.logs.shanghai import ShanghaiGuest, ShanghaiLog
from holdfast.logs.shanghai.directory import read_mark, segment_sizes
from holdfast.logs.shanghai.guest import check_segment, scan_segment
from holdfast.logs.shanghai.repair import apply_repair, plan_repair
from holdfast.logs.shanghai.rewrite import Copied, adopt_segments, copy_segments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Format:
    """How the logs of one format are found and opened."""

    name: str
    owns: Callable[[Disk], bool]  # does this directory hold such a log?
    open: Callable[..., Log]  # an empty directory as a new log, which begins at `first_index`
    open_read_only: Callable[[Disk], Guest]
    scan_segment: Callable[..., "Iterator[pa.RecordBatch]"]  # see holdfast.logs.shanghai.guest
    check_segment: Callable[[Disk, SegmentInfo], Damage | None]  # each in a process of its own
    plan_repair: Callable[..., RepairPlan[Any]]
    apply_repair: Callable[..., None]
    # See holdfast.logs.shanghai.rewrite; None where segments cannot be copied as they are.
    copy_segments: Callable[..., list[Copied]] | None = None
    adopt_segments: Callable[..., None] | None = None
    # What a log has besides entries, as JSON, and an owner that has it: see holdfast.logs.origin.
    belongings: Callable[[Any], dict[str, Any]] | None = None
    open_with: Callable[..., Log] | None = None
    locked_file: str | None = None  # by other programs that own such a log


def _is_shanghai(disk: Disk) -> bool:
    """A log whose segments are all gone is one still: its mark says what it has lost."""
    return bool(segment_sizes(disk)) or read_mark(disk) is not None


FORMATS = {
    "shanghai": Format(
        "shanghai",
        _is_shanghai,
        ShanghaiLog,
        ShanghaiGuest,
        scan_segment,
        check_segment,
        plan_repair,
        apply_repair,
        copy_segments,
        adopt_segments,
    ),
    "raft-wal": Format(
        "raft-wal",
        is_raft_wal,
        RaftWal,
        RaftWalGuest,
        raft_wal_tasks.scan_segment,
        raft_wal_tasks.check_segment,
        raft_wal_repair.plan_repair,
        raft_wal_repair.apply_repair,
        belongings=belongings_of,
        open_with=open_with,
        locked_file=META_STORE,
    ),
    "file-log": Format(
        "file-log",
        is_file_log,
        FileLog,
        FileLogGuest,
        file_log_tasks.scan_segment,
        file_log_tasks.check_segment,
        file_log_repair.plan_repair,
        file_log_repair.apply_repair,
    ),
}


def format_of(disk: Disk) -> Format:
    """Which format the files in this directory are of."""
    try:
        found = [format for format in FORMATS.values() if format.owns(disk)]
    except FileNotFoundError:
        raise HoldfastError(f"{disk} does not exist; create a log there first") from None
    if not found:
        raise HoldfastError(f"{disk} holds no log of a known format ({', '.join(FORMATS)})")
    return found[0]


@overload
def open_log(path: Path, *, read_only: Literal[True]) -> Guest: ...
@overload
def open_log(path: Path, *, read_only: Literal[False] = False, **options: Any) -> Log: ...
def open_log(path: Path, *, read_only: bool = False, **options: Any) -> Guest | Log:
    """Open the log in a directory as its owner, or with `read_only` as a guest.

    The format is found by the bytes.  `options` are those of the format's own class.

    >>> holdfast.create_log(directory).close()
    >>> with holdfast.open_log(directory, read_only=True) as log:
    ...     batches = list(log.scan())
    """
    disk = OsDisk(path)
    format = format_of(disk)
    if read_only:
        return format.open_read_only(disk)
    log = format.open(disk, **options)
    try:
        staging.resume(log, disk)
    except BaseException:
        log.close()
        raise
    return log


def create_log(path: Path, format: str = "shanghai", **options: Any) -> Log:
    """Make an empty log in a new or empty directory, durably, and open it as its owner."""
    if format not in FORMATS:
        raise ValueError(f"no log format {format!r}; there are {', '.join(FORMATS)}")
    disk = OsDisk(path)
    try:
        strangers = list(disk.list())
    except FileNotFoundError:
        strangers = []
    if strangers:
        raise FileExistsError(f"{disk} is not empty: it holds {strangers[0]}")
    return FORMATS[format].open(disk, **options)
