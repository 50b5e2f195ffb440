"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk or of the FileLog; the contract must fail with it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.logs.file_log.test_guest import a_guest_sees_all_or_nothing_of_a_rollback

from holdfast.disk import Buffer, OsDisk, OsFile
from holdfast.errors import HoldfastError
from holdfast.logs.file_log import intent, recovery, snapshots, tail
from holdfast.logs.file_log.directory import index_sizes
from holdfast.logs.file_log.log import FileLog
from holdfast.logs.file_log.owner import Owner
from holdfast.logs.file_log.writer import Writer
from holdfast.testing import Explorer, LogContract
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.sim_disk import SimPosix

Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Patch] = {}


def mutant(patch: Patch) -> Patch:
    MUTANTS[patch.__name__] = patch
    return patch


class Suspect(FileLogSubject, LogContract):
    __test__ = False

    def examine(self) -> None:
        """A short form of the contract."""
        self.test_a_failed_sync_poisons_and_shows_nothing()
        a_guest_sees_all_or_nothing_of_a_rollback()
        explorer = Explorer(self)
        for sequence in (
            ("batch", "append", "rollback", "append"),
            ("batch", "discard", "append"),
            ("append", "guest", "append"),
        ):
            explorer.every_crash_point(sequence)
        explorer.every_fault(("batch", "append", "append"), "sync eio", for_ever=False)
        for seed in range(120):
            explorer.lives(seed)


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    Suspect().examine()


@mutant
def append_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    original = OsFile.write_at

    def write_at(self: OsFile, offset: int, data: Buffer, *, sync: bool = False) -> None:
        original(self, offset, data)

    patch.setattr(OsFile, "write_at", write_at)


@mutant
def entries_and_slots_are_synced_at_once(patch: pytest.MonkeyPatch) -> None:
    """As the original does: a slot may survive without its entry."""
    original = FileLogSubject.open

    def opened(self: FileLogSubject, disk: Any) -> FileLog:
        log = original(self, disk)
        if log._writer is not None:
            log._writer._is_ordered = False
        log._sync_mode = "original"
        return log

    patch.setattr(FileLogSubject, "open", opened)


@mutant
def torn_slots_are_not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tail, "read_commit", lambda *_: None)


@mutant
def the_record_comes_after_the_slots(patch: pytest.MonkeyPatch) -> None:
    def write_ahead(self: Writer, begin: int, data: bytes, record: bytes) -> None:
        self._file.write_at(begin, data, sync=True)

    patch.setattr(Writer, "_write_ahead", write_ahead)


@mutant
def directories_are_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimPosix, "sync_directory", lambda self, path: None)


@mutant
def names_that_a_killed_owner_left_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsDisk, "sync_names", lambda self, directory: None)


@mutant
def entries_show_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    original = FileLog._put

    def put(self: FileLog, data: bytes, ends: Any) -> None:
        tail, count = self._tail, self._tail.count
        try:
            original(self, data, ends)
        except BaseException:
            tail.count = min(count + 1, len(tail.slots))
            raise

    patch.setattr(FileLog, "_put", put)


@mutant
def recovery_does_not_sync_what_it_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_look_behind_the_cache", lambda disk, _: index_sizes(disk))


@mutant
def a_rollback_is_not_written_down(patch: pytest.MonkeyPatch) -> None:
    from holdfast.logs.file_log import log

    patch.setattr(log, "write_intent", lambda *_: None)
    remove = OsDisk.remove
    patch.setattr(
        OsDisk,
        "remove",
        lambda self, *names: remove(self, *[n for n in names if "intent" not in n]),
    )


@mutant
def a_rollback_leaves_the_record(patch: pytest.MonkeyPatch) -> None:
    """It brings back what was rolled back."""
    patch.setattr(Owner, "_finish", lambda self: None)
    patch.setattr(intent, "read_commit", lambda *_: None)


@mutant
def a_rollback_does_not_sync_the_slots(patch: pytest.MonkeyPatch) -> None:
    original = intent._cut_slots

    def cut_slots(file: OsFile, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(OsFile, "sync", lambda self, **_: None)
            original(file, *arguments)

    patch.setattr(intent, "_cut_slots", cut_slots)


@mutant
def an_interrupted_change_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    original = intent.read_intent
    patch.setattr(recovery, "read_intent", lambda disk: original(disk) and None)


@mutant
def a_guest_knows_nothing_of_changes_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_look_ahead", lambda *_: None)


@mutant
def a_failed_write_does_not_poison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsFile, "_refuse_if_poisoned", lambda self: None)
    patch.setattr(Owner, "_refuse_if_unwritable", lambda self: None)


@mutant
def the_snapshot_is_replaced_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    from holdfast.logs.file_log import log

    def careless(disk: Any, index: int, term: int, data: Any, stamps: Any) -> str:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(OsFile, "sync", lambda self, **_: None)
            return original(disk, index, term, data, stamps)

    original = snapshots.write_temporary
    patch.setattr(log, "write_temporary", careless)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        Suspect().examine()
