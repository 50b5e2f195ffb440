"""The SSTs that a task of a compaction or a scan reads, and the keys at which they can be split.

anchors(bucket, ssts, size_max, runtime)    keys, and how many bytes begin there
cuts(anchors, size)                         keys with about so many bytes between them
within(run, start, stop)                    the SSTs of a run that a range of keys needs
fetch_wal(bucket, sources, ...)             small SSTs of the WAL, read at once
table_of(bucket, cache, sst)                any other, to be read in pieces
read_run(bucket, cache, fetched, run, ...)  the rows of a run, from both

The work of a compaction, split into independent tasks.

A task merges the rows of some SSTs with start <= key < stop into new SSTs.  It reads objects that
never change, and writes objects under ids that no other task uses.  So it may run in any process,
again, or twice at the same time; objects that are not committed are garbage.  Tasks and their
results are dataclasses of ints, bytes and texts, which can be pickled.

    cut(job, plan, options, bucket, runtime)     the tasks of a plan
    merge_task(bucket, task)                     what a task wrote: Merged
    SstSink                                      rows in key order to SSTs of about one size
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, LeaseLostError
from holdfast.formats.sst import Info, Kind, Output, Rows, SstWriter, decode_sst
from holdfast.formats.sst.block import Compression
from holdfast.kv.jobs import Job
from holdfast.kv.merging import merge, without_tombstones
from holdfast.kv.names import level_name
from holdfast.kv.plans import CompactionOptions, Plan, SourceSst
from holdfast.kv.tables import Cache, Table
from holdfast.runtime import Runtime

HEADS_SIZE = 256 << 20  # footers, indexes and filters, of all SSTs that a task reads, or are cut
_FETCHES = 8  # requests at the same time


def anchors(
    bucket: Bucket, ssts: Iterable[SourceSst], size_max: int, runtime: Runtime
) -> list[tuple[bytes, int]]:
    """Return first keys and bytes that begin there: of SSTs, or of blocks of larger ones."""
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

    with closing(runtime.workers(_FETCHES)) as workers:
        found = workers.map(blocks, large)
    return [anchor for anchors in (small, *found) for anchor in anchors]


def cuts(anchors: Iterable[tuple[bytes, int]], size: int) -> list[bytes]:
    """Return keys with about `size` bytes between them; see `anchors`."""
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
    """Return the SSTs of a run that may hold keys with start <= key < stop."""
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
    """Return the WAL's rows of a range by name, but for SSTs above `size_max`.

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

    with closing(runtime.workers(_FETCHES)) as workers:
        return dict(zip(names, workers.map(fetch, names), strict=True))


def table_of(bucket: Bucket, cache: Cache, sst: SourceSst) -> Table:
    return Table(bucket, cache, sst.name, sst.size, sst.blocks_stop)


L0_SST_SIZE = 1 << 30  # L0 is not cut by key, but an object has a limit
_READ_SIZE_MAX = 8 << 20  # bytes of a run in one request
_MEMORY = 64 << 20  # for the chunks of all runs together
_WHOLE_SIZE_MAX = 32 << 20  # of an SST of the WAL that is read at once
_OUTPUT_SIZE = 72 << 20  # memory that is not written to costs nothing
_ID_TRIES = 4  # of 2^32 random ids, the same one may come twice, but hardly three times
_SHARE = 8  # an SST that is more than this part of a task may be cut at its blocks


@dataclass(frozen=True, slots=True)
class SstMeta:
    """An SST that was written and waits to be named by a manifest."""

    id: int
    info: Info


@dataclass(frozen=True, slots=True)
class Task:
    """One of `count` tasks of a job; None: unbounded."""

    job: Job
    number: int
    count: int
    sources: tuple[tuple[SourceSst, ...], ...]
    start: bytes | None
    stop: bytes | None
    drop_tombstones: bool
    sst_size: int
    block_size: int
    compression: Compression


@dataclass(frozen=True, slots=True)
class Merged:
    """What a task did: rows it read, and SSTs it wrote, in key order."""

    number: int
    count: int
    row_count: int
    ssts: tuple[SstMeta, ...]


