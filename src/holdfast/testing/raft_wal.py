"""The raft-wal log as a subject of the explorer and the contract: tiny segments, a still clock."""

from holdfast.disk import Disk
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal, RaftWalGuest
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.ownership import LOCK
from holdfast.testing.logs import STEPS, Life, Step


class RaftWalSubject:
    batch_is_atomic = True
    segment_size_max = 200
    lock_files = LOCK, META_STORE

    def open(self, disk: Disk) -> RaftWal:
        return RaftWal(
            disk,
            codec=OPAQUE_CODEC,
            segment_size_max=self.segment_size_max,
            now_ms=lambda: 1_700_000_000_000,
        )

    def open_read_only(self, disk: Disk) -> RaftWalGuest:
        return RaftWalGuest(disk)

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
    """About half of what is there: whole segments, and into one."""
    _truncate_head(life, (life.log.first_index + life.log.last_index + 1) // 2)


def truncate_all(life: Life) -> None:
    _truncate_head(life, life.log.last_index + 1)


def truncate_tail(life: Life) -> None:
    first, last = life.log.first_index, life.log.last_index
    life.cut_tail(max(first - 1, last - 2), _wal(life).truncate_tail)


def vote(life: Life) -> None:
    """The other half of the meta store."""
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
