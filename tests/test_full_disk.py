"""A full disk has a way out: on a real file system of 2 MB, with what the front door offers."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast
from holdfast import reserve
from holdfast.cuts import keep_aside
from holdfast.disk import OsDisk
from holdfast.doors import manage_kv
from holdfast.errors import DiskFullError, HoldfastError
from holdfast.logs.retention import Retention
from holdfast.ownership import LOCK
from holdfast.posix import Posix

OPTIONS: dict[str, dict[str, Any]] = {
    "raft-wal": {"segment_size_max": 100_000},
    "shanghai": {"segment_size_max": 100_000},
    "file-log": {"capacity": 256, "request_ttl_ms": 0},
}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("ab", 0) as file:
        for size in (65_536, 4096, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


def append_until_full(log: holdfast.Log) -> list[bytes]:
    """Append entries of 1 kB, and return those that were acknowledged."""
    acknowledged: list[bytes] = []
    with pytest.raises((DiskFullError, HoldfastError)):
        for number in range(log.last_index + 1, 10_000):
            payload = b"%1000d" % number
            log.append([payload])
            acknowledged.append(payload)
    return acknowledged


def drop_all_but(log: Any, kept: int) -> None:
    """Use the format's own way to remove old entries."""
    if log.status().format == "file-log":
        log.create_snapshot(log.last_index - kept, b"state")
    assert log.trim(Retention(before=log.last_index - kept + 1)).freed


def the_log_finds_a_way_out(format: str, small: Path) -> None:
    holdfast.create_log(small / "log", format=format, **OPTIONS[format]).close()
    expected: list[bytes] = []
    for _ in range(3):  # the space that is kept for a way out is there again each time
        with holdfast.open_log(small / "log", **OPTIONS[format]) as log:
            expected += append_until_full(log)
        fill(small)
        with holdfast.read_log(small / "log") as reader:  # a reader needs no space
            shown = pa.table(reader)["payload"].to_pylist()
            assert expected[-len(shown) :] == shown[: len(expected)]
        with holdfast.open_log(small / "log", **OPTIONS[format]) as log:
            drop_all_but(log, 20)
            assert log.first_index > 1
            expected = [log.read(index) for index in range(log.first_index, log.last_index + 1)]
        (small / "filler").unlink()
    with holdfast.open_log(small / "log", **OPTIONS[format]) as log:
        assert log.append([b"goes on"]) == log.last_index
        assert not log.damage


@pytest.mark.parametrize("format", OPTIONS)
def test_a_log_can_be_opened_and_trimmed_on_a_full_disk(format: str, small: Path) -> None:
    the_log_finds_a_way_out(format, small)


def _nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("holdfast.disk.keep", lambda posix, root: None)


def _nothing_is_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("holdfast.disk.give_up", lambda posix, root: None)


@pytest.mark.parametrize("plant", [_nothing_is_kept, _nothing_is_given_up])
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((OSError, HoldfastError, AssertionError)):
        the_log_finds_a_way_out("raft-wal", small)