def cut(
    job: Job, plan: Plan, options: CompactionOptions, bucket: Bucket, runtime: Runtime
) -> list[Task]:
    """Return tasks of about `task_size` bytes to read, in key order.  L0 is never cut."""
    bounds: list[bytes] = []
    if not plan.is_wal and plan.size > options.task_size:
        ssts = [sst for run in plan.sources for sst in run]
        found = anchors(bucket, ssts, options.task_size // _SHARE, runtime)
        bounds = cuts(found, options.task_size)
    ranges = list(zip([None, *bounds], [*bounds, None], strict=True))
    return [
        Task(
            job,
            number,
            len(ranges),
            tuple(part for run in plan.sources if (part := within(run, start, stop))),
            start,
            stop,
            plan.drop_tombstones,
            L0_SST_SIZE if plan.is_wal else options.sst_size,
            options.block_size,
            options.compression,
        )
        for number, (start, stop) in enumerate(ranges)
    ]


class StoppedError(Exception):
    """A merge was asked to stop.  Nothing has changed."""


def merge_task(
    bucket: Bucket,
    task: Task,
    runtime: Runtime | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Merged:
    """Merge.  CorruptError if a source is damaged; FileNotFoundError if it is missing.

    LeaseLostError if the bucket knows that the job was ended.  StoppedError soon after `go_on`
    returns False.
    """
    runtime = runtime or Runtime()
    cache = Cache(HEADS_SIZE, runtime)
    fetched = fetch_wal(bucket, task.sources, task.start, task.stop, _WHOLE_SIZE_MAX, runtime)
    bounds, row_count = (task.start or b"", task.stop), 0

    def counted(run: Sequence[SourceSst]) -> Iterator[Rows]:
        nonlocal row_count
        size = min(_READ_SIZE_MAX, _MEMORY // len(task.sources))
        for rows in read_run(bucket, cache, fetched, run, bounds, read_size=size):
            if not go_on():
                raise StoppedError
            row_count += len(rows)
            yield rows

    sink = SstSink(bucket, task.job, runtime, task.sst_size, task.block_size, task.compression)
    for rows in merge([counted(run) for run in task.sources]):
        sink.add(without_tombstones(rows) if task.drop_tombstones else rows)
    ssts = sink.finish()
    return Merged(task.number, task.count, row_count, tuple(ssts))


class SstSink:
    """Takes rows in key order, writes SSTs of the levels; durable when `finish` returns."""

    def __init__(
        self,
        bucket: Bucket,
        job: Job,
        runtime: Runtime,
        sst_size: int,
        block_size: int,
        compression: Compression,
    ) -> None:
        self._bucket, self._job, self._runtime = bucket, job, runtime
        self._sst_size, self._block_size, self._compression = sst_size, block_size, compression
        self._writer: SstWriter | None = None
        # Used for one SST after the other: buckets do not keep the memory that they are given.
        self._out = Output(min(sst_size + sst_size // 8, _OUTPUT_SIZE))
        self._ssts: list[SstMeta] = []

    def add(self, rows: Rows) -> None:
        """Add rows.  ValueError unless all keys rise, over all calls."""
        while len(rows):
            writer = self._writer = self._writer or self._new_writer()
            room = max(self._sst_size - writer.size, 0)
            count = len(rows)
            if rows.size > room:
                count = max(1, count * room // rows.size)
            writer.add(rows.slice(0, count))
            rows = rows.slice(count, len(rows))
            if len(rows) or writer.size >= self._sst_size:
                self._close(writer)

    def finish(self) -> list[SstMeta]:
        """Finish the last SST; return all that were written, in key order."""
        if self._writer is not None:
            self._close(self._writer)
        return self._ssts

    def _close(self, writer: SstWriter) -> None:
        self._writer = None
        data, info = writer.finish()
        for _ in range(_ID_TRIES):
            sst_id = self._job.new_sst_id(self._runtime)
            try:
                self._bucket.put_if_absent(level_name(sst_id), data)
            except FileExistsError:  # one of 2^32 ids, twice
                continue
            if self._ssts and self._ssts[-1].info.last_key >= info.first_key:
                raise ValueError(f"key {info.first_key!r} does not follow the SST before it")
            self._ssts.append(SstMeta(sst_id, info))
            return
        # Not by chance: a bucket that remembers names refuses those of a job that was
        # ended.
        raise LeaseLostError("the ids of this job are refused, as after its end; start it again")

    def _new_writer(self) -> SstWriter:
        return SstWriter(
            writer_epoch=self._job.epoch,
            unique_id=self._runtime.new_id().bytes,
            kind=Kind.LEVEL,
            compression=self._compression,
            block_size=self._block_size,
            out=self._out,
        )


def read_run(
    bucket: Bucket,
    cache: Cache,
    fetched: dict[str, Rows],
    run: Iterable[SourceSst],
    bounds: tuple[bytes, bytes | None],
    *,
    read_size: int,
    chunk_size: int | None = None,
) -> Iterator[Rows]:
    """Yield the rows of a run between these bounds, in chunks; each of `fetched` is taken once."""
    for sst in run:
        if (rows := fetched.pop(sst.name, None)) is None:
            table = table_of(bucket, cache, sst)
            check_identity(sst, table)
            yield from table.scan(*bounds, read_size=read_size, chunk_size=chunk_size)
        elif len(rows):
            yield rows


def check_identity(sst: SourceSst, table: Table) -> None:
    """Raise CorruptError unless the object is the one that the manifest names."""
    if sst.row_count is None:
        return
    found = table.info
    if (found.row_count, found.first_key) != (sst.row_count, sst.first_key):
        raise CorruptError(sst.name, 0, "not the SST that the manifest names")
