"""Rows in any order, for a bulk load: sorted in memory, one run after the other.

If a key occurs twice, the last row stays: the last in its run, and the newest run.

    write_runs(bucket, job, rows, ...)      runs of SSTs, the oldest first
    arrange(bucket, job, runs, ...)         what to commit: one run if that is cheap, else several
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from holdfast.bucket.bucket import Bucket
from holdfast.formats.sst import Rows
from holdfast.formats.sst.rows import booleans, numbers
from holdfast.kv.bulk import BulkJob, write_sorted
from holdfast.kv.merging import sort_order
from holdfast.kv.plans import source_of
from holdfast.kv.tasks import SstMeta, Task, merge_task
from holdfast.runtime import Runtime

RUN_SIZE = 256 << 20
JOINED_SIZE_MAX = 64 << 20
_CHUNK_ROWS = 1 << 16  # taken from a sorted run at once, so that memory does not hold it twice

Run = tuple[SstMeta, ...]


def write_runs(
    bucket: Bucket,
    job: BulkJob,
    chunks: Iterable[Rows],
    runtime: Runtime,
    *,
    run_size: int = RUN_SIZE,
    unique: bool = False,
) -> list[Run]:
    """Sort about `run_size` bytes at a time and write them; durable, and invisible.

    With `unique`, ValueError for a key that a run has twice.
    """
    return [
        tuple(write_sorted(bucket, job, _sorted_chunks(rows, unique), runtime))
        for rows in _gathered(chunks, run_size)
    ]


def arrange(
    bucket: Bucket,
    job: BulkJob,
    runs: Sequence[Run],
    runtime: Runtime,
    *,
    unique: bool = False,
    joined_size_max: int = JOINED_SIZE_MAX,
) -> list[list[SstMeta]]:
    """Return runs, the newest first: one if no two overlap, or all are small enough to merge.

    With `unique`, ValueError if two runs have a key in common, or too much would have to be read
    to know.
    """
    held = [run for run in runs if run]
    ssts = sorted((sst for run in held for sst in run), key=lambda sst: sst.info.first_key)
    if all(sst.info.last_key < after.info.first_key for sst, after in pairwise(ssts)):
        return [ssts] if ssts else []
    if sum(sst.info.size for sst in ssts) <= joined_size_max:
        return [_joined(bucket, job, held[::-1], runtime, unique)]
    if unique:
        raise ValueError(
            "cannot check for duplicate keys: the key ranges of partitions overlap; use "
            "frame.repartitionByRange('key') before the write"
        )
    return [list(run) for run in held[::-1]]


def _joined(
    bucket: Bucket, job: BulkJob, runs: Sequence[Run], runtime: Runtime, unique: bool
) -> list[SstMeta]:
    """Join several runs, the newest first, into one."""
    sources = tuple(tuple(source_of(sst.id, sst.info) for sst in run) for run in runs)
    merged = merge_task(
        bucket,
        Task(
            job.job,
            number=0,
            count=1,
            sources=sources,
            start=None,
            stop=None,
            drop_tombstones=False,
            sst_size=job.sst_size,
            block_size=job.block_size,
            compression=job.compression,
        ),
        runtime,
    )
    kept = sum(sst.info.row_count for sst in merged.ssts)
    if unique and kept != merged.row_count:
        raise _duplicate(str(merged.row_count - kept))
    return list(merged.ssts)


def _gathered(chunks: Iterable[Rows], size_max: int) -> Iterator[Rows]:
    held: list[Rows] = []
    size = 0
    for rows in chunks:
        if held and size + rows.size > size_max:
            yield Rows.concat(held)
            held, size = [], 0
        held.append(rows)
        size += rows.size
    if size:
        yield Rows.concat(held)


def _sorted_chunks(rows: Rows, unique: bool) -> Iterator[Rows]:
    """Yield rows in key order, the last row of each key."""
    order = sort_order(rows.keys)
    for start in range(0, len(order), _CHUNK_ROWS):
        # One more row shows whether the last key of the chunk occurs again.
        places = order[start : start + _CHUNK_ROWS + 1]
        count = min(_CHUNK_ROWS, len(places))
        keys = rows.keys.take(numbers(places))
        last = np.ones(count, np.bool_)
        again = booleans(pc.equal(keys[1:], keys[:-1]))
        last[: len(again)] = ~again[:count]
        if unique and not last.all():
            raise _duplicate(repr(keys[int(np.flatnonzero(~last)[0])].as_py()[:100]))
        kept = numbers(places[:count][last])
        yield Rows(rows.keys.take(kept), rows.values.take(kept), rows.seqs.take(kept))


def _duplicate(what: str) -> ValueError:
    return ValueError(
        f"duplicate keys: {what}; set duplicates=last to keep the last row of the last partition"
    )
