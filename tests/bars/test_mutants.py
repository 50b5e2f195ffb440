"""Planted bugs.  A suite that does not catch them proves nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.bars.log_explorer import LogExplorer
from tests.bars.year_images import no_index_precedes_its_data
from tests.mutants import OF_THE_OWNER, Mutants, explore, writes_are_not_synced

from holdfast.bars import reader, recovery, wal, write_back
from holdfast.bars.commits import Commits
from holdfast.bars.view import Change, Overlay, Undecided
from holdfast.bars.wal import Content
from holdfast.bars.write_back import WriteBack
from holdfast.bars.year_files import Files
from holdfast.errors import HoldfastError
from holdfast.formats import market_wal as fmt
from holdfast.formats import year_file
from holdfast.testing.bars import BarExplorer
from holdfast.testing.sim_disk import SimPosix

mutant = Mutants(writes_are_not_synced, *OF_THE_OWNER)


def examine() -> None:
    """A short form of all."""
    no_index_precedes_its_data()
    logs = LogExplorer()
    for seed in range(8):
        logs.life(seed, images_per_point=8)
    explorer = BarExplorer(images_per_point=3)
    sequences = (
        ("many", "flush"),
        ("ticks", "flush", "ticks", "flush"),
        ("prepare", "many", "many", "flush", "decide", "flush"),
    )
    explorer.every_fault(("ticks", "flush"), "sync eio", always=False)
    seeds, faulty = range(1000, 1012), ("many", "flush", "ticks")
    explore(explorer, sequences, seeds, faulty, meddled=("bar", "flush"))
    thorough = BarExplorer(images_per_point=120)
    thorough.every_crash_point(("ticks", "flush", "ticks", "flush"), first=30)


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


@mutant
def the_volume_is_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimPosix, "syncfs", lambda self, fd: None)


@mutant
def the_log_says_done_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    original = write_back.Writes.carry_out

    def carry_out(self: write_back.Writes, files: Files) -> None:
        original(self, files)
        commits = current[0]._commits
        commits.alone(lambda: commits.logs.record_done(commits.pending.waiting()))

    current: list[WriteBack] = []
    step = WriteBack._step

    def remember(self: WriteBack) -> int:
        current[:] = [self]
        return step(self)

    patch.setattr(WriteBack, "_step", remember)
    patch.setattr(write_back.Writes, "carry_out", carry_out)


@mutant
def the_index_goes_with_the_data(patch: pytest.MonkeyPatch) -> None:
    original = write_back.collect

    def collect(batch: write_back.Batch, *others: Any) -> None:
        original(batch, *others)
        for name in ("paths", "offsets", "data"):
            setattr(batch.data, name, getattr(batch.index, name) + getattr(batch.data, name))
        batch.index = write_back.Writes(backwards=False)

    patch.setattr(write_back, "collect", collect)


@mutant
def groups_are_replayed_newest_first(patch: pytest.MonkeyPatch) -> None:
    original = recovery.Found.changes
    patch.setattr(recovery.Found, "changes", lambda self: original(self)[::-1])


@mutant
def a_group_counts_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    original = Content.read

    def read(self: Content, data: memoryview, start: int = 11) -> None:
        groups = [one for one in fmt.scan(data, start).messages if isinstance(one, fmt.Group)]
        original(self, data, start)
        known = {change.tgid for change in self.changes} | self.undecided.keys()
        for one in groups:
            if one.tgid not in known:
                self.changes.append(Change(one, self.name))

    patch.setattr(Content, "read", read)


@mutant
def ticks_are_written_without_a_plan_in_the_log(patch: pytest.MonkeyPatch) -> None:
    original = Commits.log_plan

    def log_plan(self: Commits, covers: list[int], placed: Any) -> Change:
        nowhere = SimpleNamespace(append=lambda messages: None, name="nowhere")
        self.__dict__["_wal"] = lambda: nowhere
        plan = original(self, covers, placed)
        del self.__dict__["_wal"]
        return plan

    patch.setattr(Commits, "log_plan", log_plan)


@mutant
def checksums_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    class Alike(bytes):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = bytes.__hash__

    def md5(data: Any, **_: Any) -> Any:
        return SimpleNamespace(digest=lambda: Alike(16))

    patch.setattr(fmt, "hashlib", SimpleNamespace(md5=md5))


@mutant
def logs_are_removed_too_early(patch: pytest.MonkeyPatch) -> None:
    original = Commits._wal

    def begin(self: Commits) -> wal.Wal:
        found = original(self)
        self.logs.remove_finished(())
        return found

    patch.setattr(Commits, "_wal", begin)


@mutant
def undecided_groups_are_not_carried_over(patch: pytest.MonkeyPatch) -> None:
    original = Commits._wal

    def begin(self: Commits) -> wal.Wal:
        kept, self.undecided = self.undecided, Undecided()
        try:
            return original(self)
        finally:
            self.undecided = kept

    patch.setattr(Commits, "_wal", begin)


@mutant
def a_header_that_looks_right_is_not_written_again(patch: pytest.MonkeyPatch) -> None:
    original = Files.make

    def make(self: Files, path: str, header: year_file.Header) -> None:
        try:
            head = self.get(path).read_at(0, year_file.HEADER_SIZE)
        except FileNotFoundError:
            head = b""
        if head != year_file.encode_header(header):
            original(self, path, header)

    patch.setattr(Files, "make", make)


@mutant
def what_is_done_is_taken_one_by_one(patch: pytest.MonkeyPatch) -> None:
    for module in (recovery, reader):
        patch.setattr(module, "complete", lambda changes: None)


@mutant
def a_guest_looks_only_once(patch: pytest.MonkeyPatch) -> None:
    def look_again(self: reader.WatchedLogs, names: frozenset[str], before: bytes) -> Overlay:
        return Overlay([])

    patch.setattr(reader.WatchedLogs, "look_again", look_again)


@mutant
def the_status_is_torn_into_finished(patch: pytest.MonkeyPatch) -> None:
    def mark_replaying(self: wal.Wal, pid: int) -> None:
        self.mark(fmt.CLOSED, fmt.REPLAYED, pid)

    patch.setattr(wal.Wal, "mark_replaying", mark_replaying)


@mutant
def a_failed_sync_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    honest = SimPosix.syncfs

    def syncfs(self: SimPosix, fd: int) -> None:
        try:
            honest(self, fd)
        except OSError:
            honest(self, fd)

    patch.setattr(SimPosix, "syncfs", syncfs)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError, KeyError, ValueError)):
        examine()
