import json
from dataclasses import asdict
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import pyarrow as pa
import pytest

import holdfast
from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, DiskFullError, HoldfastError
from holdfast.logs import staging
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader
from holdfast.logs.staging import Staged, Transaction
from holdfast.testing import Fault, PowerLost, SimDisk
from holdfast.testing.log_contract import contents

ROWS = [[b"a0", b"a1"], [b"b0"], [], [b"d%d" % i for i in range(9)]]
FLAT = [row for rows in ROWS for row in rows]
TXN = Transaction("query", 7)
ids = count(1)


def new_id() -> UUID:
    return UUID(int=next(ids))


def stage_all(disk: SimDisk, rows: list[list[bytes]] = ROWS, job: str = "none-1-x") -> list[Staged]:
    batches = [[pa.record_batch({"payload": pa.array(r, pa.binary())})] for r in rows]
    return [
        staging.stage(disk, job, number, batch, new_id=new_id)
        for number, batch in reversed(list(enumerate(batches)))
    ]


def log_with_one(disk: SimDisk) -> ShanghaiLog:
    log = ShanghaiLog(disk, segment_size_max=150)
    log.append([b"before"])
    return log


def test_rows_are_appended_by_partition_and_row() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    done = staging.commit(log, disk, stage_all(disk))
    assert done is not None
    assert (done.first_index, done.last_index) == (2, 1 + len(FLAT))
    assert contents(log) == [b"before", *FLAT]
    assert disk.list("staging") == {}


def test_an_attempt_that_fails_leaves_no_file() -> None:
    disk = SimDisk()
    for bad in (None, b""):
        rows = [pa.record_batch({"payload": pa.array(r, pa.binary())}) for r in ([b"a"], [bad])]
        with pytest.raises(ValueError, match=r"null|empty"):
            staging.stage(disk, "none-1-x", 0, rows)
    assert disk.list("staging") == {}


def test_rows_can_be_ordered_by_a_column() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    parts = []
    for number, values in enumerate(([5, 1], [4, 2, 3])):
        rows = pa.record_batch(
            {"payload": pa.array([b"%d" % v for v in values]), "order": pa.array(values)}
        )
        parts.append(staging.stage(disk, "none-1-x", number, [rows]))
    staging.commit(log, disk, parts, ordered=True)
    assert contents(log)[1:] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_transaction_is_committed_once() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    assert staging.area(disk).committed_version("query") == -1
    assert staging.commit(log, disk, stage_all(disk), TXN) is not None
    assert staging.commit(log, disk, stage_all(disk), TXN) is None
    assert staging.commit(log, disk, stage_all(disk), Transaction("query", 6)) is None
    assert contents(log) == [b"before", *FLAT]
    assert staging.area(disk).committed_version("query") == 7
    assert list(disk.list("staging")) == [
        staging.area(disk).transaction_path("query").split("/")[1]
    ]
    assert staging.commit(log, disk, stage_all(disk), Transaction("query", 8)) is not None
    assert len(contents(log)) == 1 + 2 * len(FLAT)


def test_no_crash_appends_a_transaction_twice_or_in_part() -> None:
    """Die at every change that staging and committing make; then the job is run again."""
    for dies_at in range(400):
        disk = SimDisk()
        log_with_one(disk).close()
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        try:
            log = ShanghaiLog(disk, segment_size_max=150)
            staging.commit(log, disk, stage_all(disk), TXN)
            break
        except PowerLost:
            pass
        random = Random(dies_at)
        for _ in range(4):
            judge(disk.after_power_cut(random), random)
        judge(disk.after_kill(), random)
    else:
        raise AssertionError("the commit never ended")


def judge(disk: SimDisk, random: Random) -> None:
    """Run the job again, which may die as well, until it is through: once, and whole."""
    for attempt in range(3):
        disk.posix.operations = 0
        disk.posix.dies_at = int(random.random() * 60) if attempt < 2 else None
        try:
            log = ShanghaiLog(disk, segment_size_max=150)
            staging.commit(log, disk, stage_all(disk), TXN)
            break
        except PowerLost:
            disk = disk.after_power_cut(random)
    found = contents(log)
    assert found == [b"before", *FLAT]


