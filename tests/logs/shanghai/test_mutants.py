"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk or of the Shanghai log; the contract must fail with it.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore

from holdfast.disk import Buffer, OsDisk, OsFile
from holdfast.errors import HoldfastError
from holdfast.formats import shanghai as fmt
from holdfast.logs.shanghai import directory, guest, log, recovery, segment
from holdfast.logs.shanghai.log import ShanghaiLog
from holdfast.testing import Explorer, LogContract
from holdfast.testing.shanghai import ShanghaiSubject

mutant = Mutants(*BELOW_EVERY_LOG)


class Suspect(ShanghaiSubject, LogContract):
    __test__ = False


def examine() -> None:
    suspect = Suspect()
    suspect.test_a_failed_sync_poisons_and_shows_nothing()
    suspect.test_a_full_disk_loses_nothing()
    explorer = Explorer(suspect)
    sequences = (
        *explorer.sequences(1),
        ("large", "batch", "large", "append"),
        ("large", "rotate", "append", "rotate", "compact"),
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
    def write(self: ShanghaiLog, group: Sequence[Any]) -> None:
        for batch in group:
            tail, start = self._tail, self._tail.size
            tail.bounds.extend(array("q", map(start.__add__, batch.ends)))
            batch.last_lsn = tail.stop_index - 1
            self._file.write_at(start, batch.data, sync=True)

    patch.setattr(ShanghaiLog, "_write", write)


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
    original = ShanghaiLog._rotate

    def rotate(self: ShanghaiLog) -> None:
        last = fmt.encode_last_lsn(self._tail.stop_index - 1)
        self._file.write_at(fmt.LAST_LSN_OFFSET, last, sync=True)
        original(self)

    patch.setattr(ShanghaiLog, "_rotate", rotate)


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
def a_guest_shows_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    class Careless(guest.ShanghaiGuest):
        def _survey(self) -> None:
            self._show(recovery.survey(self._disk))

    patch.setattr(ShanghaiSubject, "open_read_only", lambda self, disk: Careless(disk))


@mutant
def compaction_removes_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    original = ShanghaiLog._compact

    def compact(self: ShanghaiLog, limits: Any, *, dry_run: bool) -> Any:
        plan = original(self, limits, dry_run=True)
        for old in () if dry_run else reversed(plan.removed):
            self._disk.remove(old.name)
        if not dry_run:
            self._segments = self._segments[len(plan.removed) :]
        return plan

    patch.setattr(ShanghaiLog, "_compact", compact)


@mutant
def zeros_are_empty_entries(patch: pytest.MonkeyPatch) -> None:
    def read_entries(file: Any, offset: int, size: int) -> Any:
        bounds, flaw = original(file, offset, size)
        while bounds[-1] + 8 <= size and file.read_at(bounds[-1], 8) == bytes(8):
            bounds.append(bounds[-1] + 8)
        return bounds, flaw

    original = segment.read_entries
    patch.setattr(recovery, "read_entries", read_entries)


@mutant
def the_mark_promises_too_much(patch: pytest.MonkeyPatch) -> None:
    original = directory.write_mark

    def write_mark(disk: Any, mark: Any) -> None:
        original(disk, type(mark)(mark.name, mark.id, mark.size, mark.last_lsn + 1))

    patch.setattr(log, "write_mark", write_mark)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
