"""One segment read by a process that knows of no other: the tasks of a scan in many workers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.logs.log import Damage, OnDamage, SegmentInfo
from holdfast.logs.raft_wal.copies import scan_file
from holdfast.logs.raft_wal.directory import parse_name
from holdfast.logs.raft_wal.guest import RaftWalGuest
from holdfast.logs.raft_wal.segment import Tail

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
    """Entries start..stop-1 of one segment, without a look at any other: a task of many.

    `segment` is as RaftWalGuest.segments told it, in this process or another.
    """
    parsed = parse_name(segment.name)
    if parsed is None:
        raise ValueError(f"{segment.name} is not the name of a segment")
    meta = SegmentMeta(parsed[1], parsed[0], segment.first_index, segment.last_index)
    file = disk.open(segment.name)
    try:
        found, _ = scan_file(file, file.size(), verify=False)
        stop_index = meta.base_index + len(found.starts)
        tail = Tail(file, meta, found if len(found.starts) else fmt.NOTHING)
        end = max(start, min(stop, stop_index))
        yield from tail.scan(start, end, on_damage, verify=verify)
        if end < stop:
            why = f"entries {end} to {stop - 1} were not found"
            if on_damage is None:
                raise CorruptError(segment.name, found.stop, why)
            on_damage(Damage(segment.name, found.stop, end, stop - 1, why))
    finally:
        file.close()


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one segment from end to end and verify every checksum: a task of many."""
    guest = RaftWalGuest(disk)  # where its index is, and what its end means, the meta store tells
    try:
        return guest.check(segment.name)
    finally:
        guest.close()
