"""Year files as they come to be: many files, few descriptors, runs of records, payloads."""

from pathlib import Path

import numpy as np
import pytest
from tests.bars.year_images import no_index_precedes_its_data

from holdfast.bars import BarStore
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.formats import year_file as fmt
from holdfast.testing import SimDisk
from holdfast.testing.bars import open_store
from holdfast.testing.sim_disk import SimPosix

START_S = 1_609_459_200


def day_bars(*days: int, price: float = 1.0) -> "np.typing.NDArray[np.void]":
    rows = [(START_S + day * 86_400, price + day) for day in days]
    return np.array(rows, [("Epoch", "<i8"), ("Close", "<f4")])


def test_the_order_is_data_sync_index_sync_log(
    disk: SimDisk, store: BarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(day_bars(1), "1D", "X", symbol="A")
    store.flush()
    store.write(day_bars(2), "1D", "X", symbol="A")
    calls: list[str] = []
    pwrite, syncfs = SimPosix.pwrite, SimPosix.syncfs

    def write(self: SimPosix, fd: int, data: memoryview, offset: int, *, sync: bool) -> int:
        calls.append(f"{len(data)} bytes at {offset}{', sync' * sync}")
        return pwrite(self, fd, data, offset, sync=sync)

    def sync_all(self: SimPosix, fd: int) -> None:
        calls.append("sync")
        syncfs(self, fd)

    monkeypatch.setattr(SimPosix, "pwrite", write)
    monkeypatch.setattr(SimPosix, "syncfs", sync_all)
    store.flush()
    record = 37_024 + 16
    assert calls[:4] == [f"4 bytes at {record + 8}", "sync", f"8 bytes at {record}", "sync"]
    assert calls[4].startswith("11 bytes")
    assert calls[4].endswith("sync")
    assert len(calls) == 5


def test_no_power_cut_leaves_an_index_without_its_data() -> None:
    no_index_precedes_its_data()


def test_more_files_than_descriptors(tmp_path: Path) -> None:
    symbols = np.array([f"S{n}" for n in range(300)])
    columns = {"symbol": symbols, "time": np.full(300, START_S * 10**9), "N": np.arange(300)}
    with open_bars(tmp_path, create=True, open_files_max=7) as store:
        for n in range(3):
            store.write({**columns, "N": columns["N"] + n}, "1H", "X")
            store.flush()
        assert len(store._write_back._files._open) <= 7
        found = store.latest("*", "1H", "X")
    assert sorted(found["N"].to_pylist()) == list(range(2, 302))
    assert len(list(tmp_path.rglob("*.bin"))) == 300


def test_runs_scattered_records_and_removals_in_one_go(disk: SimDisk, store: BarStore) -> None:
    store.write(day_bars(0, 1, 2, 3, 4, 7, 9, 200, 364), "1D", "X", symbol="A")
    store.delete("A", "1D", "X", start="2021-01-03", stop="2021-01-05")
    store.write(day_bars(3, price=50), "1D", "X", symbol="A")
    wanted = store.query("A", "1D", "X")
    assert store.flush() == 3
    assert store.query("A", "1D", "X") == wanted
    assert wanted["Close"].to_pylist() == [1, 2, 53, 5, 8, 10, 201, 365]


def test_a_payload_at_the_end_is_replaced_and_others_move(tmp_path: Path) -> None:
    def ticks(day: int, *prices: int) -> "np.typing.NDArray[np.void]":
        rows = [(START_S + day * 86_400 + n, price) for n, price in enumerate(prices)]
        return np.array(rows, [("Epoch", "<i8"), ("N", "<i4")])

    path = tmp_path / "A/1D/T/2021.bin"
    sizes = []
    with open_bars(tmp_path, create=True, compress_ticks=False) as store:
        for day, prices in ((5, (1, 2)), (5, (3,)), (6, (4,)), (5, (5,)), (5, (6,))):
            store.write(ticks(day, *prices), "1D", "T", symbol="A", is_variable=True)
            store.flush()
            sizes.append(path.stat().st_size - 37_024 - 365 * 24)
        assert sorted(store.query("A", "1D", "T")["N"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert sizes == [16, 24, 32, 64, 72]


def test_a_file_stays_compressed_or_uncompressed(tmp_path: Path) -> None:
    tick = np.array([(START_S + 5 * 86_400, 1)], [("Epoch", "<i8"), ("N", "<i4")])
    for compress, name in ((True, "yes"), (False, "no")):
        for option in (compress, None, None):
            with open_bars(tmp_path / name, create=True, compress_ticks=option) as store:
                store.write(tick, "1D", "T", symbol="A", is_variable=True)
                tick["Epoch"] += 86_400
        data = (tmp_path / name / "A/1D/T/2021.bin").read_bytes()
        slots = np.frombuffer(data, fmt.SLOT, 365, fmt.HEADER_SIZE)
        for _, offset, length in slots[slots["length"] > 0].tolist():
            rows = fmt.decode_payload(data[offset : offset + length], 8)
            assert isinstance(rows, tuple)
            assert rows[1] is compress


def test_files_are_sparse_private_and_named_as_marketstore_wants_it(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(day_bars(3), "1Min", "X", symbol="A")
    path = tmp_path / "A/1Min/X/2021.bin"
    assert path.stat().st_size == fmt.HEADER_SIZE + 525_600 * 16
    assert path.stat().st_blocks * 512 < 100_000
    assert {oct(one.stat().st_mode & 0o777) for one in tmp_path.rglob("*")} == {"0o600", "0o700"}
    categories = {
        str(one.relative_to(tmp_path)): one.read_text() for one in tmp_path.rglob("category_name")
    }
    assert categories == {
        "category_name": "Symbol",
        "A/category_name": "Timeframe",
        "A/1Min/category_name": "AttributeGroup",
        "A/1Min/X/category_name": "Year",
    }


def test_temporary_files_of_marketstore_are_not_changed(tmp_path: Path) -> None:
    kept = tmp_path / "WALFile.5.walfile.tmp"
    kept.write_bytes(b"of a real server")
    with open_bars(tmp_path, create=True) as store:
        store.write(day_bars(3), "1D", "X", symbol="A")
    assert kept.read_bytes() == b"of a real server"
    assert open_store(SimDisk()).symbols() == []
    assert OsDisk(tmp_path).directories() == ["A"]
