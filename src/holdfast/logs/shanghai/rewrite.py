"""Copy entries into segments of another size, without decoding them.

An entry's bytes do not depend on where it stands, so they are copied as they are, after their
checksums were verified.  One call is one task of many: its segments are complete and durable when
it returns, under names of its own, for one process to adopt in order once all tasks are done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.disk import Disk
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import SegmentInfo
from holdfast.logs.reader import found_before
from holdfast.logs.shanghai.directory import segment_name
from holdfast.logs.shanghai.reader import scan_segment
from holdfast.logs.shanghai.writer import ShanghaiLog
from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Copied:
    """A complete segment, still under the name that its task gave it."""

    name: str
    first_index: int
    last_index: int
    size: int


def copy_segments(
    source: Disk,
    segments: Sequence[SegmentInfo],
    target: Disk,
    stem: str,
    *,
    segment_size_max: int = 64 * 2**20,
    runtime: Runtime | None = None,
) -> list[Copied]:
    """Copy the entries of adjacent segments into new ones of about this size.

    A new segment keeps the time of the oldest that it has entries of.  CorruptError at damage.
    """
    runtime = runtime or Runtime()
    copied: list[Copied] = []
    data, first, created_ms = bytearray(fmt.HEADER_SIZE), 0, 0

    def flush(stop: int) -> None:
        name = f"{stem}-{len(copied)}"
        data[: fmt.HEADER_SIZE] = fmt.encode_header(
            fmt.Header(runtime.new_id(), created_ms, first, stop - 1)
        )
        target.create(name, data)
        copied.append(Copied(name, first, stop - 1, len(data)))

    stop = 0
    for segment in segments:
        for start, bounds, entries in _runs(source, segment):
            at = 0
            while at < len(bounds) - 1:
                if not first:
                    first, created_ms = start + at, segment.created_ms
                room = segment_size_max - len(data)
                fits = int(np.searchsorted(bounds, bounds[at] + room, "left"))
                end = min(max(fits, at + 1), len(bounds) - 1)
                data += entries[bounds[at] : bounds[end]]
                at, stop = end, start + end
                if len(data) >= segment_size_max:
                    flush(stop)
                    data, first = bytearray(fmt.HEADER_SIZE), 0
    if first:
        flush(stop)
    return copied


def adopt_segments(
    disk: Disk,
    copied: Sequence[Copied],
    *,
    first_index: int = 1,
    runtime: Runtime | None = None,
) -> None:
    """Create a log of the segments that tasks have copied, given in order.

    Use a new directory: a crash leaves a part of the log.
    """
    runtime = runtime or Runtime()
    for number, segment in enumerate(copied, 1):
        if number > 1 and segment.first_index != copied[number - 2].last_index + 1:
            raise ValueError(f"{segment.name} does not follow {copied[number - 2].name}")
        disk.rename(segment.name, segment_name(number))
    next_index = copied[-1].last_index + 1 if copied else first_index
    active = fmt.Header(runtime.new_id(), runtime.now_ms(), next_index)
    disk.create(segment_name(len(copied) + 1), fmt.encode_header(active))
    ShanghaiLog(disk, runtime=runtime).close()  # leaves its mark


def _runs(disk: Disk, segment: SegmentInfo) -> Iterator[tuple[int, fmt.Bounds, memoryview]]:
    """(first index, where its entries are, their bytes), verified and in order."""
    with found_before(segment.name):
        file = disk.open(segment.name)
    try:
        for batch in scan_segment(disk, segment, segment.first_index, segment.last_index + 1):
            offsets = batch.column("offset").to_numpy()
            begin, last = int(offsets[0]), int(offsets[-1])
            end = last + fmt.entry_size(file.read_at(last, fmt.ENTRY_HEADER_SIZE))
            entries = memoryview(file.read_at(begin, end - begin))
            yield batch.column("index")[0].as_py(), np.append(offsets, end) - begin, entries
    finally:
        file.close()
