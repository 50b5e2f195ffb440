"""The rules that every valid manifest keeps.

`flaw` names the first rule that a message breaks: on decoding that is corruption, on freezing a
draft it is the caller's mistake.  That the SSTs of a run are in order is checked when they are put
there and when they are first searched, not here: most readers of a manifest search few runs.
"""

from collections.abc import Callable, Collection
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from holdfast.formats.manifest.manifest_pb2 import Manifest

Ids = npt.NDArray[np.uint64]

ID_SIZE = 16
BASE_STEP = 1 << 32
# Every epoch costs a manifest, so no store gets here; an invalid one would fence all writers.
EPOCH_MAX = 1 << 48
PARALLEL_WRITES_MAX = 1 << 16


def sst_ids(message: Manifest) -> Ids:
    """Return the ids of all SSTs, in their order."""
    ssts = message.leveled_ssts
    return np.fromiter(map(attrgetter("id"), ssts), np.uint64, len(ssts))


def flaw(message: Manifest, ids: Ids) -> str | None:
    """Return why a manifest is not valid; None if it is."""
    return next(filter(None, (check(message, ids) for check in _CHECKS)), None)


def _scalars(message: Manifest, ids: Ids) -> str | None:
    if max(message.writer_epoch, message.compactor_epoch) > EPOCH_MAX:
        return f"an epoch above {EPOCH_MAX}"
    if not 1 <= message.max_parallel_writes <= PARALLEL_WRITES_MAX:
        return f"{message.max_parallel_writes} parallel writes"
    if not (message.wal_gc_boundary <= message.wal_id_last_compacted <= message.wal_id_last_seen):
        return "WAL ids out of order: gc boundary, last compacted, last seen"
    return None


def _ssts(message: Manifest, ids: Ids) -> str | None:
    if message.next_sst_base % BASE_STEP or not message.next_sst_base:
        return f"next SST base {message.next_sst_base} is not a multiple of 2^32"
    if len(ids) and not 0 < ids.min() <= ids.max() < message.next_sst_base:
        return "an SST id that no job was given"
    ordered = np.sort(ids)
    return "an SST id twice" if (ordered[1:] == ordered[:-1]).any() else None


def _runs(message: Manifest, ids: Ids) -> str | None:
    counts = [run.sst_count for run in message.sorted_runs]
    if not all(counts) or sum(counts) > len(ids):
        return f"runs of {sum(counts)} SSTs, or of none, where there are {len(ids)}"
    return _unique([run.id for run in message.sorted_runs], "run")


def _snapshots(message: Manifest, ids: Ids) -> str | None:
    if not all(snapshot.manifest_id for snapshot in message.snapshots):
        return "a snapshot of manifest 0"
    return _unique_ids([snapshot.id for snapshot in message.snapshots], "snapshot")


def _jobs(message: Manifest, ids: Ids) -> str | None:
    bases = [job.base for job in message.jobs]
    if not all(0 < base < message.next_sst_base and not base % BASE_STEP for base in bases):
        return "a job with a base that was never given"
    return _unique(bases, "base of a job") or _unique_ids([job.id for job in message.jobs], "job")


def _transactions(message: Manifest, ids: Ids) -> str | None:
    names = [transaction.query_id for transaction in message.transactions]
    return _unique(names, "query") if all(names) else "a transaction of no query"


def _unique(items: Collection[object], name: str) -> str | None:
    return None if len(set(items)) == len(items) else f"a {name} twice"


def _unique_ids(ids: Collection[bytes], name: str) -> str | None:
    if any(len(id) != ID_SIZE for id in ids):
        return f"a {name} id that has not {ID_SIZE} bytes"
    return _unique(ids, name)


_CHECKS: list[Callable[[Manifest, Ids], str | None]] = [
    _scalars,
    _ssts,
    _runs,
    _snapshots,
    _jobs,
    _transactions,
]
