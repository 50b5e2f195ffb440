"""Read a segment that another process may be writing to: as copies, never through a memory map.

The owner of a log writes to its tail while guests look at it.  What is judged on mapped memory may
change in the middle of the judgement.  So everything here is read with system calls, and judged on
the bytes that these have returned.
"""

from dataclasses import replace

import numpy as np

from holdfast.disk import File
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw

_WINDOW_SIZE_MIN = 256 * 1024
_WINDOW_SIZE_MAX = 8 * 2**20
_ZEROS = bytes(_WINDOW_SIZE_MIN)


def scan_file(file: File, size: int, *, verify: bool = True) -> tuple[fmt.Scan, list[int]]:
    """Find all batches in the first `size` bytes of a file; return them, and which are unsound.

    The file is read a window at a time, up to unwritten space: memory holds a window, or the
    largest batch.  Without `verify`, checksums are not looked at.
    """
    found: list[fmt.Scan] = []
    bad: list[int] = []
    at, count, step = 0, 0, _WINDOW_SIZE_MIN
    while True:
        wanted = min(step, size - at)
        data = memoryview(file.read_at(at, wanted))
        one = fmt.scan(data, at, verify=False)
        is_rest = at + len(data) >= size or len(data) < wanted
        if one.flaw is not None and not len(one.commits) and not is_rest:
            step *= 4  # perhaps the window has cut a batch
            continue
        one = _judge_index(one, found, data, at)
        if verify:
            slices = fmt.bad_slices(data, one.begins - at, one.commits - at)
            bad += [count + number for number in slices]
        found.append(one)
        count += len(one.commits)
        is_unwritten = one.flaw is None and one.stop < at + len(data)
        if is_rest or is_unwritten or not len(one.commits):
            return _joined(found), bad
        at, step = one.stop, min(4 * step, _WINDOW_SIZE_MAX)


def used_bytes(file: File, start: int, size: int) -> bytes:
    """Copy bytes start..size-1 of a file, without the zeros at their end.

    Of unwritten space only as much is read as the file system takes for data.
    """
    for begin, end in reversed(file.extents(start, size)):
        while begin < end:
            low = max(begin, end - len(_ZEROS))
            data = file.read_at(low, end - low)
            if data != _ZEROS[: len(data)]:  # many times as fast as to strip them
                return file.read_at(start, low - start) + data.rstrip(b"\0")
            end = low
    return b""


def _judge_index(one: fmt.Scan, found: list[fmt.Scan], data: memoryview, at: int) -> fmt.Scan:
    """A window shows only a part of the entries that an index must name, and not what came before.

    Only the last batch of a segment has an index, and it names all entries.
    """
    if not found:
        return one
    if found[-1].index_start and (one.flaw is not None or len(one.commits)):
        return replace(fmt.NOTHING, stop=at, flaw=Flaw(at, "frames behind the index"))
    if one.index_start:
        starts = np.concatenate([*(each.starts for each in found), one.starts])
        begin = one.index_start - at
        length = fmt.frame_length(data, begin - fmt.FRAME_HEADER_SIZE)
        named = np.frombuffer(data, "<u4", length // 4, begin)
        if not np.array_equal(named, starts):
            why = "an index that does not name the entries before it"
            one = cut(one, len(one.commits) - 1)
            return replace(one, flaw=Flaw(one.stop, why))
    return one


def cut(found: fmt.Scan, k: int) -> fmt.Scan:
    """Only the first k batches."""
    count, begin = int(found.counts[k - 1]) if k else 0, int(found.begins[k])
    return fmt.Scan(
        found.starts[:count],
        found.lengths[:count],
        found.begins[:k],
        found.commits[:k],
        found.counts[:k],
        0,  # an index is in the last batch, and that is cut off
        begin,
        None,
    )


def _joined(found: list[fmt.Scan]) -> fmt.Scan:
    if len(found) == 1:
        return found[0]
    counts, before = [], 0
    for one in found:
        counts.append(one.counts + before)
        before += len(one.starts)
    return fmt.Scan(
        np.concatenate([one.starts for one in found]),
        np.concatenate([one.lengths for one in found]),
        np.concatenate([one.begins for one in found]),
        np.concatenate([one.commits for one in found]),
        np.concatenate(counts),
        max(one.index_start for one in found),
        found[-1].stop,
        found[-1].flaw,
    )
