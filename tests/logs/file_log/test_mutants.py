"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk or of the FileLog; the contract must fail with it.
"""

from typing import Any

import pytest
from tests.logs.file_log.test_guest import a_guest_sees_all_or_nothing_of_a_rollback
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore

from holdfast.disk import OsDisk, OsFile
from holdfast.errors import HoldfastError
from holdfast.logs.file_log import intent, recovery, snapshots, tail
from holdfast.logs.file_log.directory import index_sizes
from holdfast.logs.file_log.log import FileLog
from holdfast.logs.file_log.owner import Owner
from holdfast.logs.file_log.writer import Writer
from holdfast.testing import Explorer, LogContract
from holdfast.testing.file_log import FileLogSubject

mutant = Mutants(*BELOW_EVERY_LOG)


class Suspect(FileLogSubject, LogContract):
    __test__ = False


def examine() -> None:
    suspect = Suspect()
    suspect.test_a_failed_sync_poisons_and_shows_nothing()
    a_guest_sees_all_or_nothing_of_a_rollback()
    sequences = (
        ("batch", "append", "rollback", "append"),
        ("batch", "discard", "append"),
        ("append", "guest", "append"),
    )
    explore(Explorer(suspect), sequences, range(120))


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


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
def the_snapshot_is_replaced_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    from holdfast.logs.file_log import log

    def careless(disk: Any, index: int, term: int, data: Any, stamps: Any) -> str:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(OsFile, "sync", lambda self, **_: None)
            return original(disk, index, term, data, stamps)

    original = snapshots.write_temporary
    patch.setattr(log, "write_temporary", careless)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
