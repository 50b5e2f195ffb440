"""A Shanghai log open for reading, and one segment of it read by a task of many."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.disk import Disk
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import Damage, OnDamage, SegmentInfo
from holdfast.logs.reader import Reader, found_before
from holdfast.logs.shanghai.directory import segment_sizes
from holdfast.logs.shanghai.recovery import State, survey
from holdfast.logs.shanghai.view import Active, Sealed, read_entries
from holdfast.logs.view import View

if TYPE_CHECKING:
    import pyarrow as pa


class ShanghaiSource:
    """How a Shanghai directory is looked at.  See holdfast.logs.reader.Source."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def look(self) -> State:
        return survey(self.disk)

    def show(self, found: State) -> View[Sealed | Active]:
        segments: list[Sealed | Active] = []
        for place in found.places:
            if place is None or not place.is_readable:
                continue
            name, size = place.found.name, place.found.size
            if place is found.tail:
                file = self.disk.open(name)
                segments.append(Active(file, name, place.header, found.bounds))
            else:
                segments.append(Sealed(self.disk, name, size, place.header, place.stop))
        return View(tuple(segments), tuple(found.damage))

    def follow(self, view: View[Sealed | Active]) -> bool:
        if not view.segments or not isinstance(tail := view.segments[-1], Active):
            return False
        sizes = segment_sizes(self.disk)
        last = next(reversed(sizes), None)
        if last != tail.name or sizes[last] < tail.size:
            return False
        if not all(segment.name in sizes for segment in view.segments):
            return False
        bounds, _ = read_entries(tail.file, tail.size, sizes[last])
        if len(bounds) > 1:
            tail.file.sync()
            tail.bounds.extend(bounds[1:])
        return True

    def is_current(self, segment: Sealed | Active) -> bool:
        return segment.name in self.disk.list()

    def close(self) -> None:
        """Nothing is open besides the segments."""


class ShanghaiReader(Reader[Sealed | Active, State]):
    """A Shanghai log open for reading, beside a live owner or without one."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(ShanghaiSource(disk))


def scan_segment(
    disk: Disk,
    segment: SegmentInfo,
    start: int,
    stop: int,
    *,
    on_damage: OnDamage | None = None,
    verify: bool = True,
) -> "Iterator[pa.RecordBatch]":
    """Scan entries start..stop-1 of one segment without a look at any other: a task of many.

    `segment` is one of Reader.segments(), of this process or another.
    """
    sealed = _sealed(disk, segment)
    if segment.state != "sealed":
        with found_before(segment.name):
            file = disk.open(segment.name)
        bounds, _ = read_entries(file, fmt.HEADER_SIZE, segment.size)
        active = Active(file, segment.name, sealed.header, bounds)
        # A damaged segment may be the last one, cut by its reader where the damage begins.
        if segment.state == "active" or active.stop_index == sealed.stop_index:
            yield from active.scan(start, stop, on_damage, verify=verify)
            return
    with found_before(segment.name):
        yield from sealed.scan(start, stop, on_damage, verify=verify)


def check_segment(disk: Disk, segment: SegmentInfo) -> Damage | None:
    """Read one segment from end to end and verify every checksum: a task of many."""
    if segment.state == "sealed":
        return _sealed(disk, segment).check()
    with ShanghaiReader(disk) as reader:  # what its end means, other segments and the mark say
        return reader.check(segment.name)


def _sealed(disk: Disk, segment: SegmentInfo) -> Sealed:
    header = fmt.Header(UUID(segment.id), segment.created_ms, segment.first_index)
    return Sealed(disk, segment.name, segment.size, header, segment.last_index + 1)
