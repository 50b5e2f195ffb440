"""Committing: durable, whole, together; prepared groups; one owner; what a failure does."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.bars import BarReader, BarStore, open_bars
from holdfast.errors import CorruptError, HoldfastError, LockedError, PoisonedError
from holdfast.testing import Fault, SimDisk
from holdfast.testing.bars import open_store

DAY_S = 86_400
START_S = 1_609_545_600  # 2 January 2021


def bars(*prices: float, start_s: int = START_S) -> "np.typing.NDArray[np.void]":
    rows = [(start_s + n * DAY_S, price) for n, price in enumerate(prices)]
    return np.array(rows, [("Epoch", "<i8"), ("Close", "<f8")])


def closes(store: BarStore | BarReader, symbol: str = "A") -> list[float]:
    found: list[float] = store.query(symbol, "1D", "X")["Close"].to_pylist()
    return found


def test_a_group_is_visible_before_and_after_it_is_written_back(store: BarStore) -> None:
    store.write(bars(1, 2), "1D", "X", symbol="A")
    store.write(bars(5), "1D", "X", symbol="A")
    assert closes(store) == [5, 2]
    assert store.write_back() == 2
    assert store.write_back() == 0
    assert closes(store) == [5, 2]


def test_one_sync_commits(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1), "1D", "X", symbol="A")
    before = disk.posix.operations
    store.write(bars(2), "1D", "X", symbol="A")
    assert disk.posix.operations - before == 2  # one write, and its sync


def test_many_symbols_are_one_group(store: BarStore) -> None:
    table = pa.table(
        {
            "symbol": ["B", "A", "B"],
            "time": pa.array([START_S, START_S, START_S + DAY_S], pa.timestamp("s", "UTC")),
            "Close": [1.0, 2.0, 3.0],
        }
    )
    store.write(table, "1D", "X")
    assert (closes(store, "A"), closes(store, "B")) == ([2], [1, 3])
    assert store.symbols() == store.symbols("1D", "X") == ["A", "B"]
    assert store.buckets() == ["A/1D/X", "B/1D/X"]
    assert len(store._pending.waiting()) == 1


def test_writers_who_wait_together_are_committed_together(tmp_path: Path) -> None:
    with open_bars(tmp_path, write_back_ms=1) as store:
        tgids: list[int] = []

        def work(number: int) -> None:
            for n in range(10):
                tgids.append(store.write(bars(n), "1D", "X", symbol=f"S{number}"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        seen: set[str] = set()
        while any(thread.is_alive() for thread in threads):
            seen |= set(store.symbols())
        for thread in threads:
            thread.join()
        assert len(tgids) == 160
        assert len(set(tgids)) < 160
        assert [closes(store, f"S{number}") for number in range(16)] == [[9]] * 16
        assert seen <= set(store.symbols())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "LOCK",
        "category_name",
    ]


def test_a_prepared_group_waits_for_its_decision(disk: SimDisk, store: BarStore) -> None:
    group, other = store.group(), store.group()
    group.write(bars(1), "1D", "X", symbol="A")
    other.write(bars(2), "1D", "X", symbol="B")
    tgid = group.prepare()
    other.prepare()
    assert store.undecided[0] == tgid
    assert len(store.undecided) == 2
    assert store.symbols() == []
    store.write_back()
    group.commit()
    other.abort()
    assert not store.undecided
    assert (store.symbols(), closes(store)) == (["A"], [1.0])
    with pytest.raises(HoldfastError, match="committed"):
        group.abort()
    with pytest.raises(HoldfastError, match="no undecided"):
        store.resolve(tgid, commit=True)


@pytest.mark.parametrize("commit", [True, False])
def test_undecided_groups_outlive_crashes_and_closing(disk: SimDisk, commit: bool) -> None:
    store = open_store(disk)
    group = store.group()
    group.write(bars(1), "1D", "X", symbol="A")
    tgid = group.prepare()
    disk = disk.after_kill()
    with open_store(disk) as store:
        assert store.undecided == (tgid,)
    with open_store(disk) as store:
        assert store.undecided == (tgid,)
        store.resolve(tgid, commit=commit)
        assert store.symbols() == (["A"] if commit else [])
    with open_store(disk) as store:
        assert (store.undecided, store.symbols()) == ((), ["A"] if commit else [])


def test_a_failed_commit_shows_nothing_and_poisons(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1), "1D", "X", symbol="A")
    disk.posix.fault = Fault("sync eio", disk.posix.calls, for_ever=True)
    with pytest.raises(OSError, match="error"):
        store.write(bars(2), "1D", "X", symbol="A")
    disk.posix.fault = None
    assert closes(store) == [1]
    with pytest.raises(PoisonedError):
        store.write(bars(3), "1D", "X", symbol="A")
    with pytest.raises(PoisonedError):
        store.write_back()
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1]


def test_a_failed_write_back_loses_nothing(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1, 2), "1D", "X", symbol="A")
    disk.posix.fault = Fault("sync eio", disk.posix.calls, for_ever=True)
    with pytest.raises(OSError, match="error"):
        store.write_back()
    disk.posix.fault = None
    assert closes(store) == [1, 2]
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1, 2]


def test_there_is_one_owner(tmp_path: Path) -> None:
    with open_bars(tmp_path) as store:
        store.write(bars(1), "1D", "X", symbol="A")
        with pytest.raises(LockedError):
            open_bars(tmp_path)
        with open_bars(tmp_path, read_only=True) as guest:
            assert closes(guest) == [1]


def test_what_does_not_fit_is_refused_and_the_rest_goes_on(store: BarStore) -> None:
    store.write(bars(1), "1D", "X", symbol="A")
    other = np.array([(START_S, 1)], [("Epoch", "<i8"), ("Open", "<i4")])
    for symbol, timeframe in (("A", "1D"), ("../A", "1D"), ("A", "1Year"), ("LOCK", "1D")):
        with pytest.raises(ValueError, match=r"columns|name|timeframe"):
            store.write(other, timeframe, "X", symbol=symbol)
    with pytest.raises(ValueError, match="one row"):
        store.write(bars(1), "1D", "X", symbol="A", is_variable=True)
    one, two = store.group(), store.group()
    one.write(other, "1D", "Y", symbol="A")
    two.write(bars(1), "1D", "Y", symbol="A")
    one.commit()
    with pytest.raises(ValueError, match="meanwhile"):
        two.commit()
    store.write(bars(2), "1D", "X", symbol="A")
    assert closes(store) == [2]


def test_tgids_never_go_backwards(disk: SimDisk) -> None:
    clock = iter([10**18, 10**17, 5, 5, 5, 5, 5, 5])
    store = BarStore(disk, now_ns=lambda: next(clock), pid=1, was_running=lambda *_: False)
    tgids = [store.write(bars(n), "1D", "X", symbol="A") for n in range(3)]
    assert tgids == sorted(set(tgids))
    disk = disk.after_kill()
    with open_store(disk) as store:
        assert store.write(bars(9), "1D", "X", symbol="A") > 10**18
        assert closes(store) == [9]


def test_rows_are_deleted_for_good(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(0, 1, 2, 3, start_s=START_S - DAY_S), "1D", "X", symbol="A")
    assert store.delete("A", "1D", "X", start="2021-01-03", end="2021-01-03T23:00") == 1
    assert closes(store) == [0, 1, 3]
    store.write_back()
    assert store.delete("A", "1D", "X", end="2021-01-01") == 1
    assert closes(store) == [1, 3]
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1, 3]
        assert store.delete("A", "1D", "X") == 2
        assert closes(store) == []


def test_a_closed_store_says_so(store: BarStore) -> None:
    store.close()
    store.close()
    with pytest.raises(HoldfastError, match="closed"):
        store.write(bars(1), "1D", "X", symbol="A")


def test_what_is_committed_while_the_store_closes_is_kept(
    disk: SimDisk, store: BarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, late = store._alone, [2.0, 3.0]

    def alone(step: Callable[[], Any]) -> Any:
        if step == store._finish and late:  # another thread, behind the last write-back
            store.write(bars(late.pop(0)), "1D", "Y", symbol="A")
        return original(step)

    store.write(bars(1), "1D", "X", symbol="A")
    monkeypatch.setattr(store, "_alone", alone)
    store.close()
    with open_store(disk) as store:
        assert store.query("A", "1D", "Y")["Close"].to_pylist() == [3]
    assert not [name for name in disk.files() if name.startswith("WALFile")]


def test_damage_is_told_and_nothing_is_written(disk: SimDisk) -> None:
    store = open_store(disk)
    for n in range(3):
        store.write(bars(n), "1D", "X", symbol="A")
    disk = disk.after_kill()
    name = next(name for name in disk.files() if name.startswith("WALFile"))
    disk.flip(name, 8 * 100)
    before = disk.files()
    with open_store(disk) as store:
        assert store.damage
        with pytest.raises(CorruptError, match="salvage"):
            store.write(bars(1), "1D", "X", symbol="A")
    assert disk.files()[name] == before[name]


def test_a_full_log_is_followed_by_a_new_one(disk: SimDisk, store: BarStore) -> None:
    for n in range(20):
        store.write(bars(n), "1D", "X", symbol="A")
    assert sum(name.startswith("WALFile") for name in disk.files()) > 1
    store.write_back()
    assert sum(name.startswith("WALFile") for name in disk.files()) == 1
    assert closes(store) == [19]


def test_too_much_pending_is_written_back_by_the_writer(disk: SimDisk) -> None:
    with BarStore(disk, pending_size_max=1) as store:
        store.write(bars(1), "1D", "X", symbol="A")
        assert store._pending.waiting() == []
