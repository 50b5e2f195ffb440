"""Staged rows are committed whole, once, whatever crashes and whenever."""

import re
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from tests.mutants import rewrite

from holdfast.bars import BarStore, staging
from holdfast.bars.staging import Staged, Transaction
from holdfast.bars.view import Change
from holdfast.errors import CorruptError
from holdfast.staged import StagingArea
from holdfast.testing import Fault, PowerLost, SimDisk
from holdfast.testing.bars import SIM_RUNTIME, open_store

START_NS = 1_609_545_600 * 10**9  # 2 January 2021
DAY_NS = 86_400 * 10**9


def batch(symbol: str, *prices: int) -> pa.RecordBatch:
    times = [START_NS + n * DAY_NS for n in range(len(prices))]
    return pa.record_batch({"symbol": [symbol] * len(prices), "time": times, "Price": prices})


def stage_all(disk: SimDisk, transaction: Transaction | None = None) -> list[Staged]:
    """What three tasks bring: two symbols, a new one among them, in four groups."""
    rows = [[batch("A", 1, 2), batch("B", 3)], [], [batch("B", 4, 5), batch("A", 6)]]
    job = staging.new_job(transaction)
    return [
        staging.stage(disk, job, number, batches, "1D", "TICK", is_variable=True)
        for number, batches in reversed(list(enumerate(rows)))
    ]


def prices(store: BarStore) -> dict[str, list[int]]:
    names = store.symbols()
    return {name: store.query(name, "1D", "TICK")["Price"].to_pylist() for name in names}


BEFORE = {"A": [0]}
AFTER = {"A": [0, 1, 6, 2], "B": [3, 4, 5]}


def disk_with_one() -> SimDisk:
    disk = SimDisk()
    with open_store(disk) as store:
        store.write(batch("A", 0), "1D", "TICK", is_variable=True)
    return disk


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "GROUP_SIZE_MAX", 1)


def test_rows_of_many_tasks_appear_at_once_and_once() -> None:
    disk, transaction = disk_with_one(), Transaction("load", 7)
    with open_store(disk) as store:
        assert staging.commit(store, disk, stage_all(disk, transaction), transaction)
        assert prices(store) == AFTER
        for version in (7, 3):
            again = Transaction("load", version)
            assert not staging.commit(store, disk, stage_all(disk, again), again)
        assert prices(store) == AFTER
        assert store.symbols() == ["A", "B"], "the staging directory is not a symbol"
        assert store.undecided == ()
    assert staging.area(disk).committed_version("load") == 7
    assert [name for name in disk.list(".staging")] == [
        staging.area(disk).transaction_path("load").split("/")[1],
    ]


def test_no_crash_writes_a_part_or_anything_twice() -> None:
    outcomes = {False: 0, True: 0}
    for dies_at in range(1000):
        disk, transaction = disk_with_one(), Transaction("load", 1)
        staged = stage_all(disk, transaction)
        store = open_store(disk)
        disk.posix.dies_at = disk.posix.operations + dies_at
        try:
            staging.commit(store, disk, staged, transaction)
        except PowerLost:
            for seed in range(3):
                outcomes[_judge(disk.after_power_cut(Random(seed)), transaction)] += 1
            outcomes[_judge(disk.after_kill(), transaction)] += 1
        else:
            break
    assert min(outcomes.values()) > 20


def _judge(disk: SimDisk, transaction: Transaction) -> bool:
    """All or nothing; and whoever tries again makes it all."""
    with open_store(disk) as store:
        staging.resume(store, disk)
        found = prices(store)
        assert found in (BEFORE, AFTER)
        assert store.undecided == ()
        assert staging.commit(store, disk, stage_all(disk, transaction), transaction) is (
            found == BEFORE
        )
        assert prices(store) == AFTER
    with open_store(disk) as store:
        assert prices(store) == AFTER
    return found == AFTER


def test_a_commit_first_takes_back_the_one_that_was_interrupted() -> None:
    disk = disk_with_one()
    with open_store(disk) as store:
        staging.area(disk).write_intent({"others": []})
        assert staging.commit(store, disk, stage_all(disk))
        assert prices(store) == AFTER


def test_what_cannot_be_stored_leaves_nothing() -> None:
    disk = disk_with_one()
    with open_store(disk) as store:
        other = store.group()
        other.write(batch("C", 1), "1D", "TICK", is_variable=True)
        tgid = other.prepare()
        wrong = pa.record_batch({"symbol": ["A"], "time": [START_NS], "Size": [1]})
        with pytest.raises(ValueError, match="the bucket has the columns Price"):
            staging.stage(disk, "none-1-x", 9, [wrong], "1D", "TICK", is_variable=True)
        with pytest.raises(ValueError, match="invalid bucket"):
            staging.stage(disk, "none-1-x", 9, [batch("../x", 1)], "1D", "TICK", is_variable=True)
        assert not disk.list(".staging")
        parts = stage_all(disk)
        new = pa.record_batch({"symbol": ["D"], "time": [START_NS], "Size": [1]})
        parts.append(staging.stage(disk, "none-1-x", 9, [new], "1D", "TICK", is_variable=True))
        store.write(batch("D", 1), "1D", "TICK", is_variable=True)
        with pytest.raises(ValueError, match="D/1D/TICK was created with other columns meanwhile"):
            staging.commit(store, disk, parts)
        store.delete("D", "1D", "TICK")
        assert prices(store) == BEFORE | {"D": []}
        assert store.undecided == (tgid,), "what others have prepared is theirs"
        gone = Staged(f".staging/{'x' * 9}.wal", 0, 3, 1, "1D")
        with pytest.raises(CorruptError, match="staged rows are missing"):
            staging.commit(store, disk, [gone])
        assert prices(store) == BEFORE | {"D": []}