def test_bars_are_written_back_on_a_full_disk(small: Path) -> None:
    rows = pa.table({"symbol": ["A"] * 5, "Epoch": range(1_700_000_000, 1_700_000_300, 60)})
    rows = rows.append_column("Close", pa.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    with holdfast.create_bars(small / "bars") as bars:
        bars.write(rows, "1Min", "OHLCV")
        fill(small)
        assert bars.flush() == 1
    with holdfast.open_bars(small / "bars") as bars:
        assert bars.query("A", "1Min", "OHLCV")["Close"].to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_kv_store_is_opened_compacted_and_collected_on_a_full_disk(small: Path) -> None:
    rows = {b"k%02d" % number: b"v" * 1000 for number in range(60)}
    with holdfast.create_kv(small / "kv", gc_min_age_ms=0, maintain=False) as kv:
        for key, value in rows.items():
            kv.put(key, value).result()
    fill(small)
    with holdfast.read_kv(small / "kv", lazy=True) as reader:
        assert reader.get(b"k07") == rows[b"k07"]
    with holdfast.open_kv(small / "kv", maintain=False) as kv:
        assert kv.get(b"k59") == rows[b"k59"]
    admin = manage_kv(small / "kv")
    assert admin.compact(everything=True).steps
    assert admin.gc().count
    assert admin.verify().verdict == "clean"
    with holdfast.open_kv(small / "kv", maintain=False) as kv:
        kv.put(b"goes", b"on").result()
        assert pa.table(kv.scan()).num_rows == 61


def test_the_reserve_takes_what_is_left_and_grows_again(small: Path) -> None:
    disk, path = OsDisk(small / "store"), small / "store" / reserve.RESERVE
    disk.lock().release()
    disk.keep_reserve()
    assert path.stat().st_blocks * 512 == Posix.reserve_size
    disk.give_up_reserve()
    assert path.exists(), "there is space enough"
    fill(small)
    disk.give_up_reserve()
    assert not path.exists()
    (small / "other").write_bytes(bytes(Posix.reserve_size // 2))
    disk.keep_reserve()
    assert 0 < path.stat().st_size <= Posix.reserve_size // 2
    (small / "filler").unlink()
    disk.keep_reserve()
    assert path.stat().st_blocks * 512 == Posix.reserve_size
    assert disk.list() == {}, "it is not a file of the store"


def enlarge(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)


def files_of(store: Path) -> dict[str, bytes]:
    own = LOCK, reserve.RESERVE
    files = (file for file in store.rglob("*") if file.is_file() and file.name not in own)
    return {str(file.relative_to(store)): file.read_bytes() for file in files}


@pytest.mark.parametrize("format", OPTIONS)
def test_a_log_whose_torn_tail_cannot_be_kept_is_read_only(format: str, small: Path) -> None:
    entries = [b"one", b"two"]
    with holdfast.create_log(small / "log", format=format, **OPTIONS[format]) as log:
        log.append(entries)
        with pytest.raises(DiskFullError):
            log.append([bytes(range(1, 256)) * 8000])  # more than the disk has
    fill(small)
    before = files_of(small / "log")
    with holdfast.open_log(small / "log", **OPTIONS[format]) as log:
        assert pa.table(log.scan())["payload"].to_pylist() == entries
        assert (log.read(2), log.last_index, log.damage) == (b"two", 2, ())
        for write in (
            lambda: log.append([b"over it"]),
            log.rotate,
            lambda: log.trim(Retention(before=2)),
            lambda: log.submit([b"over it"]).result(),
        ):
            with pytest.raises(DiskFullError, match=r"1,\d\d\d,\d\d\d bytes are needed .* free"):
                write()
    assert files_of(small / "log") == before
    enlarge(small)
    with holdfast.open_log(small / "log", **OPTIONS[format]) as log:
        assert ".cut" in log.recovered[0]
        assert log.append([b"goes on"]) == 3
        assert log.verify().verdict == "clean"


def test_a_bar_store_whose_torn_tail_cannot_be_kept_is_read_only(small: Path) -> None:
    def rows(first: int, count: int) -> pa.Table:
        times = range(1_700_000_000, 1_700_000_000 + 60 * count, 60)
        values = np.random.default_rng(first).random(count)
        return pa.table({"symbol": ["A"] * count, "Epoch": times, "Close": values})

    bars: Any = holdfast.create_bars(small / "bars")
    bars.write(rows(1, 3), "1Min", "OHLCV")
    with pytest.raises(DiskFullError):
        bars.write(rows(2, 130_000), "1Min", "OHLCV")
    bars.close()
    fill(small)
    before = files_of(small / "bars")
    with holdfast.open_bars(small / "bars") as bars:
        assert bars.query("A", "1Min", "OHLCV").num_rows == 3
        for write in (lambda: bars.write(rows(3, 1), "1Min", "OHLCV"), bars.flush):
            with pytest.raises(DiskFullError, match=r"[\d,]{9} bytes are needed .* free"):
                write()
    assert files_of(small / "bars") == before
    enlarge(small)
    with holdfast.open_bars(small / "bars") as bars:
        assert ".cut" in bars.recovered[0]
        assert bars.query("A", "1Min", "OHLCV").num_rows == 3
        bars.write(rows(3, 4), "1Min", "OHLCV")


def test_a_bar_store_that_cannot_be_written_back_is_read_only(small: Path) -> None:
    """The rows are in the WAL; the year files do not fit."""
    count = 20_000
    rows = pa.table(
        {"symbol": ["A"] * count, "Epoch": range(1_640_995_200, 1_640_995_200 + count * 60, 60)}
    )
    rows = rows.append_column("Close", pa.array(np.random.default_rng(1).random(count)))
    bars: Any = holdfast.create_bars(small / "bars")
    bars.write(rows, "1Min", "OHLCV")
    fill(small)
    with pytest.raises(DiskFullError):
        bars.close()
    with holdfast.open_bars(small / "bars") as bars:
        assert bars.query("A", "1Min", "OHLCV").num_rows == count
        with pytest.raises(DiskFullError, match="free"):
            bars.write(rows, "1Min", "OHLCV")
    enlarge(small)
    with holdfast.open_bars(small / "bars") as bars:
        assert bars.query("A", "1Min", "OHLCV").num_rows == count
        bars.write(rows, "1Min", "OHLCV")


def test_a_raft_wal_log_opens_where_its_segment_does_not_fit(small: Path) -> None:
    """A segment that was created on a full disk is smaller than its limit, and stays so."""
    with holdfast.create_log(small / "log", segment_fill_ms=None) as log:  # segments of 64 MiB
        log.append([b"one"])
    with holdfast.open_log(small / "log") as log:
        assert log.append([b"two"]) == 2


def test_what_does_not_fit_is_not_cut(small: Path) -> None:
    disk = OsDisk(small / "store")
    disk.lock().release()
    fill(small)
    with pytest.raises(DiskFullError, match=r"9,000 bytes are needed .* nothing was cut"):
        keep_aside(disk, "segment", 0, bytes(9000))
