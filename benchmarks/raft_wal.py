"""The raft-wal log beside raw writes, SQLite, LMDB, RocksDB and LevelDB, as the Shanghai log is."""

from collections.abc import Iterator
from functools import partial

from benchmarks import logs
from benchmarks.harness import Measure
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal, RaftWalGuest

RAFT_WAL = logs.Kind(
    owner=partial(RaftWal, codec=OPAQUE_CODEC),
    guest=RaftWalGuest,
    scan_aims={size: {"SQLite": 6, "LMDB": 2.5} for size in (100, 1024)},
    recovery_aim_ms=60,
    remove_head=RaftWal.truncate_head,
    forget=lambda directory: None,  # every frame of the tail is read in any case
    raw_size=64 * 2**20,  # as its segments are
)


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (
        logs.appends,
        logs.mixed_appends,
        logs.threads,
        logs.scans,
        logs.random_reads,
        logs.recovery,
        logs.compaction,
    ):
        if only in measure.__name__:
            yield from measure(scale, RAFT_WAL)
