"""A backup is a prefix of the commits: whole, with nothing lost or doubled, and durable."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Condition, Thread

import pytest

from holdfast.bars import BarStore, staging
from holdfast.bars.backup import copy_store
from holdfast.doors import create_bars, open_bars, read_bars
from holdfast.errors import ChangedError, ExistsError, HoldfastError
from holdfast.file import OsVolume
from holdfast.testing import Fault, PowerLost, SimDisk
from holdfast.testing.bars import SIM_RUNTIME, open_store
from holdfast.testing.sim_disk import ROOT

START_S = 1_609_545_600  # 2 January 2021
WAIT_SECONDS = 30


def write(store: BarStore, number: int, symbol: str = "A") -> None:
    """Commit a bar and two ticks as one group."""
    group = store.group()
    group.write({"Epoch": [START_S + 86_400 * number], "N": [number]}, "1D", "BAR", symbol=symbol)
    ticks = {"Epoch": [START_S + number % 7] * 2, "N": [number, number]}
    group.write(ticks, "1D", "TICK", symbol=symbol, is_variable=True)
    group.commit()


def numbers(store: BarStore, symbol: str = "A") -> list[int]:
    """Return the numbers of the groups; each must be there whole."""
    found: list[int] = store.query(symbol, "1D", "BAR")["N"].to_pylist()
    ticks = store.query(symbol, "1D", "TICK")["N"].to_pylist()
    assert sorted(ticks) == sorted(found * 2)
    return found


def test_threads_commit_while_a_backup_is_made(tmp_path: Path) -> None:
    symbols = ("A", "B", "C")
    done, grown, stop = dict.fromkeys(symbols, 0), Condition(), False

    def commit(store: BarStore, symbol: str) -> None:
        while not stop:
            write(store, done[symbol], symbol)
            with grown:
                done[symbol] += 1
                grown.notify_all()

    def wait_for_more(*_: int) -> None:
        before = dict(done)
        with grown:
            assert grown.wait_for(
                lambda: all(done[name] > before[name] for name in symbols), WAIT_SECONDS
            )

    with create_bars(tmp_path / "m", flush_ms=1, wal_size_max=20_000) as store:
        threads = [Thread(target=commit, args=(store, name), daemon=True) for name in symbols]
        for thread in threads:
            thread.start()
        try:
            wait_for_more()
            before = dict(done)
            report = store.backup(tmp_path / "copy", on_progress=wait_for_more)
        finally:
            stop = True
            for thread in threads:
                thread.join(WAIT_SECONDS)
        assert report.path == str(tmp_path / "copy")
    with read_bars(tmp_path / "copy") as guest:  # beside this live process
        assert guest.symbols() == list(symbols)
    with open_bars(tmp_path / "copy") as copy:
        for name in symbols:
            found = numbers(copy, name)
            assert found == list(range(len(found)))
            assert before[name] < len(found) <= done[name]
        assert copy.verify().verdict == "clean"
        write(copy, 50_000)
    with open_bars(tmp_path / "m") as store:
        assert numbers(store) == list(range(done["A"]))


def test_a_backup_has_prepared_groups_and_decided_ones(tmp_path: Path) -> None:
    with create_bars(tmp_path / "m") as store:
        for number in range(2):
            group = store.group()
            rows = {"Epoch": [START_S + 86_400 * number], "N": [number]}
            group.write(rows, "1D", "BAR", symbol="P")
            group.prepare()
            if number == 0:
                group.commit()
        report = store.backup(tmp_path / "copy")
        assert report.groups == 1
    with open_bars(tmp_path / "copy") as copy:
        assert copy.query("P", "1D", "BAR")["N"].to_pylist() == [0]
        [undecided] = copy.undecided
        copy.resolve(undecided, commit=True)
        assert copy.query("P", "1D", "BAR")["N"].to_pylist() == [0, 1]


def test_holes_are_not_copied_and_an_empty_store_is(tmp_path: Path) -> None:
    with create_bars(tmp_path / "m") as store:
        store.backup(tmp_path / "empty")
        write(store, 0)
        store.flush()
        store.backup(tmp_path / "copy")
    with open_bars(tmp_path / "empty") as copy:
        assert copy.symbols() == []
    for file in (tmp_path / "m").rglob("*.bin"):
        other = tmp_path / "copy" / file.relative_to(tmp_path / "m")
        assert other.read_bytes() == file.read_bytes()
        assert other.stat().st_blocks <= file.stat().st_blocks + 8


def test_a_backup_replaces_nothing_and_is_not_made_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("x")
    with create_bars(tmp_path / "m") as store:
        for name in ("taken", "file"):
            with pytest.raises(ExistsError, match="exists; name a new directory"):
                store.backup(tmp_path / name)
        for inside in (tmp_path / "m", tmp_path / "m" / "A"):
            with pytest.raises(ValueError, match="cannot be in the store"):
                store.backup(inside)

        def take(*_: int) -> None:
            (tmp_path / "late").mkdir(exist_ok=True)

        with pytest.raises(ExistsError, match="was created meanwhile"):
            store.backup(tmp_path / "late", on_progress=take)
        write(store, 0)  # the store is sound
    left = [path for path in tmp_path.glob("*.copying-*/**/*") if path.is_file()]
    assert not left


def test_no_backup_is_made_while_staged_rows_are_committed(tmp_path: Path) -> None:
    disk = SimDisk()
    with open_store(disk) as store:
        write(store, 0)
        staging.area(disk).write_intent({"others": []})
        with pytest.raises(ChangedError, match="staged rows are being committed"):
            store.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


# Crashes, and planted bugs


class Unsynced(SimDisk):
    """A planted bug: the copy gets its name before it is synced."""

    def volume(self) -> OsVolume:
        volume = super().volume()
        volume.sync = lambda: None  # type: ignore[method-assign]
        return volume


def copy_beside(
    store: BarStore,
    kind: type[SimDisk] = SimDisk,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Make a backup on the disk of the store."""
    disk = store._disk
    assert isinstance(disk, SimDisk)
    parent = kind(disk.posix, "/")
    store._write_back.alone.run(
        lambda: copy_store(disk, store._commits, parent, "copy", "1", on_progress)
    )


