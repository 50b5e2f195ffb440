"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk, the meta store or the raft-wal log; the contract must fail
with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.logs.raft_wal.test_recovery import no_phantom_comes_out_of_a_torn_batch
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore

from holdfast.disk import OsFile
from holdfast.errors import HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.mark import Mark
from holdfast.logs import reader
from holdfast.logs.mark import Recalled
from holdfast.logs.raft_wal import RaftWal, marks, recovery, segment_list
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.segment_list import SegmentList
from holdfast.testing import Explorer, LogContract
from holdfast.testing.raft_wal import RaftWalSubject

mutant = Mutants(*BELOW_EVERY_LOG)


class Suspect(RaftWalSubject, LogContract):
    __test__ = False


def examine() -> None:
    suspect = Suspect()
    suspect.test_a_failed_sync_poisons_and_shows_nothing()
    no_phantom_comes_out_of_a_torn_batch()
    sequences = (
        ("batch", "append", "batch"),
        ("large", "batch", "truncate head", "append"),
        ("large", "append", "truncate tail", "append"),
        ("rotate", "truncate all", "append"),
        ("append", "guest", "append"),
    )
    explore(Explorer(suspect), sequences, range(250))


def test_the_suspect_is_innocent_without_a_planted_bug() -> None:
    examine()


@mutant
def entries_show_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def write(self: RaftWal, group: Sequence[Any]) -> None:
        payloads = [payload for batch in group for payload in batch.payloads]
        active, stop = self._segments.active, self._segments.active.stop
        encoded = active.encode(payloads, list(map(len, payloads)), active.meta.size_limit)
        active.push(encoded)
        self._segments.file.write_at(stop, encoded.data, sync=True)

    patch.setattr(RaftWal, "_write_group", write)


@mutant
def a_torn_batch_is_left_in_place(patch: pytest.MonkeyPatch) -> None:
    """As the original does: what is shorter leaves the rest of it behind."""
    patch.setattr(recovery, "used_bytes", lambda *_: b"")


@mutant
def recovery_does_not_sync_what_it_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment_list, "sync_active", lambda *_: None)


@mutant
def a_seal_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    """As the original does: every append fails from then on."""
    original = SegmentList.recover

    def recover(self: SegmentList, recalled: Recalled) -> recovery.Survey:
        with pytest.MonkeyPatch.context() as without:
            without.setattr(SegmentList, "rotate", lambda self: None)
            found = original(self, recalled)
        if self.active.index_start:
            raise HoldfastError("segment is sealed")
        return found

    patch.setattr(SegmentList, "recover", recover)


@mutant
def checksums_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fmt, "bad_slices", lambda *_: [])


@mutant
def a_file_is_removed_before_the_meta_store_drops_its_name(patch: pytest.MonkeyPatch) -> None:
    original = MetaStore.commit

    def commit(self: MetaStore, state: Any) -> None:
        before = self.load()
        stay = {segment.id for segment in state.segments}
        for segment in before.segments if before else ():
            if segment.id not in stay:
                self._disk.remove(f"{segment.base_index:020}-{segment.id:016x}.wal")
        original(self, state)

    patch.setattr(MetaStore, "commit", commit)


@mutant
def a_head_truncated_in_the_tail_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    original = MetaStore.commit

    def commit(self: MetaStore, state: Any) -> None:
        segments = tuple(
            type(s)(
                s.id, s.base_index, s.base_index, s.max_index, s.codec, s.index_start,
                s.create_time, s.seal_time, s.size_limit,
            )
            for s in state.segments
        )  # fmt: skip
        original(self, type(state)(state.next_segment_id, segments))

    patch.setattr(MetaStore, "commit", commit)


@mutant
def the_meta_page_is_not_synced_after_its_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsFile, "sync", lambda self, **_: None)


@mutant
def a_reader_shows_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "_sync", lambda *_: None)


@mutant
def the_mark_moves_before_the_data_is_synced(patch: pytest.MonkeyPatch) -> None:
    original = RaftWal._write_group

    def write_group(self: RaftWal, group: Sequence[Any]) -> None:
        active = self._segments.active
        payloads = [payload for batch in group for payload in batch.payloads]
        encoded = active.encode(payloads, [*map(len, payloads)], active.meta.size_limit)
        last, crc = active.stop_index - 1 + len(payloads), encoded.data[-4:]
        size = active.stop + len(encoded.data)
        self._mark.advance(size, last, int.from_bytes(crc, "little"), self._word)
        original(self, group)

    patch.setattr(RaftWal, "_write_group", write_group)


@mutant
def a_new_transaction_of_the_meta_store_does_not_lower_the_mark(patch: pytest.MonkeyPatch) -> None:
    original = marks.check_store

    def check_store(mark: Mark, state: Any, txid: int) -> Any:
        return original(mark, state, min(txid, int.from_bytes(mark.word[:8], "little")))

    patch.setattr(recovery, "check_store", check_store)


@mutant
def the_mark_knows_a_transaction_before_the_meta_store_does(patch: pytest.MonkeyPatch) -> None:
    original = SegmentList.install

    def install(self: SegmentList, segments: Any, base: int | None) -> None:
        log = getattr(self.show, "__self__", None)
        if isinstance(log, RaftWal):
            log._mark.save(replace(log._mark.mark, word=marks.word_of(log._meta.txid + 1)))
        original(self, segments, base)

    patch.setattr(SegmentList, "install", install)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
