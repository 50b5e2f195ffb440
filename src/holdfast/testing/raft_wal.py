"""The raft-wal log as a subject of the explorer and the contract: tiny segments, a still clock."""

from collections.abc import Sequence

from holdfast.disk import Disk
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal, RaftWalReader
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.ownership import LOCK
from holdfast.runtime import Runtime
from holdfast.testing.logs import STEPS, Life, NoTicker, Step


class RaftWalSubject:
    batch_is_atomic = True
    segment_size_max = 200
    ways_out: Sequence[str] = ("truncate head", "truncate tail")
    cut_files = "*.wal"
    lock_files = LOCK, META_STORE

    def open(self, disk: Disk) -> RaftWal:
        return RaftWal(
            disk,
            codec=OPAQUE_CODEC,
            segment_size_max=self.segment_size_max,
            runtime=Runtime(now_ns=lambda: 1_700_000_000 * 10**9, ticker=NoTicker),
        )

    def open_reader(self, disk: Disk) -> RaftWalReader:
        return RaftWalReader(disk)

    def steps(self) -> dict[str, Step]:
        return {
            **STEPS,
            "rotate": rotate,
            "truncate head": truncate_head,
            "truncate tail": truncate_tail,
            "truncate all": truncate_all,
        }


def rotate(life: Life) -> None:
    vote(life)
    _wal(life).rotate()


def truncate_head(life: Life) -> None:
    """Remove about half of the entries: whole segments, and a part of one."""
    _truncate_head(life, (life.log.first_index + life.log.last_index + 1) // 2)


def truncate_all(life: Life) -> None:
    _truncate_head(life, life.log.last_index + 1)


def truncate_tail(life: Life) -> None:
    first, last = life.log.first_index, life.log.last_index
    life.cut_tail(max(first - 1, last - 2), _wal(life).truncate_tail)


def vote(life: Life) -> None:
    """Write a vote: the other half of the meta store."""
    wal = _wal(life)
    term = wal.get_uint64(b"CurrentTerm") + 1
    wal.set_uint64(b"CurrentTerm", term)
    assert wal.get_uint64(b"CurrentTerm") == term


def _truncate_head(life: Life, first: int) -> None:
    life.ledger.first_max = max(first, life.ledger.first_max)
    _wal(life).truncate_head(first)
    life.ledger.first_min = life.ledger.first_max


def _wal(life: Life) -> RaftWal:
    assert isinstance(life.log, RaftWal)
    return life.log
