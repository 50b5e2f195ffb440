"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk or of the Shanghai log; the contract must fail with it.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.logs.shanghai.test_recovery import (
    no_marked_entry_is_cut,
    no_seal_is_believed_whose_sync_failed,
)
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore, rewrite

from holdfast.disk import Buffer, OsDisk, OsFile
from holdfast.errors import HoldfastError
from holdfast.formats import shanghai as fmt
from holdfast.formats.mark import Mark, MarkedFile
from holdfast.logs import reader
from holdfast.logs.mark import MarkFile
from holdfast.logs.shanghai import directory, marks, recovery, view
from holdfast.logs.shanghai.view import Active
from holdfast.logs.shanghai.writer import ShanghaiLog
from holdfast.logs.writer import Writer
from holdfast.testing import Explorer, LogContract
from holdfast.testing.shanghai import ShanghaiSubject

mutant = Mutants(*BELOW_EVERY_LOG)


class Suspect(ShanghaiSubject, LogContract):
    __test__ = False


def examine() -> None:
    suspect = Suspect()
    suspect.test_a_failed_sync_poisons_and_shows_nothing()
    suspect.test_a_full_disk_loses_nothing()
    no_marked_entry_is_cut()
    no_seal_is_believed_whose_sync_failed()
    explorer = Explorer(suspect)
    sequences = (
        *explorer.sequences(1),
        ("large", "batch", "large", "append"),
        ("large", "rotate", "append", "rotate", "trim"),
        ("batch", "guest", "append"),
    )
    explore(explorer, sequences, range(1500), faults=("sync eio", "short write", "eio"))


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


@mutant
def files_are_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsFile, "sync", lambda self, forget_from=None: None)


@mutant
def a_created_file_is_renamed_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    def create(self: OsDisk, name: str, data: Buffer, *, replace: bool = False) -> None:
        fd = self._posix.open(name, 0o102, self._at_root(make=True))
        self._posix.pwrite(fd, memoryview(data), 0, sync=False)
        self._posix.sync_directory(self._at_root())
        self._posix.fdatasync(fd)

    patch.setattr(OsDisk, "create", create)


@mutant
def entries_show_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def write(self: ShanghaiLog, active: Active, group: Sequence[Any]) -> None:
        for batch in group:
            start = active.size
            active.bounds.extend(array("q", map(start.__add__, batch.ends)))
            batch.last = active.stop_index - 1
            self._file.write_at(start, batch.data, sync=True)

    patch.setattr(ShanghaiLog, "_write_to", write)


@mutant
def recovery_does_not_sync_what_it_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_look_behind_the_cache", lambda disk, mark: None)


@mutant
def recovery_trusts_the_cache(patch: pytest.MonkeyPatch) -> None:
    honest = OsFile.sync
    patch.setattr(OsFile, "sync", lambda self, forget_from=None: honest(self))


@mutant
def a_torn_tail_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_cut_tail", lambda disk, state: None)


@mutant
def a_cut_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def cut(disk: Any, state: Any) -> None:
        disk.open(state.found[-1].name, writable=True).resize(state.bounds[-1])

    patch.setattr(recovery, "_cut_tail", cut)


@mutant
def the_seal_is_written_before_the_successor(patch: pytest.MonkeyPatch) -> None:
    original = ShanghaiLog._begin_segment

    def begin_segment(self: ShanghaiLog) -> None:
        last = fmt.encode_last_lsn(self._active.stop_index - 1)
        self._file.write_at(fmt.LAST_LSN_OFFSET, last, sync=True)
        original(self)

    patch.setattr(ShanghaiLog, "_begin_segment", begin_segment)


@mutant
def a_torn_seal_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_finish_seal", lambda *_: None)


@mutant
def checksums_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    original = fmt.scan

    def scan(data: Any, start: int = fmt.HEADER_SIZE, *, verify: bool = True) -> fmt.Scan:
        return original(data, start, verify=False)

    patch.setattr(fmt, "scan", scan)


@mutant
def a_short_write_counts_as_whole(patch: pytest.MonkeyPatch) -> None:
    def write_at(self: OsFile, offset: int, data: Buffer, *, sync: bool = False) -> None:
        self._posix.pwrite(self._fd, memoryview(data), offset, sync=sync)

    patch.setattr(OsFile, "write_at", write_at)


@mutant
def a_reader_shows_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "_sync", lambda disk, name: None)


@mutant
def trim_removes_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    def remove(self: ShanghaiLog, trim: Any) -> None:
        for old in reversed(trim.removed):
            self.disk.remove(old.name)
        self.reader.publish_segments(self.reader.view.segments[len(trim.removed) :])

    patch.setattr(ShanghaiLog, "_remove", remove)


@mutant
def zeros_are_empty_entries(patch: pytest.MonkeyPatch) -> None:
    def read_entries(file: Any, offset: int, size: int) -> Any:
        bounds, flaw = original(file, offset, size)
        while bounds[-1] + 8 <= size and file.read_at(bounds[-1], 8) == bytes(8):
            bounds.append(bounds[-1] + 8)
        return bounds, flaw

    original = view.read_entries
    patch.setattr(recovery, "read_entries", read_entries)


@mutant
def the_mark_promises_too_much(patch: pytest.MonkeyPatch) -> None:
    original = MarkFile.advance

    def advance(self: MarkFile, size: int, last_index: int, tail_crc: int, word: bytes) -> None:
        original(self, size, last_index + 1, tail_crc, word)

    patch.setattr(MarkFile, "advance", advance)


@mutant
def the_mark_moves_before_the_data_is_synced(patch: pytest.MonkeyPatch) -> None:
    original = ShanghaiLog._write_to

    def write_to(self: ShanghaiLog, active: Active, group: Sequence[Any]) -> None:
        if group:
            size = active.size + sum(len(batch.data) for batch in group)
            last = active.stop_index - 1 + sum(batch.entries for batch in group)
            self._mark.advance(size, last, group[-1].tail_crc, bytes(24))
        original(self, active, group)

    patch.setattr(ShanghaiLog, "_write_to", write_to)


@mutant
def trim_removes_before_the_mark_is_lowered(patch: pytest.MonkeyPatch) -> None:
    def remove(self: ShanghaiLog, trim: Any) -> None:
        kept = self.reader.view.segments[len(trim.removed) :]
        Writer._remove(self, trim)
        self._mark.lower(marks.mark_of(kept))

    patch.setattr(ShanghaiLog, "_remove", remove)


@mutant
def trim_lowers_one_slot_only(patch: pytest.MonkeyPatch) -> None:
    def lower(self: MarkFile, mark: Mark) -> None:
        self.save(mark)

    patch.setattr(MarkFile, "lower", lower)


@mutant
def a_rotation_marks_the_successor_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    original = ShanghaiLog._begin_segment

    def begin_segment(self: ShanghaiLog) -> None:
        number = directory.segment_number(self._active.name) + 1
        last = MarkedFile(directory.segment_name(number), bytes(16))
        self._mark.save(replace(self._mark.mark, last=last))
        original(self)

    patch.setattr(ShanghaiLog, "_begin_segment", begin_segment)


@mutant
def the_last_marked_entry_may_be_torn(patch: pytest.MonkeyPatch) -> None:
    rewrite(patch, recovery, "missing_tail", "last_index >= stop_lsn", "last_index > stop_lsn")


@mutant
def a_seal_in_the_cache_is_believed(patch: pytest.MonkeyPatch) -> None:
    rewrite(patch, recovery, "_look_behind_the_cache", "name == names[-1]", "name")


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
