from random import Random

import pytest

from holdfast.errors import UnavailableError
from holdfast.kv.cas import Record
from holdfast.testing.records_contract import Another, RecordsContract
from holdfast.testing.sim_bucket import Faults
from holdfast.testing.sim_records import SimRecords


class TestSimRecords(RecordsContract):
    @pytest.fixture
    def another(self) -> Another:
        shared = SimRecords()
        return lambda: shared


def test_an_answer_can_be_lost_or_late() -> None:
    records = SimRecords(Random(0), Faults(lost_answer=1.0))
    with pytest.raises(UnavailableError, match="lost answer: insert wal/1"):
        records.insert("wal/1", "a", 0)
    assert records.records == {"wal/1": Record("wal/1", "a")}
    late = SimRecords(Random(0), Faults(late=1.0))
    with pytest.raises(UnavailableError, match="late"):
        late.insert("wal/1", "a", 5)  # refused when it arrives, and nobody hears of it
    assert late.records == {}
    late.line.settle()
    assert late.records == {}
    assert late.fired == {"late": 1, "arrived late": 1}
