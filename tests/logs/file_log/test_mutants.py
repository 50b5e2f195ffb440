"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk or of the FileLog; the contract must fail with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from isal.isal_zlib import crc32
from tests.logs.file_log.test_guest import a_guest_sees_all_or_nothing_of_a_rollback
from tests.logs.test_mark_file import only_one_slot_is_lowered
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore

from holdfast.disk import OsDisk, OsFile
from holdfast.errors import HoldfastError
from holdfast.formats.rlog_mark import encode_word
from holdfast.logs.file_log import active, history, intent, recovery, writer
from holdfast.logs.file_log.active import Active
from holdfast.logs.file_log.directory import index_sizes
from holdfast.logs.file_log.marker import Marker
from holdfast.logs.file_log.writer import FileLog
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
        ("batch", "discard"),
    )
    explore(Explorer(suspect), sequences, range(200))
    # A mark is torn only if the power goes while its 268 bytes are written.
    Explorer(suspect, images_per_point=40).every_crash_point(
        ("batch", "rollback", "rollback"), last_step_only=True
    )


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


@mutant
def entries_and_slots_are_synced_at_once(patch: pytest.MonkeyPatch) -> None:
    """As the original does: a slot may survive without its entry."""
    original = FileLogSubject.open

    def opened(self: FileLogSubject, disk: Any) -> FileLog:
        log = original(self, disk)
        segments = log.reader.view.segments
        if segments and isinstance(last := segments[-1], Active):
            last.is_ordered = False
        log._source.sync_mode = "original"
        return log

    patch.setattr(FileLogSubject, "open", opened)


@mutant
def torn_slots_are_not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(active, "read_commit", lambda *_: None)


@mutant
def the_record_comes_after_the_slots(patch: pytest.MonkeyPatch) -> None:
    def write_ahead(self: Active, begin: int, data: bytes, record: bytes) -> None:
        assert self._out is not None
        self._out.write_at(begin, data, sync=True)

    patch.setattr(Active, "_write_ahead", write_ahead)


@mutant
def names_that_a_killed_owner_left_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsDisk, "sync_names", lambda self, directory: None)


@mutant
def entries_show_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    original = FileLog._put

    def put(self: FileLog, data: bytes, ends: Any, index: int) -> None:
        last, count = self._active, self._active.count
        try:
            original(self, data, ends, index)
        except BaseException:
            last.count = min(count + 1, len(last.slots))
            raise

    patch.setattr(FileLog, "_put", put)


@mutant
def recovery_does_not_sync_what_it_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_sync_and_reread", lambda disk, _: index_sizes(disk))


@mutant
def a_rollback_is_not_written_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "write_intent", lambda *_: None)
    remove = OsDisk.remove
    patch.setattr(
        OsDisk,
        "remove",
        lambda self, *names: remove(self, *[n for n in names if "intent" not in n]),
    )


@mutant
def a_rollback_leaves_the_record(patch: pytest.MonkeyPatch) -> None:
    """It brings back what was rolled back."""
    patch.setattr(Active, "finish", lambda self: None)
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
    def careless(disk: Any, index: int, term: int, data: Any, stamps: Any) -> str:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(OsFile, "sync", lambda self, **_: None)
            return original(disk, index, term, data, stamps)

    original = history.write_snapshot
    patch.setattr(writer, "write_snapshot", careless)


@mutant
def entries_are_removed_before_the_mark_is_lowered(patch: pytest.MonkeyPatch) -> None:
    lower, carry_out, late = Marker.lower, intent.carry_out, list[Callable[[], None]]()

    def later(self: Marker, *arguments: Any, **options: Any) -> None:
        late.append(partial(lower, self, *arguments, **options))

    def carried_out(*arguments: Any) -> str:
        done = carry_out(*arguments)
        while late:
            late.pop()()
        return done

    patch.setattr(Marker, "lower", later)
    patch.setattr(writer, "carry_out", carried_out)


@mutant
def a_discard_leaves_the_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Marker, "void", lambda self: None)


@mutant
def one_slot_of_the_mark_is_lowered(patch: pytest.MonkeyPatch) -> None:
    only_one_slot_is_lowered(patch)


@mutant
def the_mark_moves_before_the_entries_are_durable(patch: pytest.MonkeyPatch) -> None:
    original = FileLog._put

    def put(self: FileLog, data: bytes, ends: Any, index: int) -> None:
        active = self._active
        if active.room_for(ends, self._segment_size_max) == len(ends) and active.count:
            begin = int(ends[-2]) if len(ends) > 1 else 0
            word = encode_word(data[begin : begin + 20], active.stop, active.has_spare)
            size = active.head.data_start + active.stop + len(data)
            self._marks._file.advance(size, index + len(ends) - 1, crc32(data), word)
        original(self, data, ends, index)

    patch.setattr(FileLog, "_put", put)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
