"""Committing: durable, whole, together; prepared groups; one owner; what a failure does."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.bars import BarReader, BarStore
from holdfast.doors import create_bars, open_bars, read_bars
from holdfast.errors import (
    ClosedError,
    CorruptError,
    ExistsError,
    HoldfastError,
    LockedError,
    NotFoundError,
    PoisonedError,
)
from holdfast.group_commit import Submitted
from holdfast.reserve import RESERVE
from holdfast.testing import Fault, SimDisk
from holdfast.testing.bars import SIM_RUNTIME, open_store

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
    assert store.flush() == 2
    assert store.flush() == 0
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
    assert len(store._commits.pending.waiting()) == 1


def test_waiting_writers_share_a_commit(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True, flush_ms=1) as store:
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
        RESERVE,
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
    store.flush()
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
    disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
    with pytest.raises(OSError, match="error"):
        store.write(bars(2), "1D", "X", symbol="A")
    disk.posix.fault = None
    assert closes(store) == [1]
    with pytest.raises(PoisonedError):
        store.write(bars(3), "1D", "X", symbol="A")
    with pytest.raises(PoisonedError):
        store.flush()
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1]


def test_a_failed_write_back_loses_nothing(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1, 2), "1D", "X", symbol="A")
    disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
    with pytest.raises(OSError, match="error"):
        store.flush()
    disk.posix.fault = None
    assert closes(store) == [1, 2]
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1, 2]


def test_there_is_one_owner(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1), "1D", "X", symbol="A")
        with pytest.raises(LockedError):
            open_bars(tmp_path, create=True)
        with read_bars(tmp_path) as guest:
            assert closes(guest) == [1]


def test_a_group_that_does_not_fit_is_refused_and_the_others_commit(store: BarStore) -> None:
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
    runtime = replace(SIM_RUNTIME, now_ns=lambda: next(clock))
    store = BarStore(disk, create=True, runtime=runtime)
    tgids = [store.write(bars(n), "1D", "X", symbol="A") for n in range(3)]
    assert tgids == sorted(set(tgids))
    disk = disk.after_kill()
    with open_store(disk) as store:
        assert store.write(bars(9), "1D", "X", symbol="A") > 10**18
        assert closes(store) == [9]


def test_rows_are_deleted_for_good(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(0, 1, 2, 3, start_s=START_S - DAY_S), "1D", "X", symbol="A")
    assert store.delete("A", "1D", "X", start="2021-01-03", stop="2021-01-04") == 1
    assert closes(store) == [0, 1, 3]
    store.flush()
    assert store.delete("A", "1D", "X", stop="2021-01-02") == 1
    assert closes(store) == [1, 3]
    store.close()
    with open_store(disk) as store:
        assert closes(store) == [1, 3]
        assert store.delete("A", "1D", "X") == 2
        assert closes(store) == []


def test_every_call_of_a_closed_store_is_refused(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1), "1D", "X", symbol="A")
    group, reader = store.group(), BarReader(disk)
    store.close()
    store.close()
    reader.close()
    reader.close()
    calls: list[Callable[[], object]] = [
        lambda: store.write(bars(1), "1D", "X", symbol="A"),
        lambda: store.submit(bars(1), "1D", "X", symbol="A"),
        lambda: group.write(bars(1), "1D", "X", symbol="A"),
        lambda: store.delete("A", "1D", "X"),
        lambda: store.undecided,
        lambda: store.resolve(1, commit=True),
        store.group,
        store.flush,
        store.metrics,
    ]
    for either in (store, reader):
        calls += [
            lambda either=either: either.query("A", "1D", "X"),  # type: ignore[misc]
            lambda either=either: either.latest("A", "1D", "X"),  # type: ignore[misc]
            lambda either=either: either.schema("A", "1D", "X"),  # type: ignore[misc]
            either.symbols,
            either.buckets,
            either.status,
            either.verify,
        ]
    for call in calls:
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert "closed" in repr(store)
    assert "closed" in repr(reader)


def test_what_is_committed_while_the_store_closes_is_kept(
    disk: SimDisk, store: BarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, late = store._commits.finish, [2.0, 3.0]

    def finish() -> bool:
        if late:  # another thread, after the last write-back
            store.write(bars(late.pop(0)), "1D", "Y", symbol="A")
        return original()

    store.write(bars(1), "1D", "X", symbol="A")
    monkeypatch.setattr(store._commits, "finish", finish)
    store.close()
    with open_store(disk) as store:
        assert store.query("A", "1D", "Y")["Close"].to_pylist() == [3]
    assert not [name for name in disk.files() if name.startswith("WALFile")]


def test_damage_is_reported_and_nothing_is_written(disk: SimDisk) -> None:
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
    store.flush()
    assert sum(name.startswith("WALFile") for name in disk.files()) == 1
    assert closes(store) == [19]


def test_too_much_pending_is_written_back_by_the_writer(disk: SimDisk) -> None:
    with BarStore(disk, create=True, pending_size_max=1) as store:
        store.write(bars(1), "1D", "X", symbol="A")
        assert store._commits.pending.waiting() == []


def test_submitted_groups_are_durable_when_their_result_is_there(
    disk: SimDisk, store: BarStore
) -> None:
    handles = [store.submit(bars(n), "1D", "X", symbol="A") for n in (1, 2, 3)]
    tgids = [handle.result(10) for handle in handles]
    assert tgids == sorted(tgids)
    assert all(handle.done() for handle in handles)
    assert closes(store) == [3]

    async def write() -> int:
        return await store.submit(bars(4), "1D", "X", symbol="A")

    assert asyncio.run(write()) >= tgids[-1]
    with pytest.raises(ValueError, match="columns"):
        store.submit({"Epoch": [START_S], "Other": [1]}, "1D", "X", symbol="A")
    with open_store(disk.copy_after_kill()) as recovered:
        assert closes(recovered) == [4]


def test_metrics_count_commits_and_write_backs(store: BarStore) -> None:
    store.write(bars(1), "1D", "X", symbol="A")
    store.flush()
    found = {metric.name: metric for metric in store.metrics()}
    assert (found["groups_total"].value, found["written_back_total"].value) == (1, 1)
    assert found["waiting_groups"].value == 0
    assert found["commit_seconds"].buckets[-1][1] == 1
    assert found["write_back_seconds"].buckets[-1][1] == 1


def test_status_verify_and_repr_of_an_owner_and_a_reader(disk: SimDisk, store: BarStore) -> None:
    store.write(bars(1, 2), "1D", "X", symbol="A")
    with BarReader(disk) as reader:
        assert reader.status().waiting == store.status().waiting == 1
        store.flush()
        for either in (store, reader):
            assert (either.status().symbols, either.status().verdict) == (1, "clean")
            assert (either.verify().rows, either.verify().verdict) == (2, "clean")
            assert "open" in repr(either)
            assert "<table>" in either._repr_html_()


def test_a_missing_store_and_a_taken_directory_raise_different_errors(tmp_path: Path) -> None:
    for call in (open_bars, read_bars):
        with pytest.raises(NotFoundError, match="no bar store"):
            call(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"notes\.txt"):
        open_bars(tmp_path, create=True)
    create_bars(tmp_path / "new").close()
    with pytest.raises(ExistsError, match="already"):
        create_bars(tmp_path / "new")
    open_bars(tmp_path / "new").close()
    with pytest.raises(TypeError, match="nonsense"):
        open_bars(tmp_path / "new", nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonsense"):
        read_bars(tmp_path / "new", nonsense=1)  # type: ignore[call-arg]


def test_rows_that_others_commit_during_a_delete_stay(store: BarStore) -> None:
    store.write(bars(1, 2), "1D", "X", symbol="A")
    rows, handles = store._rows, list[Submitted]()

    def meanwhile(*args: Any) -> Any:
        found = rows(*args)
        other = threading.Thread(
            target=lambda: handles.append(store.submit(bars(9), "1D", "X", symbol="A"))
        )
        other.start()
        other.join()
        return found

    store._rows = meanwhile  # type: ignore[method-assign,assignment]
    assert store.delete("A", "1D", "X") == 2
    store._rows = rows  # type: ignore[method-assign]
    handles[0].result()
    assert closes(store) == [9]
