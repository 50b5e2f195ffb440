"""Planted bugs.  A suite that does not catch them proves nothing.

Each mutant breaks one rule of the disk, the meta store or the raft-wal log; the contract must fail
with it.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.logs.raft_wal.test_recovery import no_phantom_comes_out_of_a_torn_batch
from tests.mutants import BELOW_EVERY_LOG, Mutants, explore

from holdfast.disk import OsFile
from holdfast.errors import HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.logs.raft_wal import guest, log, owner, recovery
from holdfast.logs.raft_wal.log import RaftWal
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.owner import Owner
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
        tail, stop = self._tail, self._tail.stop
        encoded = log._encode(tail, payloads, list(map(len, payloads)), tail.meta.size_limit)
        tail.push(encoded)
        self._file.write_at(stop, encoded.data, sync=True)

    patch.setattr(RaftWal, "_write", write)


@mutant
def a_torn_batch_is_left_in_place(patch: pytest.MonkeyPatch) -> None:
    """As the original does: what is shorter leaves the rest of it behind."""
    patch.setattr(recovery, "used_bytes", lambda *_: b"")


@mutant
def recovery_does_not_sync_what_it_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(owner, "look_behind_the_cache", lambda *_: None)


@mutant
def a_seal_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    """As the original does: every append fails from then on."""
    original = Owner._survey

    def survey(self: Owner[Any]) -> None:
        rotate, Owner._rotate = Owner._rotate, lambda self: None  # type: ignore[method-assign]
        try:
            original(self)
        finally:
            Owner._rotate = rotate  # type: ignore[method-assign]
        if self._tail.index_start:
            self._commits.refusal = "segment is sealed"

    patch.setattr(Owner, "_survey", survey)


@mutant
def checksums_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fmt, "bad_slices", lambda *_: [])


@mutant
def a_file_is_removed_before_the_meta_store_lets_go(patch: pytest.MonkeyPatch) -> None:
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
def a_guest_shows_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    class Careless(guest.RaftWalGuest):
        def _survey(self) -> None:
            self._show(self._look_twice())

    patch.setattr(RaftWalSubject, "open_read_only", lambda self, disk: Careless(disk))


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        examine()
