"""A plan is true to the entry: what it keeps and loses is what is there after it was applied."""

from collections.abc import Iterator
from random import Random

import pytest

from holdfast.errors import HoldfastError, NotFoundError, UnsupportedError
from holdfast.logs.file_log import FileLog, FileLogReader
from holdfast.logs.file_log import repair as repairs
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.repair import Step, apply_repair, plan_repair
from holdfast.logs.mark import MARK
from holdfast.logs.repairing import Keep, RepairPlan, Span
from holdfast.logs.retention import Retention
from holdfast.logs.verify import verify_log
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject

KEEPS: tuple[Keep, ...] = ("before", "after")
FIRST, SECOND = (f"log/00000/00/00/{index:014x}.rlog" for index in (1, 4))


def copied(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    return disk


def verdict(disk: SimDisk) -> str:
    return verify_log(disk, pause=lambda ms: None).verdict


def verdict_of(plan: RepairPlan[Step]) -> str:
    if not plan.damage:
        return "clean"
    return "torn tail" if all(one.torn for one in plan.damage) else "corrupt"


def indexes(disk: SimDisk) -> list[int]:
    with FileLogReader(disk) as guest:
        assert guest.damage == ()
        shown = range(guest.first_index, guest.last_index + 1)
        found = [row["index"] for batch in guest.scan() for row in batch.to_pylist()]
        assert found == [*shown]
        return found


class Damaged:
    """A log that did this and that, and was closed or killed; then its files were damaged."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.older: list[bytes] = []  # snapshots
        disk = SimDisk()
        log = FileLog(disk, capacity=self.random.choice((2, 4, 8)))
        self.append(log)
        for _ in range(self.random.randint(1, 6)):
            self.step(disk, log)
        self.had = set(range(log.first_index, log.last_index + 1))
        if self.random.random() < 0.5:
            log.close()
        else:
            disk = disk.after_kill()
        self.is_marked = self.random.random() < 0.8
        if not self.is_marked:  # as zmq-raft leaves it, or version 0.1.0
            disk.remove(*self.random.choice(((UNTOUCHED,), (UNTOUCHED, MARK))))
        self.files = disk.files()
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.damage()
        self.is_marked = self.is_marked and {MARK, UNTOUCHED} <= self.files.keys()

    def append(self, log: FileLog) -> None:
        log.append([self.random.randbytes(5) for _ in range(self.random.randint(1, 6))])

    def step(self, disk: SimDisk, log: FileLog) -> None:
        random, first, last = self.random, log.first_index, log.last_index
        kind = random.choice(("append", "append", "rotate", "cut", "compact", "trim", "discard"))
        if kind == "rotate":
            log.rotate()
        elif kind == "discard" and random.random() < 0.5:
            self.older.append(disk.files()["snap"])
            log.install_snapshot(last + random.randint(1, 5), 1, b"discard")
        elif kind in ("append", "discard") or first > last:
            self.append(log)
        elif kind == "cut":
            log.truncate_tail(random.randint(first, last))
        else:
            self.older.append(disk.files()["snap"])
            log.create_snapshot(random.randint(first, last), b"compact")
            if kind == "trim":
                log.trim(Retention(before=log.first_index))

    def damage(self) -> None:
        random, files = self.random, self.files
        names = [name for name in files if name not in ("LOCK", "holdfast.reserve")]
        parts = [name for name in names if name.endswith(".rlog")]
        name = random.choice(parts if parts and random.random() < 0.7 else names)
        data, kind = bytearray(files[name]), random.random()
        if kind < 0.2:
            del files[name]
        elif kind < 0.45:
            files[name] = bytes(data[: random.randrange(len(data) + 1)])
        elif kind < 0.75 and data:
            bit = random.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            files[name] = bytes(data)
        elif kind < 0.9 and data:
            at = random.randrange(len(data))
            stop = min(len(data), at + random.choice((4, 20, 100, 1000)))
            data[at:stop] = bytes(stop - at)
            files[name] = bytes(data)
        elif self.older:
            files["snap"] = random.choice(self.older)

    def check(self) -> Iterator[str]:
        """Yield the verdict, for each way to repair it."""
        try:
            found = verdict(copied(self.files))
        except (UnsupportedError, NotFoundError):
            return  # a header says that it is of another version, or nothing of a log is left
        for keep in KEEPS:
            disk = copied(self.files)
            plan = plan_repair(disk, keep=keep)
            assert verdict_of(plan) == found, "verify and repair agree"
            if plan.damage:
                apply_repair(disk, plan)
                assert verdict(disk) == "clean"
                kept = indexes(disk)
                assert kept == [*range(plan.kept[0], plan.kept[1] + 1)]
                lost = {index for a, b in plan.lost for index in range(a, b + 1)}
                if self.is_marked and not plan.unknown:
                    assert lost & self.had == self.had - set(kept)
                    # A slot after the last one may have become an entry that never was.
                    assert min(lost - self.had, default=10**9) > max(self.had, default=0)
                with FileLog(disk) as log:
                    assert log.append([b"on"]) == plan.kept[1] + 1
            yield found


@pytest.mark.parametrize("part", range(3))
def test_a_plan_is_true_to_the_entry(part: int) -> None:
    seen = [found for seed in range(60 * part, 60 * part + 60) for found in Damaged(seed).check()]
    assert {"clean", "corrupt"} <= set(seen)


def test_a_step_that_is_left_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plant the bug: without this, the test before would prove nothing."""
    planned = repairs._plan

    def wrong(disk: SimDisk, keep: Keep) -> RepairPlan[Step]:
        plan = planned(disk, keep)
        steps = tuple(step for step in plan.steps if step.action != "cut")
        return RepairPlan(keep, plan.damage, steps, plan.kept, plan.lost, plan.unknown)

    monkeypatch.setattr(repairs, "_plan", wrong)
    with pytest.raises((AssertionError, HoldfastError)):
        for seed in range(180):
            list(Damaged(seed).check())


def filled(snapshots: tuple[int, ...] = ()) -> tuple[SimDisk, list[bytes]]:
    """Entries 1..10 in the files 1..3, 4..7 and 8..10; and the bytes of each snapshot before."""
    disk, older = SimDisk(), []
    with FileLogSubject().open(disk) as log:
        log.append([b"%d" % index for index in range(1, 11)])
        for index in snapshots:
            older.append(disk.files()["snap"])
            log.create_snapshot(index, b"state")
    return disk, older


def test_without_the_first_file_the_others_are_read_and_its_loss_is_named() -> None:
    disk, _ = filled()
    disk.remove(FIRST)
    with FileLogReader(disk) as guest:
        assert [guest.read(index) for index in (4, 7, 10)] == [b"4", b"7", b"10"]
        assert [(d.first_index, d.last_index) for d in guest.damage] == [(1, 3)]
    for keep in KEEPS:
        plan = plan_repair(disk, keep=keep)
        assert (plan.kept, plan.lost) == ((4, 10), ((1, 3),))
    apply_repair(disk, plan)
    assert indexes(disk) == [*range(4, 11)]


@pytest.mark.parametrize(
    ("snapshots", "number", "kept"),
    [((4,), 0, (1, 10)), ((4, 6), 1, (5, 10)), ((4, 6), 0, (5, 10))],
)
def test_an_older_snapshot(snapshots: tuple[int, ...], number: int, kept: Span) -> None:
    disk, older = filled(snapshots)
    disk.create("snap", older[number], replace=True)
    assert verdict(disk) == "corrupt"
    plan = plan_repair(disk)
    assert (plan.kept, plan.lost) == (kept, ())
    apply_repair(disk, plan)
    assert indexes(disk) == [*range(kept[0], kept[1] + 1)]


def test_a_term_that_decreases_is_repaired() -> None:
    """`verify` reports it, so that repair must not say that there is nothing to do."""
    disk, _ = filled()
    data = bytearray(disk.files()[SECOND])
    data[data.index(b"ITMZ") + 8 + 13] = 0  # the term of entry 4
    disk.create(SECOND, bytes(data), replace=True)
    assert verdict(disk) == "corrupt"
    for keep, kept in zip(KEEPS, ((1, 3), (5, 10)), strict=True):
        image = copied(disk.files())
        plan = plan_repair(image, keep=keep)
        assert plan.kept == kept
        apply_repair(image, plan)
        assert (verdict(image), indexes(image)) == ("clean", [*range(kept[0], kept[1] + 1)])


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_damaged_state_file_is_moved_aside(how: str) -> None:
    disk, _ = filled()
    with FileLogSubject().open(disk) as log:
        log.state.update({"currentTerm": 3})
        log.state.update({"currentTerm": 4})
    if how == "cut":
        disk.create("raft.pers", disk.files()["raft.pers"][:3], replace=True)
    else:
        disk.remove("raft.pers")
    assert verdict(disk) == "corrupt"
    plan = plan_repair(disk)
    assert [one.file for one in plan.damage] == ["raft.pers"]
    assert "may vote twice" in str(plan.damage[0])
    assert (plan.kept, plan.lost, plan.unknown) == ((1, 10), (), ("raft.pers",))
    apply_repair(disk, plan)
    assert verdict(disk) == "clean"
    assert [n for n in disk.files() if n.startswith("raft.pers") and n.endswith(".cut")]
    with FileLogSubject().open(disk) as log:
        assert log.state["currentTerm"] == 0


def test_a_last_file_that_was_never_finished_is_torn_for_both() -> None:
    disk, _ = filled()
    with FileLogSubject().open(disk) as log:
        log.append([b"11"])
        log.rotate()
    (name,) = (name for name in disk.files() if name.endswith("0c.rlog"))
    disk.create(name, disk.files()[name][:5], replace=True)
    assert (verdict(disk), verdict_of(plan_repair(disk))) == ("torn tail", "torn tail")


def test_a_file_inside_another_one_is_moved_aside() -> None:
    """A copy under a name that lies in the middle of a file: all entries of that file are kept."""
    disk, _ = filled()
    disk.create("log/00000/00/00/00000000000009.rlog", disk.files()[SECOND])
    assert verdict(disk) == "corrupt"
    plan = plan_repair(disk)
    assert (plan.kept, plan.lost) == ((1, 10), ())
    apply_repair(disk, plan)
    assert (verdict(disk), indexes(disk)) == ("clean", [*range(1, 11)])


def test_a_foreign_file_after_the_end_holds_no_entries_of_the_log() -> None:
    disk, _ = filled()
    disk.create("log/00000/00/00/0000000000000c.rlog", disk.files()[SECOND])
    (found,) = plan_repair(disk).damage
    assert (found.first_index, found.last_index) == (0, 0)
