"""The work of a compaction, cut into tasks that know nothing of each other.

A task merges the rows of some SSTs with start <= key < stop into new SSTs.  It reads objects that
never change and writes objects that nobody else names, so it may run anywhere, again, or twice at
the same time; what is not committed is garbage.  Tasks and their results are dataclasses of ints,
bytes and texts, to be shipped as they are.

    cut(job, plan, options, bucket, runtime)     the tasks of a plan
    merge_task(bucket, task)                     what a task wrote: Merged
    SstSink                                      rows in key order to SSTs of about one size
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, JobLostError
from holdfast.formats.sst import Info, Kind, Output, Rows, SstWriter
from holdfast.formats.sst.block import Compression
from holdfast.kv.jobs import Job
from holdfast.kv.merging import merge, without_tombstones
from holdfast.kv.names import level_name
from holdfast.kv.plans import CompactionOptions, Plan, SourceSst
from holdfast.kv.sources import HEADS_SIZE, anchors, cuts, fetch_wal, table_of, within
from holdfast.kv.tables import Cache, Table
from holdfast.runtime import Runtime

L0_SST_SIZE = 1 << 30  # L0 is not cut by key, but an object has a limit
_READ_SIZE_MAX = 8 << 20  # bytes of a run in one request
_MEMORY = 64 << 20  # for the chunks of all runs together
_WHOLE_SIZE_MAX = 32 << 20  # of an SST of the WAL that is read at once
_OUTPUT_SIZE = 72 << 20  # memory that is not written to costs nothing
_ID_TRIES = 4  # chance takes the same of 2^32 ids twice, hardly three times in a row
_SHARE = 8  # an SST that is more than this part of a task may be cut at its blocks


@dataclass(frozen=True, slots=True)
class SstMeta:
    """An SST that was written and waits to be named by a manifest."""

    id: int
    info: Info


@dataclass(frozen=True, slots=True)
class Task:
    """One of `count` tasks of a job; None is no bound."""

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
    """Tasks of about `task_size` bytes to read, in key order.  L0 is never cut."""
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


def merge_task(bucket: Bucket, task: Task, runtime: Runtime | None = None) -> Merged:
    """Do it.  CorruptError if a source is damaged; FileNotFoundError if it is gone.

    JobLostError if the bucket knows that the job was ended.
    """
    runtime = runtime or Runtime()
    cache = Cache(HEADS_SIZE, runtime)
    fetched = fetch_wal(bucket, task.sources, task.start, task.stop, _WHOLE_SIZE_MAX, runtime)
    reading = [_Reading(bucket, cache, fetched, run, task) for run in task.sources]
    sink = SstSink(bucket, task.job, runtime, task.sst_size, task.block_size, task.compression)
    for rows in merge([run.rows() for run in reading]):
        sink.add(without_tombstones(rows) if task.drop_tombstones else rows)
    ssts = sink.finish()
    return Merged(task.number, task.count, sum(run.row_count for run in reading), tuple(ssts))


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
        # One SST after the other is written there: no bucket keeps what it is given.
        self._out = Output(min(sst_size + sst_size // 8, _OUTPUT_SIZE))
        self._ssts: list[SstMeta] = []

    def add(self, rows: Rows) -> None:
        """ValueError unless all keys rise, over all calls."""
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
        """All that was written, in key order."""
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
        # Chance does not do that.  A bucket that remembers names refuses those of a job that was
        # ended, for ever.
        raise JobLostError("the job's ids are refused, as after its end; begin it again")

    def _new_writer(self) -> SstWriter:
        return SstWriter(
            writer_epoch=self._job.epoch,
            unique_id=self._runtime.new_id().bytes,
            kind=Kind.LEVEL,
            compression=self._compression,
            block_size=self._block_size,
            out=self._out,
        )


class _Reading:
    """A run as a stream of rows, counted."""

    def __init__(
        self,
        bucket: Bucket,
        cache: Cache,
        fetched: dict[str, Rows],
        run: Sequence[SourceSst],
        task: Task,
    ) -> None:
        self._bucket, self._cache, self._fetched = bucket, cache, fetched
        self._run, self._start, self._stop = run, task.start or b"", task.stop
        self._read_size = min(_READ_SIZE_MAX, _MEMORY // len(task.sources))
        self.row_count = 0

    def rows(self) -> Iterator[Rows]:
        """All rows of the task in this run, in chunks."""
        for sst in self._run:
            for rows in self._chunks(sst):
                self.row_count += len(rows)
                yield rows

    def _chunks(self, sst: SourceSst) -> Iterable[Rows]:
        if sst.name in self._fetched:
            rows = self._fetched.pop(sst.name)
            return [rows] if len(rows) else []
        table = table_of(self._bucket, self._cache, sst)
        _check(sst, table)
        return table.scan(self._start, self._stop, read_size=self._read_size)


def _check(sst: SourceSst, table: Table) -> None:
    """That the object is the one that the manifest means."""
    if sst.row_count is None:
        return
    found = table.info
    if (found.row_count, found.first_key) != (sst.row_count, sst.first_key):
        raise CorruptError(sst.name, 0, "not the SST that the manifest names")
