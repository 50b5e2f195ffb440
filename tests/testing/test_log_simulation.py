"""Logs under the scheduler that also drives kv and bars."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.logs.log import Log
from holdfast.logs.opening import FORMATS
from holdfast.logs.shanghai.writer import ShanghaiLog
from holdfast.runtime import Runtime
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.log_simulation import LogSimulation
from holdfast.testing.sim_disk import SimDisk

OPTIONS: dict[str, dict[str, Any]] = {
    "shanghai": {"segment_size_max": 400},
    "raft-wal": {"segment_size_max": 4096, "segment_fill_ms": None},
    "file-log": {"capacity": 64},
}
SEEDS = 12


def opener(name: str) -> Any:
    def open_log(disk: SimDisk, runtime: Runtime) -> Log:
        return FORMATS[name].open_writer(disk, runtime=runtime, **OPTIONS[name])

    return open_log


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_schedule_loses_or_invents_an_entry(name: str) -> None:
    fired: Counter[str] = Counter()
    for seed in range(SEEDS):
        simulation = LogSimulation(seed, opener(name))
        simulation.run()
        assert simulation.ledger.acknowledged
        fired += simulation.fired
    for kind in ("kill", "power cut", "killed in mid-life", "refused", "closed", "scan"):
        assert fired[kind], f"{kind} never happened"


def test_a_seed_replays_the_same_schedule() -> None:
    first, second = (LogSimulation(3, opener("shanghai")) for _ in range(2))
    first.run()
    second.run()
    assert first.digests == second.digests
    assert first.ledger.acknowledged == second.ledger.acknowledged


def caught() -> bool:
    for seed in range(SEEDS):
        try:
            LogSimulation(seed, opener("shanghai")).run()
        except BrokenPromiseError:
            return True
    return False


def test_a_write_without_a_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.file import OsFile

    write = OsFile.write_at

    def unsynced(self: OsFile, offset: int, data: Any, *, sync: bool = False) -> None:
        write(self, offset, data)

    monkeypatch.setattr(OsFile, "write_at", unsynced)
    assert caught()


def test_a_group_in_another_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast import group_commit

    items_of = group_commit._items_of

    def reversed_items(group: Sequence[Any]) -> list[Any]:
        return items_of(list(group))[::-1]

    monkeypatch.setattr(group_commit, "_items_of", reversed_items)
    write = ShanghaiLog._write

    def write_as_submitted(self: ShanghaiLog, batches: Sequence[Any]) -> None:
        write(self, batches)
        if len(batches) > 1:  # acknowledge as if they had been written in order
            lasts = sorted(batch.last for batch in batches)
            for batch, last in zip(reversed(batches), lasts, strict=True):
                batch.last = last

    monkeypatch.setattr(ShanghaiLog, "_write", write_as_submitted)
    assert caught()
