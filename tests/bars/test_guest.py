"""Guests beside a live owner: whole groups, nothing changed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.bars.test_store import START_S, bars, closes

from holdfast.bars import BarReader, BarStore, open_bars, replay
from holdfast.bars.catalog import Catalog
from holdfast.disk import OsFile
from holdfast.testing import SimDisk


def test_a_guest_follows_the_owner(disk: SimDisk, store: BarStore) -> None:
    with BarReader(disk) as guest:
        assert guest.symbols() == []
        for n in range(30):
            store.write(bars(n, n), "1D", "X", symbol="A")
            if n % 4 == 0:
                store.write_back()
            assert closes(guest) == [n, n]
        before = disk.posix.operations
        assert guest.latest("A", "1D", "X")["Close"].to_pylist() == [29]
        assert disk.posix.operations <= before + 2, "a guest syncs logs, and changes nothing"


def test_groups_are_whole_to_a_guest_while_they_are_written_back(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np
from holdfast.bars import open_bars
from tests.bars.test_store import bars, START_S
store = open_bars({str(tmp_path)!r}, write_back_ms=1, wal_size_max=5000)
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
    with open_bars(tmp_path, read_only=True) as guest:
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


def test_a_guest_maps_nothing(
    disk: SimDisk, store: BarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner writes to year files in place, and its recovery cuts logs."""
    count = 300_000  # more than one window
    rows = {"Epoch": START_S + 60 * np.arange(1, count + 1), "Close": np.arange(count, dtype="<f8")}
    store.write(rows, "1Min", "X", symbol="A")
    store.write_back()
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
    assert len(replay.look(disk, Catalog(disk), is_shared=True).changes()) == 1
