"""What a log format is: a package with these functions.  See holdfast.logs.shanghai for one."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.disk import Disk
from holdfast.logs.log import Damage, Log, LogReader, SegmentInfo
from holdfast.logs.repairing import RepairPlan

if TYPE_CHECKING:
    import pyarrow as pa


class LogFormat(Protocol):
    """How the logs of one format are found, opened, scanned in parallel and repaired."""

    @property
    def name(self) -> str: ...

    @property
    def locked_file(self) -> str | None:
        """The file that other programs lock while they own such a log."""
        ...

    @property
    def takes_empty(self) -> bool:
        """Whether a payload may be empty."""
        ...

    def owns(self, disk: Disk) -> bool:
        """Return whether this directory holds such a log."""
        ...

    @property
    def open_writer(self) -> Callable[..., Log]:
        """Own a log, with the format's options as keywords.  An empty directory becomes a log.

        The second argument, if any, is called to lock the directory, in place of `disk.lock`.
        """
        ...

    @property
    def open_reader(self) -> Callable[[Disk], LogReader]:
        """Open a log for reading."""
        ...

    @property
    def scan_segment(self) -> "Callable[..., Iterator[pa.RecordBatch]]":
        """Scan a range of one segment, in any process.  See holdfast.logs.shanghai.reader."""
        ...

    def check_segment(self, disk: Disk, segment: SegmentInfo) -> Damage | None:
        """Verify every checksum of one segment, in any process."""
        ...

    @property
    def plan_repair(self) -> Callable[..., RepairPlan[Any]]: ...

    @property
    def apply_repair(self) -> Callable[..., None]: ...


@runtime_checkable
class CopiesSegments(Protocol):
    """A format whose segments can be copied.  See holdfast.logs.shanghai.rewrite."""

    @property
    def copy_segments(self) -> Callable[..., list[Any]]: ...

    @property
    def adopt_segments(self) -> Callable[..., None]: ...


@runtime_checkable
class HasBelongings(Protocol):
    """A format whose logs have more than entries.  See holdfast.logs.origin."""

    @property
    def belongings(self) -> Callable[[Any], dict[str, Any]]:
        """Return what a log has besides entries, as JSON."""
        ...

    @property
    def open_with(self) -> Callable[..., Log]:
        """Own a log that has these belongings."""
        ...
