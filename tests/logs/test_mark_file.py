"""The file of a mark: whatever happens, one slot is valid and says what was durable."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast.errors import PoisonedError
from holdfast.file import Buffer, OsFile
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import SLOT_SIZE, Mark, MarkedFile, decode
from holdfast.handle import Handle
from holdfast.logs import mark as mark_module
from holdfast.logs.mark import (
    MARK,
    MarkFile,
    marked_files,
    read_mark,
    recall_mark,
    was_lowered,
)
from holdfast.runtime import Runtime
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk

EMPTY = marked_files(Mark("shanghai"), [MarkedFile("one", b"1" * 16)])
NO_WORD = bytes(24)


@dataclass
class Tickers:
    """What was asked to be called at intervals."""

    steps: list[Callable[[], None]] = field(default_factory=list)
    closed: int = 0

    def __call__(self, interval_ms: float, step: Callable[[], None]) -> "Tickers":
        assert interval_ms == mark_module.SAVE_MS
        self.steps.append(step)
        return self

    def close(self) -> None:
        self.closed += 1


def opened(disk: SimDisk, mark: Mark | None = None, tickers: Tickers | None = None) -> MarkFile:
    runtime = Runtime(ticker=tickers or Tickers())
    found = recall_mark(disk)
    assert not isinstance(found, Flaw)
    mark = mark or found or EMPTY
    lock, handle = disk.lock(), Handle("the log")
    return MarkFile(disk, mark, found, lock=lock, handle=handle, runtime=runtime)


def slots(disk: SimDisk) -> list[Mark | Flaw]:
    data = disk.files()[MARK]
    return [decode(data[:512]), decode(data[SLOT_SIZE : SLOT_SIZE + 512])]


def test_a_commit_writes_one_slot_and_syncs_nothing() -> None:
    disk = SimDisk()
    mark = opened(disk)
    before, saved = list(disk.posix.trace), slots(disk)[0]
    mark.advance(100, 5, 77, b"w" * 24)
    assert disk.posix.trace[len(before) :] == ["write"]
    assert slots(disk)[0] == saved
    found = read_mark(disk)
    assert isinstance(found, Mark)
    assert (found.size, found.last_index, found.tail_crc, found.word) == (100, 5, 77, b"w" * 24)


def test_a_tick_saves_what_has_moved_and_only_then() -> None:
    disk, tickers = SimDisk(), Tickers()
    mark = opened(disk, tickers=tickers)
    assert not tickers.steps  # nothing to save before there are commits
    mark.advance(100, 5, 77, NO_WORD)
    mark.advance(200, 6, 78, NO_WORD)
    (tick,) = tickers.steps
    tick()
    assert slots(disk)[0] == slots(disk)[1] == mark.mark
    for seed in range(20):
        found = read_mark(disk.after_power_cut(Random(seed)))
        assert isinstance(found, Mark) and found.last_index == 6
    operations = disk.posix.operations
    tick()
    assert disk.posix.operations == operations, "nothing has moved"
    mark.close()
    assert tickers.closed == 1


def test_a_thread_saves_the_mark_of_an_idle_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark_module, "SAVE_MS", 5)
    with holdfast.create_log(tmp_path / "log") as log:
        index = log.append([b"x"])
        for _ in range(1000):
            saved = decode((tmp_path / "log" / MARK).read_bytes()[:512])
            if isinstance(saved, Mark) and saved.last_index == index:
                break
            time.sleep(0.01)
        else:
            raise AssertionError("the mark was not saved in ten seconds")


def live(disk: SimDisk, low: list[int], high: list[int]) -> None:
    """Use a mark; `low` is the least that it must say after a crash, `high` the most."""
    mark = opened(disk)
    for number in range(1, 4):
        high[0] = number
        mark.advance(number * 10, number, number, NO_WORD)
    mark.save()
    low[0], high[0] = 3, 4
    mark.advance(40, 4, 4, NO_WORD)
    low[0] = 2
    mark.lower(replace(mark.mark, size=20, last_index=2))
    high[0] = 2
    mark.save(replace(mark.mark, base_index=2))
    high[0] = 3
    mark.advance(30, 3, 9, NO_WORD)
    mark.save(replace(mark.mark, base_index=4))
    low[0], high[0] = 3, 4
    mark.advance(40, 4, 4, NO_WORD)
    mark.finish()
    low[0] = 4
    mark.close()
    mark._lock.release()


def cut_the_power_everywhere() -> int:
    """At every change: the mark is valid, covers what was saved, and not what was removed."""
    whole, judged = SimDisk(), 0
    live(whole, [0], [0])
    for dies_at in range(whole.posix.operations + 1):
        for seed in range(40):
            disk, low, high = SimDisk(), [0], [0]
            disk.posix.dies_at = dies_at
            with suppress(PowerLost):
                live(disk, low, high)
            random = Random(f"{dies_at}/{seed}")
            disk = disk.after_kill() if seed == 0 else disk.after_power_cut(random)
            found = read_mark(disk)
            if found is None:
                assert low[0] == 0
                continue
            assert isinstance(found, Mark), f"{found} at {dies_at}, seed {seed}"
            assert low[0] <= found.last_index <= high[0], (dies_at, seed, found)
            disk.posix.dies_at = random.randrange(8)  # the next owner crashes too
            with suppress(PowerLost):
                opened(disk)
            again = read_mark(disk.after_power_cut(random))
            assert isinstance(again, Mark), f"{again} at {dies_at}, seed {seed}, again"
            assert low[0] <= again.last_index <= high[0]
            judged += 1
    return judged


def test_no_power_cut_tears_both_slots_or_promises_what_is_not_durable() -> None:
    assert cut_the_power_everywhere() > 500


def only_one_slot_is_lowered(patch: pytest.MonkeyPatch) -> None:
    def lower(self: MarkFile, mark: Mark) -> None:
        self._lowered += 1
        self.save(mark)

    patch.setattr(MarkFile, "lower", lower)


def the_file_is_not_synced_before_a_save(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsFile, "sync", lambda self, *, forget_from=None: None)


def saves_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    original = OsFile.write_at

    def write_at(self: OsFile, offset: int, data: Buffer, *, sync: bool = False) -> None:
        original(self, offset, data)

    patch.setattr(OsFile, "write_at", write_at)


def the_only_valid_slot_is_overwritten_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mark_module, "_is_newer", lambda one, other: True)


@pytest.mark.parametrize(
    "bug",
    [
        only_one_slot_is_lowered,
        the_file_is_not_synced_before_a_save,
        saves_are_not_synced,
        the_only_valid_slot_is_overwritten_first,
    ],
)
def test_a_planted_bug_is_noticed(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        cut_the_power_everywhere()


def test_the_moving_slot_waits_while_the_other_is_written() -> None:
    """Between the sync of the file and the end of the synced write nothing else may be torn."""
    disk = SimDisk()
    mark = opened(disk)
    mark.advance(10, 1, 1, NO_WORD)
    seen = []

    def meanwhile() -> None:
        disk.posix.bystander = None
        mark.advance(20, 2, 2, NO_WORD)
        seen.append(slots(disk)[1])
        if len(seen) < 3:  # the sync of the file, the write, its sync
            disk.posix.bystander = meanwhile

    disk.posix.bystander = meanwhile
    mark.save()
    disk.posix.bystander = None
    assert len(seen) == 3
    for moving in seen:
        assert isinstance(moving, Mark) and moving.last_index == 1
    found = read_mark(disk)
    assert isinstance(found, Mark) and found.last_index == 2, "written when the save had ended"


@pytest.mark.parametrize("kind", ["eio", "enospc"])
def test_a_mark_that_cannot_be_written_refuses_the_next_write_and_still_holds(kind: str) -> None:
    disk = SimDisk()
    mark = opened(disk)
    mark.advance(10, 1, 1, NO_WORD)
    disk.posix.fault = Fault(kind, disk.posix.calls, always=True)
    mark.advance(20, 2, 2, NO_WORD)  # the entries are durable: no error
    disk.posix.fault = None
    with pytest.raises(PoisonedError, match="writing the mark failed"):
        mark._handle.check_write()
    found = read_mark(disk)
    assert isinstance(found, Mark) and found.last_index == 1


def test_a_tick_that_fails_refuses_the_next_write() -> None:
    disk, tickers = SimDisk(), Tickers()
    mark = opened(disk, tickers=tickers)
    mark.advance(10, 1, 1, NO_WORD)
    disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
    tickers.steps[0]()
    with pytest.raises(PoisonedError, match="writing the mark failed"):
        mark._handle.check_write()


def test_an_owner_that_lost_its_lock_writes_no_mark() -> None:
    disk, tickers = SimDisk(), Tickers()
    mark = opened(disk, tickers=tickers)
    mark.advance(10, 1, 1, NO_WORD)
    mark._lock.release()
    operations = disk.posix.operations
    tickers.steps[0]()
    assert disk.posix.operations == operations


def test_a_reader_knows_when_the_mark_was_lowered() -> None:
    disk = SimDisk()
    mark = opened(disk)
    seen = read_mark(disk)
    mark.advance(10, 1, 1, NO_WORD)
    mark.save()
    assert not was_lowered(disk, seen)
    mark.lower(replace(mark.mark, size=0, last_index=0))
    assert was_lowered(disk, seen)
    assert was_lowered(disk, None)


def test_what_a_killed_owner_left_in_the_cache_is_synced_before_it_counts() -> None:
    disk = SimDisk()
    opened(disk).advance(10, 1, 1, NO_WORD)
    disk = disk.after_kill()
    found = recall_mark(disk)
    assert isinstance(found, Mark) and found.last_index == 1
    assert read_mark(disk.after_power_cut(Random(1))) == found


def test_the_hot_path_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One write of less than a sector for each commit, through as few frames as a file has."""
    disk = SimDisk()
    mark = opened(disk)
    mark.advance(10, 1, 1, NO_WORD)
    sizes: list[int] = []
    original = OsFile.write_at

    def write_at(self: OsFile, offset: int, data: Buffer, *, sync: bool = False) -> None:
        sizes.append(len(data))
        original(self, offset, data, sync=sync)

    monkeypatch.setattr(OsFile, "write_at", write_at)
    mark._write_at = mark._file.write_at
    mark.advance(20, 2, 2, NO_WORD)
    assert sizes and max(sizes) < 512