def test_a_damaged_sst_of_a_task_is_not_committed() -> None:
    outcomes: list[bool | None] = []
    for at in range(0, 400, 7):
        disk = disk_with_one()
        staged = stage_all(disk)
        name = staged[0].name
        file = disk.open(name, writable=True)
        byte = at % file.size()
        file.write_at(byte, bytes([file.read_at(byte, 1)[0] ^ 1]))
        file.close()
        with open_store(disk) as store:
            try:
                staging.commit(store, disk, staged)
                outcomes.append(prices(store) == AFTER)
            except CorruptError:
                outcomes.append(None)
                assert prices(store) == BEFORE
    assert outcomes.count(None) > 40
    assert False not in outcomes, "where it says nothing, and all is there"


def test_groups_committed_together_cannot_create_a_bucket_with_different_columns() -> None:
    with open_store(SimDisk()) as store:
        first, second = store.group(), store.group()
        first.write(batch("A", 1), "1D", "TICK", is_variable=True)
        other = pa.record_batch({"symbol": ["A"], "time": [START_NS], "Size": [1]})
        second.write(other, "1D", "TICK", is_variable=True)
        store._commits._commit([first._draft.item, second._draft.item])
        assert isinstance(second._draft.item.error, ValueError)
        assert prices(store) == {"A": [1]}


def test_a_large_job_goes_to_the_year_files_in_steps() -> None:
    disk = disk_with_one()
    recorded = []
    with BarStore(disk, create=True, runtime=SIM_RUNTIME, pending_size_max=1) as store:
        assert staging.commit(store, disk, stage_all(disk))
        original = store._commits.logs.record_done

        def listen(changes: Sequence[Change]) -> None:
            recorded.append(len(changes))
            original(changes)

        store._commits.logs.record_done = listen  # type: ignore[method-assign]
        assert store.flush() == 4
        assert recorded == [2] * 4, "a group and its plan at a time"
        assert prices(store) == AFTER


def test_a_failed_write_is_taken_back_by_the_next_owner() -> None:
    for at in range(0, 60, 3):
        disk = disk_with_one()
        staged = stage_all(disk)
        store = open_store(disk)
        disk.posix.fault = Fault("eio", disk.posix.calls + at)
        try:
            staging.commit(store, disk, staged)
            before_the_fault = True
        except (OSError, ValueError):  # the latter if a bucket could not even be looked at
            before_the_fault = False
        disk.posix.fault = None
        store.close()
        with open_store(disk) as store:
            staging.resume(store, disk)
            assert prices(store) in ([AFTER] if before_the_fault else [BEFORE, AFTER])


def test_a_sweep_that_removes_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(monkeypatch, StagingArea, "sweep", "self.remove(swept)", "pass")
    with pytest.raises(AssertionError):
        orphans_are_swept()


def test_orphans_are_swept_by_job_by_application_and_by_age() -> None:
    orphans_are_swept()


def orphans_are_swept() -> None:
    disk, hour_ms = SimDisk(), 3_600_000
    for job in ("mine-100-a", "mine-50-b", "none-100-c", "other-1-d", "none-100-cc"):
        staging.stage(disk, job, 0, [batch("A", 1)], "1D", "X")

    def swept(job: str, now_ms: int) -> list[str]:
        names = staging.area(disk).sweep(job, now_ms=lambda: now_ms)
        return [re.split(r"[/.]", name)[2] for name in names]

    assert swept("mine-100-a", 200) == ["mine-100-a", "mine-50-b"]
    assert swept("none-7-x", 200) == []
    assert swept("none-7-x", 24 * hour_ms + 50) == ["other-1-d"]
    assert swept("none-100-c", 200) == ["none-100-c"], "and not that of a longer name"
    assert swept("none-100-cc", 200) == ["none-100-cc"]
    assert staging.area(disk).files() == []
    assert [name for name in disk.files() if name.startswith(".staging")] == [], "of any ending"


def test_strange_names_and_records_are_refused() -> None:
    disk = SimDisk()
    with pytest.raises(ValueError, match="invalid job name"):
        staging.stage(disk, "../../etc", 0, [], "1D", "X")
    with open_store(disk) as store:
        for text in (b"{", b"[]", b"{}", b'{"tgids": 7}', b'{"others": ["x"]}'):
            disk.create(".staging/intent.json", text, replace=True)
            with pytest.raises(CorruptError, match=r"intent\.json"):
                staging.resume(store, disk)
    disk.create(staging.area(disk).transaction_path("a"), b'{"version": "x"}')
    with pytest.raises(CorruptError, match="not an object with the fields app, version"):
        staging.area(disk).committed_version("a")
