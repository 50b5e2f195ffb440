"""Compare the files of a raft-wal directory with its meta store.

    holdfast.mark                 how far the log was once complete (holdfast.logs.raft_wal.marks)
    wal-meta.db                   which segments there are (holdfast.logs.raft_wal.meta_store)
    BASE-ID.wal                   the segments: twenty decimal digits, sixteen hexadecimal ones
    *.cut                         bytes that recovery or repair took out; never read, never deleted

The segments of a log are those that the meta store names.  A file that it does not name is an
orphan if its id was assigned once: a truncation or a crash has left it.  An id that was never
assigned means that the meta store is older than the files.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from holdfast.disk import Disk
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.mark import read_mark
from holdfast.logs.raft_wal.meta_store import META_STORE

SUFFIX = ".wal"
_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.wal", re.ASCII)


@lru_cache(2**15)
def segment_name(base_index: int, id: int) -> str:
    return f"{base_index:020}-{id:016x}{SUFFIX}"


def name_of(meta: SegmentMeta) -> str:
    return segment_name(meta.base_index, meta.id)


def parse_name(name: str) -> tuple[int, int] | None:
    """Return base index and id; None for the name of another file."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2], 16)) if match else None


def segment_sizes(disk: Disk) -> dict[str, int]:
    """Return names and sizes of all files that may be segments, in the order of their indexes."""
    return {name: size for name, size in disk.list().items() if name.endswith(SUFFIX)}


def is_raft_wal(disk: Disk) -> bool:
    """Return whether a directory holds such a log, also if its meta store or all is missing."""
    names = disk.list()
    if META_STORE in names or any(map(parse_name, names)):
        return True
    mark = read_mark(disk)
    return isinstance(mark, Mark) and mark.format == "raft-wal"


def header_of(meta: SegmentMeta) -> fmt.Header:
    return fmt.Header(meta.base_index, meta.id, meta.codec)


def read_header(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read_at(0, fmt.HEADER_SIZE)
    finally:
        file.close()


def orphans(state: State, sizes: dict[str, int]) -> list[str]:
    """Return the files that the meta store named once and does not name now."""
    listed = {segment.id for segment in state.segments}
    return [
        name
        for name in sizes
        if (parsed := parse_name(name))
        and parsed[1] < state.next_segment_id
        and parsed[1] not in listed
    ]


def contradictions(state: State) -> Iterator[Damage]:
    """Yield where the meta store contradicts itself."""
    segments = state.segments
    for one in segments:
        if why := _contradiction(one, state):
            yield _wrong(one, why)
    for one, two in pairwise(segments):
        if one.sealed and one.max_index + 1 != two.base_index:
            yield _wrong(two, f"its base is not {one.max_index + 1}, after the segment before it")
    for id, count in Counter(segment.id for segment in segments).items():
        if count > 1:
            yield Damage(META_STORE, 0, 0, 0, f"{count} segments have id {id}")


def _contradiction(one: SegmentMeta, state: State) -> str | None:
    if not one.sealed and one is not state.segments[-1]:
        return "not sealed, but not the last"
    if one.id >= state.next_segment_id:
        return f"its id is not below the next, {state.next_segment_id}"
    last = one.max_index if one.sealed else one.min_index
    if not 1 <= one.base_index <= one.min_index <= last:
        return f"base {one.base_index}, first {one.min_index}, last {last}"
    if one.min_index != one.base_index and one is not state.segments[0]:
        return f"it begins at {one.min_index}, after its base {one.base_index}"
    return None


def disagreements(disk: Disk, state: State, sizes: dict[str, int]) -> Iterator[Damage]:
    """Yield where the files differ from the meta store.  The active segment is not checked."""
    for meta in state.segments:
        if meta.sealed and (why := sealed_flaw(disk, meta, sizes)):
            yield Damage(name_of(meta), 0, meta.min_index, meta.max_index, why)
    for name in sizes:
        parsed = parse_name(name)
        if parsed is None:
            yield Damage(name, 0, 0, 0, "not the name of a segment; move the file elsewhere")
        elif parsed[1] >= state.next_segment_id and _is_segment(disk, name, parsed):
            yield Damage(META_STORE, 0, 0, 0, f"older than {name}, which it does not know")


def sealed_flaw(disk: Disk, meta: SegmentMeta, sizes: dict[str, int]) -> str | None:
    """Return how the file of a sealed segment differs from what the meta store says of it."""
    name = name_of(meta)
    if name not in sizes:
        return "missing"
    header = fmt.decode_header(read_header(disk, name))
    if isinstance(header, Flaw):
        return header.why
    if header != header_of(meta):
        return f"its header says {header}"
    if not fmt.HEADER_SIZE < meta.index_start < sizes[name]:
        return f"an index at byte {meta.index_start} of {sizes[name]}"
    return None


def _is_segment(disk: Disk, name: str, parsed: tuple[int, int]) -> bool:
    """Return whether a file is a segment, or was just created: not a copy under another name."""
    data = read_header(disk, name)
    header = fmt.decode_header(data)
    return not any(data) or (
        isinstance(header, fmt.Header) and (header.base_index, header.id) == parsed
    )


def _wrong(meta: SegmentMeta, why: str) -> Damage:
    return Damage(META_STORE, 0, 0, 0, f"{name_of(meta)}: {why}")
