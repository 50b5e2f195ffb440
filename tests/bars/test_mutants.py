"""Planted bugs.  A suite that does not catch them proves nothing."""

from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.mutants import OF_THE_OWNER, Mutants, explore, writes_are_not_synced

from holdfast.bars import guest, replay, wal, write_back
from holdfast.bars.files import Files
from holdfast.bars.guest import BarReader
from holdfast.bars.pending import Change, Overlay
from holdfast.bars.store import BarStore
from holdfast.bars.undecided import Undecided
from holdfast.bars.wal import Content
from holdfast.errors import HoldfastError
from holdfast.formats import market_wal as fmt
from holdfast.formats import year_file
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.bar_logs import LogExplorer
from holdfast.testing.bars import BarExplorer, open_store
from holdfast.testing.sim_disk import SimPosix

mutant = Mutants(writes_are_not_synced, *OF_THE_OWNER)
PATH, DAY_S, START_S = "A/1D/X/2021.bin", 86_400, 1_609_459_200


def examine() -> None:
    """A short form of all."""
    no_record_is_in_a_year_file_before_its_data()
    logs = LogExplorer()
    for seed in range(8):
        logs.life(seed, images_per_point=8)
    explorer = BarExplorer(images_per_point=3)
    sequences = (
        ("many", "write back"),
        ("ticks", "write back", "ticks", "write back"),
        ("prepare", "many", "many", "write back", "decide", "write back"),
    )
    explorer.every_fault(("ticks", "write back"), "sync eio", for_ever=False)
    seeds, faulty = range(1000, 1012), ("many", "write back", "ticks")
    explore(explorer, sequences, seeds, faulty, meddled=("bar", "write back"))
    thorough = BarExplorer(images_per_point=60)
    thorough.every_crash_point(("ticks", "write back"), first=30)


def no_record_is_in_a_year_file_before_its_data() -> None:
    """As the design has it: whoever reads a year file alone sees whole records."""
    row = np.array([(START_S + n * DAY_S, 0x0123456789ABCDEF) for n in (3, 4, 9)], "i8,i8")
    row.dtype.names = ("Epoch", "Price")
    for at in range(1, 12):
        disk = SimDisk()
        opened = open_store(disk)
        opened.write(row[:1], "1D", "X", symbol="A")
        opened.write_back()
        opened.write(row[1:], "1D", "X", symbol="A")
        disk.posix.operations, disk.posix.dies_at = 0, at
        with suppress(PowerLost):
            opened.write_back()
        for seed in range(8):
            image = disk.after_power_cut(Random(seed))
            records = np.frombuffer(image.open(PATH).read_at(0, 10**6), "<i8", -1, 37_024)
            for index, price in records.reshape(-1, 2)[[3, 8]].tolist():
                if index in (4, 9):  # a torn one would be told by its number
                    assert price == 0x0123456789ABCDEF


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


@mutant
def the_volume_is_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimPosix, "syncfs", lambda self, fd: None)


@mutant
def the_log_is_told_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    original = write_back.Writes.carry_out

    def carry_out(self: write_back.Writes, files: Files) -> None:
        original(self, files)
        told[0]._commits.exclusively(lambda: told[0]._tell(told[0]._pending.waiting()))

    told: list[BarStore] = []
    step = BarStore._write_back

    def remember(self: BarStore) -> int:
        told[:] = [self]
        return step(self)

    patch.setattr(BarStore, "_write_back", remember)
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
    original = replay.Found.changes
    patch.setattr(replay.Found, "changes", lambda self: original(self)[::-1])


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
    original = BarStore._log_plan

    def log_plan(self: BarStore, covers: list[int], placed: Any) -> Change:
        nowhere = SimpleNamespace(append=lambda messages: None, name="nowhere")
        self.__dict__["_wal"] = lambda: nowhere
        plan = original(self, covers, placed)
        del self.__dict__["_wal"]
        return plan

    patch.setattr(BarStore, "_log_plan", log_plan)


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
    original = BarStore._wal

    def begin(self: BarStore) -> wal.Wal:
        found = original(self)
        self._logs.remove_finished(())
        return found

    patch.setattr(BarStore, "_wal", begin)


@mutant
def undecided_groups_are_not_carried_over(patch: pytest.MonkeyPatch) -> None:
    original = BarStore._wal

    def begin(self: BarStore) -> wal.Wal:
        kept, self._undecided = self._undecided, Undecided()
        try:
            return original(self)
        finally:
            self._undecided = kept

    patch.setattr(BarStore, "_wal", begin)


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
    for module in (replay, guest):
        patch.setattr(module, "complete", lambda changes: None)


@mutant
def a_guest_looks_only_once(patch: pytest.MonkeyPatch) -> None:
    def look_again(self: BarReader, names: frozenset[str]) -> Overlay:
        return Overlay([])

    patch.setattr(BarReader, "look_again", look_again)


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
