"""A disk that is full from any step on: for the logs and bars, simulated, with planted bugs."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import cuts
from holdfast.errors import DiskFullError
from holdfast.testing.bars import BarExplorer
from holdfast.testing.explorer import LifeExplorer
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.full_disk import FullDisks
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.logs import Explorer
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject

Make = Callable[[], LifeExplorer[Any, Any]]
STEP = 3  # the disk fills up at every third change; `make campaign` tries others
LOG = ("batch", "large", "append", "large", "reopen", "batch")
STORES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "shanghai": (lambda: Explorer(ShanghaiSubject()), (*LOG, "trim", "append")),
    "raft-wal": (lambda: Explorer(RaftWalSubject()), (*LOG, "truncate head", "append")),
    "file-log": (lambda: Explorer(FileLogSubject()), (*LOG, "snapshot", "rollback", "append")),
    "bars": (BarExplorer, ("many", "flush", "ticks", "prepare", "reopen", "bar", "flush")),
}


@pytest.mark.parametrize("has_quota", [False, True], ids=["disk", "quota"])
@pytest.mark.parametrize("store", STORES)
def test_a_store_with_a_reserve_has_a_way_out(store: str, has_quota: bool) -> None:
    make, sequence = STORES[store]
    explorer = make()
    FullDisks(explorer, has_quota=has_quota).explore(*sequence, step=STEP)
    fired = explorer.fired
    print(fired)
    assert fired["quota" if has_quota else "full"] > 20, "the disk was never full"
    assert min(fired["opened"], fired["way out"]) > 20


@pytest.mark.parametrize("store", STORES)
def test_without_a_reserve_what_does_not_fit_is_not_cut(store: str) -> None:
    make, sequence = STORES[store]
    explorer = make()
    FullDisks(explorer, has_reserve=False).explore(*sequence, step=STEP)
    print(explorer.fired)
    assert min(explorer.fired["read-only"], explorer.fired["not cut"]) > 0


def _reserve_is_never_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("holdfast.disk.give_up", lambda posix, root: False)


def _quota_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    def has_room(posix: Any, root: int) -> bool:
        return bool(posix.free_bytes(root) >= posix.reserve_size)

    patch.setattr("holdfast.reserve._has_room", has_room)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("plant", "has_quota"),
    [(_reserve_is_never_given_up, False), (_quota_is_not_seen, True)],
)
def test_a_planted_bug_of_the_reserve_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None],
    has_quota: bool,
    store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, sequence = STORES[store]
    plant(monkeypatch)
    with pytest.raises(BrokenPromiseError, match=r"hidden|stuck"):
        FullDisks(make(), has_quota=has_quota).explore(*sequence, step=STEP)


@pytest.mark.parametrize("store", STORES)
def test_a_cut_without_its_copy_is_caught(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(disk: Any, name: str, pieces: dict[int, bytes]) -> list[str]:
        try:
            return real(disk, name, pieces)
        except DiskFullError:
            return ["a file that does not exist"] * len(pieces)

    make, sequence = STORES[store]
    real = cuts.keep_pieces
    monkeypatch.setattr("holdfast.cuts.keep_pieces", keep)
    monkeypatch.setattr("holdfast.logs.file_log.last_file.keep_pieces", keep)
    with pytest.raises(BrokenPromiseError, match=r"discarded|changed"):
        FullDisks(make(), has_reserve=False).explore(*sequence, step=STEP)
