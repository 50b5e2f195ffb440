"""The Shanghai log as a subject of the explorer and the contract: tiny segments, a still clock."""

from itertools import count
from uuid import UUID

from holdfast.disk import Disk
from holdfast.logs.shanghai import Retention, ShanghaiGuest, ShanghaiLog
from holdfast.testing.logs import STEPS, Life, Step


class ShanghaiSubject:
    batch_is_atomic = False
    segment_size_max = 200

    def open(self, disk: Disk) -> ShanghaiLog:
        ids = count(1)
        return ShanghaiLog(
            disk,
            segment_size_max=self.segment_size_max,
            now_ms=lambda: 1_700_000_000_000,
            new_id=lambda: UUID(int=next(ids)),
        )

    def open_read_only(self, disk: Disk) -> ShanghaiGuest:
        return ShanghaiGuest(disk)

    def steps(self) -> dict[str, Step]:
        return {**STEPS, "rotate": rotate, "compact": compact}


def rotate(life: Life) -> None:
    assert isinstance(life.log, ShanghaiLog)
    life.log.rotate()


def compact(life: Life) -> None:
    assert isinstance(life.log, ShanghaiLog)
    limits = Retention(before=life.log.last_index + 1)
    life.ledger.first_max = life.log.compact(limits, dry_run=True).first_index
    life.log.compact(limits)
    life.ledger.first_min = life.ledger.first_max
