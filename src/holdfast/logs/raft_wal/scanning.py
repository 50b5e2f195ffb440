"""Find the batches in the file of a segment, a window at a time."""

from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.disk import File
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw

_WINDOW_SIZE_MIN = 256 * 1024
_WINDOW_SIZE_MAX = 8 * 2**20
_ZEROS = bytes(_WINDOW_SIZE_MIN)


def scan_file(file: File, size: int, *, verify: bool = True) -> tuple[fmt.Scan, list[int]]:
    """Find all batches in the first `size` bytes of a file; return them, and which are bad.

    The file is read a window at a time, up to unwritten space: memory holds a window, or the
    largest batch.  Without `verify`, checksums are not compared.
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
            step *= 4  # the window may have cut a batch
            continue
        one = _check_index(one, found, data, at)
        if verify:
            slices = fmt.bad_slices(data, one.begins - at, one.commits - at)
            bad += [count + number for number in slices]
        found.append(one)
        count += len(one.commits)
        is_unwritten = one.flaw is None and one.stop < at + len(data)
        if is_rest or is_unwritten or not len(one.commits):
            return _joined(found), bad
        at, step = one.stop, min(4 * step, _WINDOW_SIZE_MAX)


def _check_index(one: fmt.Scan, found: list[fmt.Scan], data: memoryview, at: int) -> fmt.Scan:
    """Check an index, which names all entries, where a window shows only some of them.

    Only the last batch of a segment has an index.
    """
    if not found:
        return one
    if found[-1].index_start and (one.flaw is not None or len(one.commits)):
        return replace(fmt.NOTHING, stop=at, flaw=Flaw(at, "frames after the index"))
    if one.index_start:
        starts = np.concatenate([*(each.starts for each in found), one.starts])
        begin = one.index_start - at
        length = fmt.frame_length(data, begin - fmt.FRAME_HEADER_SIZE)
        named = np.frombuffer(data, "<u4", length // 4, begin)
        if not np.array_equal(named, starts):
            why = "an index that does not name the entries before it"
            one = first_batches(one, len(one.commits) - 1)
            return replace(one, flaw=Flaw(one.stop, why))
    return one


def first_batches(found: fmt.Scan, k: int) -> fmt.Scan:
    """Return only the first k batches: not the last one, which may have the index."""
    count = int(found.counts[k - 1]) if k else 0
    return replace(
        found,
        starts=found.starts[:count],
        lengths=found.lengths[:count],
        begins=found.begins[:k],
        commits=found.commits[:k],
        counts=found.counts[:k],
        index_start=0,
        stop=int(found.begins[k]),
        flaw=None,
    )


def _joined(found: list[fmt.Scan]) -> fmt.Scan:
    if len(found) == 1:
        return found[0]
    before = np.cumsum([0, *(len(one.starts) for one in found[:-1])])
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in found])
        for name in ("starts", "lengths", "begins", "commits")
    }
    return replace(
        found[-1],
        **joined,
        counts=np.concatenate([one.counts + n for one, n in zip(found, before, strict=True)]),
        index_start=max(one.index_start for one in found),
    )


def used_bytes(file: File, start: int, size: int) -> bytes:
    """Copy bytes start..size-1 of a file, without the zeros at their end.

    Of unwritten space only what the file system calls data is read.
    """
    for begin, end in reversed(file.extents(start, size)):
        while begin < end:
            low = max(begin, end - len(_ZEROS))
            data = file.read_at(low, end - low)
            if data != _ZEROS[: len(data)]:  # many times as fast as to strip them
                return file.read_at(start, low - start) + data.rstrip(b"\0")
            end = low
    return b""
