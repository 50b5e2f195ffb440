"""One owner: every store against forks, moves, removed locks, signals and strange files."""

import inspect

from holdfast.testing import OwnerContract
from holdfast.testing.owners.contract import ForkContract
from holdfast.testing.owners.lives import SCENARIOS


class TestShanghai(OwnerContract):
    kind = "shanghai"


class TestRaftWal(OwnerContract):
    kind = "raft-wal"


class TestFileLog(OwnerContract):
    kind = "file-log"


class TestBars(OwnerContract):
    kind = "bars"


class TestKv(ForkContract):
    kind = "kv"


def test_every_scenario_is_in_the_contract() -> None:
    text = inspect.getsource(inspect.getmodule(OwnerContract) or OwnerContract)
    scenarios = set(SCENARIOS) - {"knock", "hold"}
    assert {name for name in scenarios if f'"{name}"' not in text} == set()
