"""Files that are deleted, emptied, zeroed or flipped in simulated lives are noticed."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.formats import market_wal
from holdfast.formats.mark import Mark
from holdfast.testing.bars import BarExplorer
from holdfast.testing.damages import CLOSED, KILLED, WAYS
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.harms import POWER_CUT, BarHarms, LogHarms
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.logs import Explorer, Subject
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject

LOGS: dict[str, tuple[Subject, str]] = {
    "shanghai": (ShanghaiSubject(), "trim"),
    "raft-wal": (RaftWalSubject(), "truncate head"),
    "file-log": (FileLogSubject(), "snapshot"),
}


def harm_logs(format: str, seeds: Iterable[int] = range(9)) -> Explorer:
    subject, shorten = LOGS[format]
    explorer = Explorer(subject)
    harms = LogHarms(explorer, format)
    for seed in seeds:
        harms.explore("batch", "large", "append", "reopen", "large", "batch", seed=seed)
        harms.explore("large", "batch", "large", shorten, "append", "batch", seed=seed)
    return explorer


def harm_bars(seeds: Iterable[int] = range(6)) -> BarExplorer:
    explorer = BarExplorer()
    harms = BarHarms(explorer)
    for seed in seeds:
        harms.explore("many", "flush", "ticks", "reopen", "bar", "many", seed=seed)
        harms.explore("ticks", "flush", "many", "delete", "prepare", "decide", seed=seed)
    return explorer


@pytest.mark.parametrize("format", LOGS)
def test_nothing_of_a_log_goes_missing_unnoticed(format: str) -> None:
    fired = harm_logs(format).fired
    assert min(fired[one] for one in (KILLED, POWER_CUT, CLOSED, *WAYS)) > 10
    assert min(fired["damaged"], fired["whole"]) > 20


def test_nothing_of_a_bar_store_is_served_wrong() -> None:
    fired = harm_bars().fired
    assert min(fired[one] for one in (KILLED, POWER_CUT, CLOSED, *WAYS)) > 10


@pytest.mark.parametrize("format", LOGS)
def test_a_mark_that_is_not_believed_is_caught(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.logs.mark.decode_file", lambda data: Mark(format))
    with pytest.raises(BrokenPromiseError, match="fewer"):
        harm_logs(format)


def test_groups_whose_checksum_is_not_looked_at_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alike(bytes):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = bytes.__hash__

    def md5(data: Any, **_: Any) -> Any:
        return SimpleNamespace(digest=lambda: Alike(16))

    monkeypatch.setattr(market_wal, "hashlib", SimpleNamespace(md5=md5))
    with pytest.raises(BrokenPromiseError, match="changed"):
        harm_bars(range(40))
