"""The Shanghai log as a subject of the explorer and the contract: tiny segments, a still clock."""

from collections.abc import Sequence
from itertools import count
from uuid import UUID

from holdfast.disk import Disk
from holdfast.logs.shanghai import Retention, ShanghaiLog, ShanghaiReader
from holdfast.runtime import Runtime
from holdfast.testing.logs import STEPS, Life, NoTicker, Step


class ShanghaiSubject:
    batch_is_atomic = False
    segment_size_max = 200
    ways_out: Sequence[str] = ("trim",)
    cut_files = "segment_*.wal"

    def open(self, disk: Disk) -> ShanghaiLog:
        ids = count(1)
        return ShanghaiLog(
            disk,
            segment_size_max=self.segment_size_max,
            runtime=Runtime(
                now_ns=lambda: 1_700_000_000 * 10**9,
                new_id=lambda: UUID(int=next(ids)),
                ticker=NoTicker,
            ),
        )

    def open_reader(self, disk: Disk) -> ShanghaiReader:
        return ShanghaiReader(disk)

    def steps(self) -> dict[str, Step]:
        return {**STEPS, "rotate": rotate, "trim": trim}


def rotate(life: Life) -> None:
    assert isinstance(life.log, ShanghaiLog)
    life.log.rotate()


def trim(life: Life) -> None:
    assert isinstance(life.log, ShanghaiLog)
    limits = Retention(before=life.log.last_index + 1)
    life.ledger.first_max = life.log.plan_trim(limits).first_index
    life.log.trim(limits)
    life.ledger.first_min = life.ledger.first_max