def test_resuming_is_enough_once_the_intent_is_durable() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    parts = stage_all(disk)
    disk.posix.operations, disk.posix.dies_at = 0, 8
    with pytest.raises(PowerLost):
        staging.commit(log, disk, parts, TXN)
    disk = disk.after_kill()
    log = ShanghaiLog(disk)
    done = staging.resume(log, disk)
    assert done is not None
    assert contents(log) == [b"before", *FLAT]
    assert staging.resume(log, disk) is None


def test_opening_a_log_finishes_what_was_interrupted(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    with holdfast.create_log(tmp_path, format="shanghai") as log:
        log.append([b"before"])
        part = staging.stage(disk, "none-1-x", 0, [pa.record_batch({"payload": [b"x", b"y"]})])
        intent = staging._Intent(2, 2, (part.name,), False, None)
        log.append([b"x"])  # the crash came after the first of the two
    disk.create("staging/intent.json", json.dumps(asdict(intent)).encode())
    guest = ShanghaiReader(disk)
    assert contents(guest) == [b"before", b"x"]
    with holdfast.open_log(tmp_path) as log:
        assert contents(log) == [b"before", b"x", b"y"]


def fill_up(disk: SimDisk) -> None:
    """From the moment the intent is there, no room is left."""
    if disk.posix.exists("/sim/staging/intent.json"):
        disk.posix.fault = Fault("enospc", 0, always=True)


def test_a_full_disk_in_mid_commit_is_finished_later() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    parts = stage_all(disk)
    disk.posix.operations, disk.posix.dies_at = 0, None
    disk.posix.bystander = lambda: fill_up(disk)
    with pytest.raises(DiskFullError):
        staging.commit(log, disk, parts, TXN)
    disk.posix.bystander = None
    assert staging.sweep(disk, "none-1-x") == [], "a commit under way keeps its files"
    disk.posix.fault = None
    log.close()
    log = ShanghaiLog(disk)
    assert staging.commit(log, disk, stage_all(disk), TXN) is None
    assert contents(log) == [b"before", *FLAT]


def test_an_entry_of_another_program_is_noticed() -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    parts = stage_all(disk)
    disk.posix.operations, disk.posix.dies_at = 0, 4
    with pytest.raises(PowerLost):
        staging.commit(log, disk, parts)
    log = ShanghaiLog(disk.after_kill())
    log.append([b"stranger"])
    with pytest.raises(HoldfastError, match="appended by another program"):
        staging.resume(log, disk)


def test_sweeping_spares_what_is_young_and_not_ours() -> None:
    disk, hour = SimDisk(), 3_600_000
    mine, other = Transaction("a", 1), Transaction("b", 1)
    jobs = {
        "failed attempt": staging.new_job(mine, now_ms=lambda: 50 * hour),
        "earlier batch": staging.new_job(mine, now_ms=lambda: 49 * hour),
        "another query": staging.new_job(other, now_ms=lambda: 49 * hour),
        "forgotten": staging.new_job(None, now_ms=lambda: 1 * hour),
        "another job": staging.new_job(None, now_ms=lambda: 49 * hour),
    }
    names = {what: stage_all(disk, [[b"x"]], job)[0].name for what, job in jobs.items()}
    swept = staging.sweep(disk, jobs["failed attempt"], now_ms=lambda: 50 * hour)
    assert set(swept) == {names[w] for w in ("failed attempt", "earlier batch", "forgotten")}
    assert set(staging.area(disk).files()) == {names[w] for w in ("another query", "another job")}


@pytest.mark.parametrize("payloads", [[b""], [None], [b"x", b""]])
def test_rows_that_no_log_can_hold_are_refused_before_the_commit(payloads: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"null|empty"):
        batch = pa.record_batch({"payload": pa.array(payloads, pa.binary())})
        staging.stage(SimDisk(), "none-1-x", 0, [batch])


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"garbage"])
def test_a_damaged_intent_or_record_is_reported(content: bytes) -> None:
    disk = SimDisk()
    log = log_with_one(disk)
    disk.create("staging/intent.json", content)
    with pytest.raises(CorruptError, match=r"intent\.json"):
        staging.commit(log, disk, [])
    disk.remove("staging/intent.json")
    disk.create(staging.area(disk).transaction_path("query"), content)
    with pytest.raises(CorruptError, match="txn-"):
        staging.commit(log, disk, [], TXN)


def test_job_names_stay_inside_the_directory() -> None:
    with pytest.raises(ValueError, match="invalid job name"):
        staging.stage(SimDisk(), "../../etc", 0, [])