def new_store() -> tuple[SimDisk, BarStore]:
    disk = SimDisk()
    store = open_store(disk)
    for number in range(3):
        write(store, number)
        if number == 1:
            store.flush()
    return disk, store


def every_power_cut(kind: type[SimDisk]) -> int:
    """Cut the power at every change; the copy is missing or whole, and the store has all rows."""
    whole = 0
    for point in range(1, 10_000):
        disk, store = new_store()
        disk.posix.dies_at = disk.posix.operations + point
        with suppress(PowerLost):
            copy_beside(store, kind)
            disk.posix.dies_at = None
        is_done = disk.posix.dies_at is None
        for seed in range(8):
            image = disk.posix.after_power_cut(Random(seed))
            if image.exists("/copy"):
                whole += 1
                with BarStore(SimDisk(image, "/copy"), runtime=SIM_RUNTIME) as copy:
                    assert numbers(copy) == [0, 1, 2]
            else:
                assert not is_done
        with BarStore(SimDisk(image, ROOT), runtime=SIM_RUNTIME) as again:
            assert numbers(again) == [0, 1, 2]
        if is_done:
            return whole
    raise AssertionError("the backup does not end")


def test_no_power_cut_leaves_a_part_of_a_backup() -> None:
    assert every_power_cut(SimDisk) >= 2


def test_a_copy_that_is_not_synced_is_caught() -> None:
    with pytest.raises((AssertionError, HoldfastError, OSError, ValueError)):
        every_power_cut(Unsynced)


def flush_meanwhile(store: BarStore, timeout: float) -> Callable[[int, int], None]:
    """Return a callback that commits, and has another thread flush, after the last file."""

    def on_progress(done: int, total: int) -> None:
        if done == total:
            write(store, 3)
            thread = Thread(target=store.flush, daemon=True)
            thread.start()
            thread.join(timeout)

    return on_progress


def test_write_back_waits_until_the_copy_is_made() -> None:
    disk, store = new_store()
    # The time only gives a bug the chance to show.
    copy_beside(store, on_progress=flush_meanwhile(store, 0.2))
    with BarStore(SimDisk(disk.posix, "/copy"), runtime=SIM_RUNTIME) as copy:
        assert numbers(copy) == [0, 1, 2, 3]


def test_a_write_back_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store = new_store()
    monkeypatch.setattr(store._write_back.alone, "run", lambda step: step())
    copy_beside(store, on_progress=flush_meanwhile(store, WAIT_SECONDS))
    with BarStore(SimDisk(disk.posix, "/copy"), runtime=SIM_RUNTIME) as copy:
        assert numbers(copy) != [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["enospc", "short write", "sync eio"])
def test_a_backup_that_fails_leaves_the_store_as_it_is(kind: str) -> None:
    failed = 0
    for at in range(10_000):
        disk, store = new_store()
        posix = disk.posix
        posix.fault = Fault(kind, posix.calls + at)
        try:
            copy_beside(store)
        except OSError:
            failed += 1
        is_over = posix.calls <= posix.fault.at
        posix.fault = None
        if posix.exists("/copy"):  # also if only the sync of its name has failed
            with BarStore(SimDisk(posix, "/copy"), runtime=SIM_RUNTIME) as copy:
                assert numbers(copy) == [0, 1, 2]
        write(store, 3)
        store.flush()
        assert numbers(store) == [0, 1, 2, 3]
        if is_over:
            break
    assert failed > 3 or kind == "short write"  # which is continued
