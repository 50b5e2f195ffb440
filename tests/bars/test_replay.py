"""Opening a root after others: every state of a log, every owner, and hostile logs."""

import os
import subprocess
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tests.bars.conftest import Golden
from tests.bars.test_store import bars, closes

from holdfast import runtime
from holdfast.bars import BarReader, BarStore, open_bars
from holdfast.bars.group import NewFile
from holdfast.bars.replay import committed
from holdfast.errors import HoldfastError, LockedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import schema_of
from holdfast.testing import Fault, SimDisk
from holdfast.testing.bars import open_store

SCHEMA = schema_of((("Close", 2),), False)
PATH = "A/1D/X/2021.bin"
NAME = "WALFile.1465405207042113300"


def sets_for(price: float = 7.0, path: str = PATH, index: int = 1, width: int = 8) -> bytes:
    place = fmt.encode_place(fmt.FIXED, path, 2021, 1)
    return fmt.encode_set(place, [index], np.array([price], "<f8").tobytes()[:width], width)


def log(*groups: bytes, status: tuple[int, int] = (1, 1), pid: int = 0, tgid: int = 1) -> bytes:
    data = fmt.encode_status(fmt.Status(*status, pid))
    new = NewFile("A/1D/X", 2021, SCHEMA).encode(1)
    for number, sets in enumerate(groups):
        data += b"".join(committed(tgid + number, new + sets, 2))
    return data


@pytest.mark.parametrize(
    ("status", "rows"),
    [
        *(((1, 1), [7]), ((1, 2), [7]), ((1, 3), [7]), ((2, 1), [7]), ((2, 3), [7])),
        *(((2, 2), None), ((0, 0), [7]), ((9, 9), [7])),
    ],
)
def test_every_state_of_a_log(disk: SimDisk, status: tuple[int, int], rows: list[float]) -> None:
    disk.create(NAME, log(sets_for(), status=status))
    with open_store(disk) as store:
        assert store.damage == ()
        if rows is None:
            assert store.symbols() == []
        else:
            assert closes(store) == rows
    assert NAME not in disk.files()


def open_while_the_disk_fails(disk: SimDisk) -> BarStore:
    """Let each call of opening fail in turn.  Or a salvage would take sound groups for damaged."""
    for call in count():
        copy = disk.copy_after_kill()
        copy.posix.fault = Fault("eio", call)
        try:
            store = open_store(copy)
        except OSError:
            continue
        assert store.damage == ()
        if copy.posix.calls <= call:
            copy.posix.fault = None
            break
    assert disk.posix.fired["eio"] > 10
    return store


def test_a_disk_that_fails_is_not_damage(disk: SimDisk) -> None:
    with open_store(disk) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    store = open_store(disk)
    store.write(bars(2), "1D", "X", symbol="A")
    assert closes(open_while_the_disk_fails(disk)) == [2]


def test_nor_is_it_in_the_log_of_a_server(disk: SimDisk, golden: Golden) -> None:
    root = golden.path / "wal_replay_variable_duplicates" / "root"
    for path in root.rglob("*"):
        if path.is_file():
            disk.create(str(path.relative_to(root)), path.read_bytes())
    store = open_while_the_disk_fails(disk)
    assert len(store.query("AAPL", "1Min", "TICK")) == 6


@pytest.mark.parametrize("status", [(1, 1), (1, 2), (1, 3)])
def test_a_living_owner_is_respected(tmp_path: Path, status: tuple[int, int]) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        name = f"WALFile.{runtime.now_ns() + 10**9}"
        (tmp_path / name).write_bytes(log(sets_for(), status=status, pid=owner.pid))
        with pytest.raises(LockedError, match=str(owner.pid)):
            open_bars(tmp_path)
        with open_bars(tmp_path, read_only=True) as guest:
            assert closes(guest) == [7]
        owner.kill()
    with open_bars(tmp_path) as store:
        assert closes(store) == [7]


def test_a_number_given_again_is_another_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / NAME).write_bytes(log(sets_for(), pid=stranger.pid))  # of 2016
        with open_bars(tmp_path) as store:
            assert closes(store) == [7]
        stranger.kill()


def test_a_closed_log_has_no_owner(tmp_path: Path) -> None:
    name = f"WALFile.{runtime.now_ns() + 10**9}"
    (tmp_path / name).write_bytes(log(sets_for(), status=(2, 1), pid=os.getppid()))
    with open_bars(tmp_path) as store:
        assert closes(store) == [7]


