"""One index file read by a process that knows of no other: the tasks of a scan in many workers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.logs.file_log.directory import LOG, Found, find_file
from holdfast.logs.file_log.guest import FileLogGuest
from holdfast.logs.file_log.part import Full
from holdfast.logs.log import Damage, OnDamage, SegmentInfo

if TYPE_CHECKING:
    import pyarrow as pa


def scan_segment(
    disk: Disk,
    segment: SegmentInfo,
    start: int,
    stop: int,
    *,
    on_damage: OnDamage | None = None,
    verify: bool = True,
) -> "Iterator[pa.RecordBatch]":
    """Entries start..stop-1 of one index file, without a look at any other: a task of many.

    `segment` is as FileLogGuest.segments told it, in this process or another.
    """
    index = rlog.index_of(segment.name[len(LOG) + 1 :])
    if index is None:
        raise ValueError(f"{segment.name} is not the name of an index file")
    found: Found = find_file(disk, segment.name, segment.size)
    if isinstance(found.head, Flaw):
        flaw = found.head
        if on_damage is None:
            raise CorruptError(segment.name, flaw.offset, flaw.why)
        return on_damage(Damage(segment.name, flaw.offset, start, stop - 1, flaw.why))
    count = segment.last_index + 1 - index
    part = Full(disk, found, found.head, count, is_shared=segment.state != "damaged")
    yield from part.scan(start, stop, on_damage, verify=verify)


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one index file from end to end and look at every entry: a task of many."""
    guest = FileLogGuest(disk)  # what an end means, the other files tell
    try:
        return guest.check(segment.name)
    finally:
        guest.close()
