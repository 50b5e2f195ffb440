"""The five stores have one meaning of create, open, missing, closed, poisoned and full."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.doors import open_log
from holdfast.errors import HoldfastError
from holdfast.handle import Handle
from holdfast.logs.raft_wal import RaftWal
from holdfast.testing.owners.stores import KINDS, LogStore, OwnedStore
from holdfast.testing.store_contract import DiskStoreContract, StoreContract


class TestShanghai(DiskStoreContract):
    kind = "shanghai"


class TestRaftWal(DiskStoreContract):
    kind = "raft-wal"


class TestFileLog(DiskStoreContract):
    kind = "file-log"


class TestBars(DiskStoreContract):
    kind = "bars"


class TestKv(StoreContract):
    kind = "kv"


class Suspect(DiskStoreContract):
    """A log with a bug; the contract must notice it."""

    __test__ = False
    kind = "raft-wal"
    suspect: OwnedStore = KINDS["raft-wal"]()

    @property
    def store(self) -> OwnedStore:
        return self.suspect


def examine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suspect = Suspect()
    suspect.test_a_missing_store_is_not_found_and_not_created(tmp_path)
    suspect.test_every_call_after_close_is_refused(tmp_path / "closed")
    suspect.test_an_open_iterator_is_refused_after_close(tmp_path / "open")
    suspect.test_an_unknown_option_is_refused_by_name(tmp_path / "options")
    suspect.test_a_failed_sync_refuses_writes_and_keeps_what_was_acknowledged(
        tmp_path / "sync", monkeypatch
    )


def a_reader_answers_after_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handle, "check_read", lambda self: None)


def a_closed_handle_opens_again(patch: pytest.MonkeyPatch) -> None:
    def close(self: Handle) -> bool:
        self.refusal = None
        return True

    patch.setattr(Handle, "close", close)


class Creating(LogStore):
    own = staticmethod(partial(open_log, create=True))


def an_open_creates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Suspect, "suspect", Creating("raft-wal"))


def a_failed_sync_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handle, "poison", lambda self, what, error: None)
    patch.setattr("holdfast.file.OsFile._refuse_if_poisoned", lambda self: None)


def an_unknown_option_is_swallowed(patch: pytest.MonkeyPatch) -> None:
    def own(path: Any, **options: Any) -> Any:
        return open_log(path, **{k: v for k, v in options.items() if k != "nonesuch"})

    store = LogStore("raft-wal")
    patch.setattr(store, "own", own, raising=False)
    patch.setattr(Suspect, "suspect", store)


def a_method_forgets_to_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftWal, "refresh", lambda self: 0)


def test_the_suspect_is_innocent_without_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "plant",
    [
        a_reader_answers_after_close,
        a_closed_handle_opens_again,
        an_open_creates,
        a_failed_sync_is_forgotten,
        an_unknown_option_is_swallowed,
        a_method_forgets_to_look,
    ],
)
def test_a_planted_bug_is_caught(
    plant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, HoldfastError)):
        examine(tmp_path, monkeypatch)
