"""The SSTs that a task reads, of a compaction or a scan, and the keys at which they can be cut.

anchors(bucket, ssts, size_max, runtime)    keys, and how many bytes begin there
cuts(anchors, size)                         keys with about so many bytes between them
within(run, start, stop)                    the SSTs of a run that a range of keys needs
fetch_wal(bucket, sources, ...)             small SSTs of the WAL, read at once
table_of(bucket, cache, sst)                any other, to be read in pieces
"""

from collections.abc import Iterable, Sequence

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError
from holdfast.formats.sst import Kind, Rows, decode_sst
from holdfast.kv.plans import SourceSst
from holdfast.kv.tables import Cache, Table
from holdfast.runtime import Runtime

HEADS_SIZE = 256 << 20  # footers, indexes and filters, of all SSTs that a task reads, or are cut
_FETCHES = 8  # requests at the same time


def anchors(
    bucket: Bucket, ssts: Iterable[SourceSst], size_max: int, runtime: Runtime
) -> list[tuple[bytes, int]]:
    """First keys, and how many bytes begin there: of SSTs, or of the blocks of larger ones."""
    small: list[tuple[bytes, int]] = []
    large: list[SourceSst] = []
    for sst in ssts:
        if sst.size > size_max:
            large.append(sst)
        else:
            small.append((sst.first_key, sst.size))
    cache = Cache(HEADS_SIZE, runtime)

    def blocks(sst: SourceSst) -> list[tuple[bytes, int]]:
        index = table_of(bucket, cache, sst).index
        sizes = (stop - start for start, stop in map(index.span, range(len(index))))
        return list(zip(index.first_keys, sizes, strict=True))

    workers = runtime.workers(_FETCHES)
    try:
        found = workers.map(blocks, large)
    finally:
        workers.close()
    return [anchor for anchors in (small, *found) for anchor in anchors]


def cuts(anchors: Iterable[tuple[bytes, int]], size: int) -> list[bytes]:
    """Keys with about `size` bytes between them; `anchors` are keys, and what begins there."""
    found: list[bytes] = []
    held = 0
    for key, weight in sorted(anchors):
        if held and held + weight > size and (not found or key > found[-1]):
            found.append(key)
            held = 0
        held += weight
    return found


def within(
    run: Sequence[SourceSst], start: bytes | None, stop: bytes | None
) -> tuple[SourceSst, ...]:
    """The SSTs of a run that may hold keys with start <= key < stop."""
    nexts = [sst.first_key for sst in run[1:]]
    return tuple(
        sst
        for sst, behind in zip(run, [*nexts, None], strict=True)
        if (stop is None or sst.first_key < stop)
        and (start is None or behind is None or behind > start)
    )


def fetch_wal(
    bucket: Bucket,
    sources: Iterable[Iterable[SourceSst]],
    start: bytes | None,
    stop: bytes | None,
    size_max: int,
    runtime: Runtime,
) -> dict[str, Rows]:
    """The rows of a range in what there is of the WAL, but for SSTs above `size_max`, by name.

    They are small, and each may hold any key, so a merge needs all of them from the beginning.
    """
    names = [
        sst.name for run in sources for sst in run if sst.row_count is None and sst.size <= size_max
    ]

    def fetch(name: str) -> Rows:
        info, rows = decode_sst(bucket.get(name), where=name)
        if info.kind is not Kind.WAL:
            raise CorruptError(name, 0, "an SST of the levels in the WAL")
        return rows.range(start, stop)

    workers = runtime.workers(_FETCHES)
    try:
        return dict(zip(names, workers.map(fetch, names), strict=True))
    finally:
        workers.close()


def table_of(bucket: Bucket, cache: Cache, sst: SourceSst) -> Table:
    return Table(bucket, cache, sst.name, sst.size, sst.blocks_stop)
