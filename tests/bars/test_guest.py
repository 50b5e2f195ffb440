"""Guests beside a live owner: whole groups, nothing changed."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.bars.test_store import START_S, bars, closes

from holdfast.bars import BarReader, BarStore, recovery
from holdfast.bars.catalog import Catalog
from holdfast.disk import OsFile
from holdfast.doors import read_bars
from holdfast.formats import market_wal as fmt
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.bars import open_store


def test_a_guest_follows_the_owner(disk: SimDisk, store: BarStore) -> None:
    with BarReader(disk) as guest:
        assert guest.symbols() == []
        for n in range(30):
            store.write(bars(n, n), "1D", "X", symbol="A")
            if n % 4 == 0:
                store.flush()
            assert closes(guest) == [n, n]
        before = disk.posix.operations
        assert guest.latest("A", "1D", "X")["Close"].to_pylist() == [29]
        assert disk.posix.operations <= before + 2, "a guest syncs logs, and changes nothing"


def test_groups_that_a_guest_has_shown_survive_a_power_cut() -> None:
    """The owner was killed after its write, and before the sync of it."""
    shown = 0
    for step in range(8):
        disk = SimDisk()
        store = open_store(disk)
        store.write(bars(1), "1D", "X", symbol="A")
        disk.posix.dies_at = disk.posix.operations + step
        with suppress(PowerLost):
            store.write(bars(2), "1D", "X", symbol="A")
        disk = disk.after_kill()
        with BarReader(disk) as guest:
            found = closes(guest)
        shown += found == [2]
        for seed in range(12):
            with open_store(disk.after_power_cut(Random(seed))) as heir:
                assert closes(heir) == found
    assert shown > 1, "also what was not acknowledged"


def test_groups_are_whole_to_a_guest_while_they_are_written_back(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np
from holdfast.doors import open_bars, read_bars
from tests.bars.test_store import bars, START_S
store = open_bars({str(tmp_path)!r}, create=True, flush_ms=1, wal_size_max=5000)
ticks = [("Epoch", "<i8"), ("Price", "<i4")]
for n in range(100000):
    group = store.group()
    for symbol in "ABC":
        group.write(bars(float(n), float(n)), "1D", "X", symbol=symbol)
    group.write(np.array([(START_S, n)], ticks), "1D", "T", symbol="A", is_variable=True)
    group.commit()
    print(n, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    seen = set[float]()
    with read_bars(tmp_path) as guest:
        while len(seen) < 25:
            found = guest.query("A,B,C", "1D", "X")["Close"].to_pylist()
            assert len(set(found)) == 1
            assert len(found) == 6
            prices = guest.query("A", "1D", "T")["Price"].to_pylist()
            assert prices == list(range(len(prices)))
            assert prices[-1] >= found[0]
            seen.add(found[0])
    process.kill()
    process.stdout.close()
    process.wait()


def test_a_guest_notices_an_owner_that_came_and_went(disk: SimDisk) -> None:
    """There is no log at either look, and the files of a group are read before and after it."""
    with open_store(disk) as store:
        for symbol in "AB":
            store.write(bars(1), "1D", "X", symbol=symbol)

    def visit() -> None:
        with open_store(disk) as store:
            group = store.group()
            for symbol in "AB":
                group.write(bars(2), "1D", "X", symbol=symbol)
            group.commit()

    with BarReader(disk) as guest:
        read, reads = guest._catalog.years, list[str]()

        def years(key: str) -> frozenset[int]:
            reads.append(key)
            if len(reads) == 2:  # A was read, B was not
                visit()
            return read(key)

        guest._catalog.years = years  # type: ignore[method-assign]
        assert guest.query("A,B", "1D", "X")["Close"].to_pylist() == [2, 2]


def test_a_guest_notices_logs_that_end_while_it_opens_them(disk: SimDisk) -> None:
    """The owner is done with both logs after the guest has listed them: the older is removed, the
    newer is marked as replayed.  A group of the older must not hide a newer one in the files.
    """
    store = open_store(disk)
    for symbol in "AB":
        store.write(bars(1), "1D", "X", symbol=symbol)
    commits, logs = store._commits, store._commits.logs
    commits.remove_finished = lambda: None  # type: ignore[method-assign]
    listings, listed = list[int](), disk.list

    def write_back() -> None:
        logs._size_max = 0  # the next group begins a log
        days = [START_S, START_S + 86400] * 2  # of the second day there is no bar yet
        store.write({"symbol": [*"AABB"], "Epoch": days, "Close": [2.0] * 4}, "1D", "X")
        store.flush()

    def end(directory: str = "") -> dict[str, int]:
        names = listed(directory)
        if directory == "" and reads and not listings:  # the second look has begun
            listings.append(len([name for name in names if name.startswith("WALFile")]))
            *older, newest = logs._logs.values()
            for wal in older:
                logs._remove(wal)
            newest.mark(fmt.CLOSED, fmt.REPLAYED, 0)
        return names

    with BarReader(disk) as guest:
        read, reads = guest._catalog.years, list[str]()

        def years(key: str) -> frozenset[int]:
            if not reads:
                write_back()
            reads.append(key)
            return read(key)

        guest._catalog.years = years  # type: ignore[method-assign]
        disk.list = end  # type: ignore[method-assign]
        assert guest.query("A,B", "1D", "X")["Close"].to_pylist() == [2, 2, 2, 2]
        assert listings[0] > 1


def test_names_of_a_group_are_listed_together(disk: SimDisk) -> None:
    with open_store(disk) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    store = open_store(disk)
    with BarReader(disk) as guest:
        directories = guest._catalog.symbols

        def symbols() -> list[str]:
            found = directories()
            if len(found) == 1:
                store.write(
                    {"symbol": ["B", "C"], "Epoch": [START_S] * 2, "Close": [1.0] * 2}, "1D", "X"
                )
            return found

        guest._catalog.symbols = symbols  # type: ignore[method-assign]
        assert guest.symbols() == ["A", "B", "C"]
    store.close()


def test_a_guest_maps_nothing(
    disk: SimDisk, store: BarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner writes to year files in place, and its recovery cuts logs."""
    count = 300_000  # more than one window
    rows = {"Epoch": START_S + 60 * np.arange(1, count + 1), "Close": np.arange(count, dtype="<f8")}
    store.write(rows, "1Min", "X", symbol="A")
    store.flush()
    store.write({"Epoch": [START_S + 60], "Close": [7.0]}, "1Min", "X", symbol="A")

    def refuse(file: OsFile) -> memoryview:
        raise AssertionError("a file that another process may write to is mapped")

    monkeypatch.setattr(OsFile, "map", refuse)
    with BarReader(disk) as guest:
        found = guest.query("A", "1Min", "X")["Close"].to_numpy()
        assert found[0] == 7.0
        assert np.array_equal(found[1:], np.arange(1, count))
        assert (
            guest.query("A", "1Min", "X", limit=200_000)["Close"].to_numpy()[0] == count - 200_000
        )
    assert len(recovery.look(disk, Catalog(disk), is_shared=True).changes()) == 1
