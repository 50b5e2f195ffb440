"""The bars simulation: it keeps its promises, repeats itself, and catches planted bugs."""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.mutants import rewrite

from holdfast.bars.query import Query
from holdfast.bars.reader import WatchedLogs
from holdfast.bars.view import Change, Reading
from holdfast.bars.wal import Wal
from holdfast.bars.write_back import WriteBack, Writes
from holdfast.bars.year_files import Files
from holdfast.testing.bars_simulation import BarsSimulation
from holdfast.testing.explorer import BrokenPromiseError

SEEDS = int(os.environ.get("HOLDFAST_BARS_SEEDS", "24"))
BUG_SEEDS = 60


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("holdfast").disabled = True
    yield
    logging.getLogger("holdfast").disabled = False


def test_all_promises_are_kept_and_everything_happened() -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS):
        events.update(BarsSimulation(seed).run().events)
    expected = {
        *("acknowledged", "submitted", "prepared", "deleted", "judged", "recovered"),
        *("killed", "power cut", "poisoned", "read beside", "write-back synced", "torn"),
    }
    assert expected <= events.keys(), expected - events.keys()
    assert {"eio", "enospc", "sync eio", "short write"} & events.keys()


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_is_the_same_run_again(seed: int) -> None:
    assert BarsSimulation(seed).run() == BarsSimulation(seed).run()


@pytest.mark.parametrize(("seed", "brief"), [(700_290, False)])
def test_a_guest_reads_the_catalog_after_the_logs(
    seed: int, brief: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With these seeds a guest missed files of groups that were done meanwhile."""
    BarsSimulation(seed, brief=brief).run()
    rewrite(monkeypatch, WatchedLogs, "_check", "self._catalog.forget()", "pass")
    with pytest.raises(BrokenPromiseError):
        BarsSimulation(seed, brief=brief).run()


def test_a_plan_that_outlives_its_groups_is_not_carried_out_again() -> None:
    """With this seed the log with the groups was removed, and the plan in the next log was not
    recorded as done.  It was carried out over the ticks of a later plan, which were lost.
    """
    BarsSimulation(300_183).run()


@pytest.mark.parametrize("seed", [100_013, 100_246])
def test_a_guest_reads_all_logs_again_if_one_was_cut(seed: int) -> None:
    """With these seeds a guest kept the groups of a write whose sync failed in the owner, or
    went on without those that this write had recorded as done.
    """
    BarsSimulation(seed).run()


def test_a_garbled_info_does_not_move_the_ids_of_groups() -> None:
    """With this seed a torn info, which has no checksum, became the id of the next group."""
    BarsSimulation(501_463).run()


def test_owners_that_come_and_go_are_noticed_by_a_slow_guest() -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS):
        events.update(BarsSimulation(seed, brief=True).run().events)
    assert events["owned briefly"] > 100
    assert events["read beside"] > 100


def test_a_note_that_is_written_in_two_parts_is_noticed() -> None:
    """With this seed the first part of the note was written, which had not changed."""
    BarsSimulation(400_929, brief=True).run()


def is_caught(*, brief: bool = False) -> bool:
    for seed in range(BUG_SEEDS):
        try:
            BarsSimulation(seed, brief=brief).run()
        except BrokenPromiseError:
            return True
    return False


def test_a_guest_that_overlooks_an_owner_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner opens, commits, writes back and closes between the two looks at the logs."""
    rewrite(monkeypatch, WatchedLogs, "look_again", "not names and", "False and")
    assert is_caught(brief=True)


def test_groups_that_are_acknowledged_without_a_sync_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(self: Wal, messages: bytes) -> None:
        self._file.write_at(self.size, messages)  # the sync is left out
        self.size += len(messages)

    monkeypatch.setattr(Wal, "append", late)
    assert is_caught()


def test_groups_that_are_retired_before_the_sync_of_the_index_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carry_out, step = Writes.carry_out, WriteBack._step
    current: list[tuple[WriteBack, Sequence[Change]]] = []

    def remember(self: WriteBack) -> int:
        current[:] = [(self, self._commits.pending.waiting())]
        return step(self)

    def retire_first(self: Writes, files: Files) -> None:
        if not self._backwards:
            writer, changes = current[0]
            writer._commits.pending.retire(changes)
            writer._commits.alone(lambda: writer._commits.logs.record_done(changes))
        carry_out(self, files)

    monkeypatch.setattr(WriteBack, "_step", remember)
    monkeypatch.setattr(Writes, "carry_out", retire_first)
    assert is_caught()


def test_an_overlay_that_is_taken_before_the_files_are_read_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Query.rows

    def early(self: Query, keys: Any, reading: Reading) -> Any:
        overlay = reading()
        return rows(self, keys, lambda: overlay)

    monkeypatch.setattr(Query, "rows", early)
    assert is_caught()
