"""The Shanghai log: a format that holdfast.logs.format.LogFormat describes.

The page: docs/formats/shanghai.md
"""

from holdfast.disk import Disk
from holdfast.logs.retention import Retention, Trim
from holdfast.logs.shanghai.directory import segment_sizes
from holdfast.logs.shanghai.marks import has_mark
from holdfast.logs.shanghai.reader import ShanghaiReader, check_segment, scan_segment
from holdfast.logs.shanghai.repair import apply_repair, plan_repair
from holdfast.logs.shanghai.rewrite import adopt_segments, copy_segments
from holdfast.logs.shanghai.writer import ShanghaiLog

name = "shanghai"
locked_file = None
takes_empty = False
open_reader = ShanghaiReader
open_writer = ShanghaiLog


def owns(disk: Disk) -> bool:
    """Return whether a directory holds such a log.  Its mark is enough: it says what is lost."""
    return bool(segment_sizes(disk)) or has_mark(disk)


__all__ = [
    "Retention",
    "ShanghaiLog",
    "ShanghaiReader",
    "Trim",
    "adopt_segments",
    "apply_repair",
    "check_segment",
    "copy_segments",
    "locked_file",
    "name",
    "open_reader",
    "open_writer",
    "owns",
    "plan_repair",
    "scan_segment",
    "takes_empty",
]