def test_groups_are_replayed_in_the_order_of_the_log_whatever_their_tgids(disk: SimDisk) -> None:
    data = log(sets_for(1), tgid=2000) + log(sets_for(2), tgid=1000)[11:]
    disk.create(NAME, data)
    with open_store(disk) as store:
        assert closes(store) == [2]


def test_a_group_there_twice_is_one_and_two_of_one_tgid_are_two(disk: SimDisk) -> None:
    disk.create(NAME, log(sets_for(1)) + log(sets_for(1))[11:] + log(sets_for(2, index=2))[11:])
    with open_store(disk) as store:
        assert closes(store) == [1, 2]


@pytest.mark.parametrize("tail", [b"", bytes(4000), b"\x00garbage", b"\x01" + bytes(5)])
def test_a_torn_tail_is_cut_and_kept(disk: SimDisk, tail: bytes) -> None:
    whole = log(sets_for(1))
    torn = log(sets_for(2, index=2), tgid=5)[11:-11]
    disk.create(NAME, whole + torn + tail)
    with BarReader(disk) as guest:
        assert closes(guest) == [1]
    with open_store(disk) as store:
        assert closes(store) == [1]
        assert "kept" in store.mended[0]
    kept = [data for name, data in disk.files().items() if name.endswith(".cut")]
    assert kept == [torn + tail]


HOSTILE = {
    "up": sets_for(path="../../X/2021.bin"),
    "absolute": sets_for(path="/etc/X/Y/2021.bin"),
    "dots": sets_for(path="A/../X/2021.bin"),
    "no year file": sets_for(path="A/1D/X/LOCK"),
    "another year": sets_for(path="A/1D/X/2022.bin"),
    "another timeframe": sets_for(path="A/1Min/X/2021.bin"),
    "before the year": sets_for(index=-1),
    "behind the year": sets_for(index=365),
    "far behind": sets_for(index=2**62),
    "too narrow": sets_for(width=4),
    "no such kind": fmt.encode_set(fmt.encode_place(9, PATH, 2021, 1), [1], bytes(8), 8),
    "placed in the header": fmt.encode_set(
        fmt.encode_place(fmt.PLACED, PATH, 0, 0), [0], bytes(8), 8
    ),
    "placed far away": fmt.encode_set(
        fmt.encode_place(fmt.PLACED, PATH, 0, 0), [2**60], bytes(8), 8
    ),
    "other columns": NewFile("A/1D/X", 2021, schema_of((("Open", 2),), False)).encode(1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    root = tmp_path / "one" / "two" / "root"
    root.mkdir(parents=True)
    with open_bars(root) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    data = log(HOSTILE[name], sets_for(3))
    (root / NAME).write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with open_bars(root) as store:
        assert store.damage
        with pytest.raises(HoldfastError):
            store.write(bars(2), "1D", "X", symbol="A")
        assert closes(store) == [3], "what is sound is shown"
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {p: d for p, d in after.items() if p.name != "LOCK"} == {
        p: d for p, d in before.items() if p.name != "LOCK"
    }


@pytest.mark.parametrize("part", ["A", "A/1D", "A/1D/X", "A/1D/X/2021.bin"])
def test_links_do_not_lead_out_of_the_root(tmp_path: Path, part: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    with open_bars(outside) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    content = (outside / PATH).read_bytes()
    (root / part).parent.mkdir(parents=True)
    (root / part).symlink_to(outside / part)
    (root / NAME).write_bytes(log(sets_for(9)))
    if part == PATH:
        with pytest.raises(OSError, match=r"symbolic|link"):
            open_bars(root)
    else:
        with open_bars(root) as store:
            assert store.damage
    assert (outside / PATH).read_bytes() == content


def test_a_file_that_is_gone_is_made_like_another_year(disk: SimDisk) -> None:
    with open_store(disk) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    place = fmt.encode_place(fmt.FIXED, "A/1D/X/2020.bin", 2020, 1)
    sets = fmt.encode_set(place, [5], np.array([4.0]).tobytes(), 8)
    status = fmt.encode_status(fmt.Status(1, 1, 0))
    disk.create(NAME, status + b"".join(committed(1, sets, 1)))
    with open_store(disk) as store:
        assert closes(store) == [4, 1]


def test_a_file_that_nothing_tells_the_columns_of_is_damage(disk: SimDisk) -> None:
    status = fmt.encode_status(fmt.Status(1, 1, 0))
    disk.create(NAME, status + b"".join(committed(1, sets_for(), 1)))
    with open_store(disk) as store:
        assert "nothing tells its columns" in store.damage[0].why
